"""Arrays that are not dense are copied for a call, once it is known that it can be."""

import numpy as np
import pytest

from heddle.runtime._core import copy_count
from heddle.runtime.errors import InputError


@pytest.fixture
def copies():
    """How many were copied since the test began."""
    before = copy_count()
    return lambda: copy_count() - before


class Producer:
    """An array that has nothing but DLPack."""

    def __init__(self, array):
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


@pytest.mark.parametrize("way", [lambda array: array, Producer], ids=["array", "dlpack"])
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.broadcast_to(np.float32(1), 1 << 40), r"input 'x': wanted .*, got 1099511627776$"),
        (np.broadcast_to(np.float64(1), 8), "^input 'x': wanted dtype float32, got float64$"),
        (np.ones((3, 4), np.float32).T, r"^input 'x': wanted shape \[n\], got \[4, 3\]$"),
    ],
    ids=["size", "dtype", "rank"],
)
def test_what_is_refused_is_not_copied(doubler, copies, way, array, message):
    with pytest.raises(InputError, match=message):
        doubler.execute(way(array))
    with pytest.raises(InputError, match=r"output .*: wanted dense, row-major and aligned memory"):
        doubler.execute(np.ones(4, np.float32), out=[way(array[::-1])])
    assert copies() == 0


def test_what_is_taken_is_copied_once(doubler, copies):
    array = np.arange(8, dtype=np.float32)
    even, odd = [0, 4, 8, 12], [14, 10, 6, 2]
    sources = ((array[::2], even), (Producer(array[::2]), even), (array[::-2], odd))
    for number, (source, doubled) in enumerate(sources, 1):
        (y,) = doubler.execute(source)
        assert copies() == number
        assert y.to_numpy().tolist() == doubled


def test_a_producer_without_a_device_is_named(doubler):
    class Half:
        def __dlpack__(self, **options):
            raise AssertionError("not asked")

    with pytest.raises(InputError, match=r"input 'x': DLPack: wanted __dlpack_device__\(\) as two"):
        doubler.execute(Half())
