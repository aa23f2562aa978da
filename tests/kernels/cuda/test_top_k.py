"""The best of long rows on the emulator: bounds that are narrowed, several rounds, mistakes."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_cases import plain, tensor
from cuda_harness import run
from emulator.memory import EmulatorError
from reference import evaluate

from heddle.kernels.cuda import _block
from heddle.kernels.cuda.ranking import best, histogram
from heddle.kernels.spec import Body, Step


def search(dtype: str, n: int, k: int, smallest: bool = False):
    x, result = tensor(dtype, "d0", n), tensor("int64", "d0", k)
    return plain("top_k", [x], result, smallest=smallest)


def check(spec, array: np.ndarray) -> None:
    dims = {"d0": len(array)}
    (found,), _ = run(spec, [array], dims)
    np.testing.assert_array_equal(found, evaluate(spec, dims, [array])[0])


def random(*shape) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def test_more_than_are_taken_at_once():
    check(search("float32", 1100, best.TAKE + 30), random(1, 1100))


def test_equal_elements_are_more_than_there_is_room_for():
    numbers = np.random.default_rng(3).integers(0, 2, (2, 1400)).astype(np.float32)
    check(search("float32", 1400, 9), numbers)


def test_what_is_alike_along_rows():
    """A prologue whose inputs stretch: nothing moves in vectors."""
    body = Body((tensor("float32", "d0", 1),), (Step("exp", (0,), "float32"),), (1,))
    spec = replace(search("float32", 40, 2), prologue=body)
    array = random(3, 1)
    (found,), _ = run(spec, [array], {"d0": 3})
    np.testing.assert_array_equal(found, evaluate(spec, {"d0": 3}, [array])[0])


@pytest.fixture
def narrow(monkeypatch):
    """Room for a few elements more than are taken."""
    monkeypatch.setattr(best, "ROOM", 6)
    monkeypatch.setattr(best, "TAKE", 4)


NARROW = {
    "float32": random(1, 1030),
    "int64": np.random.default_rng(1).integers(-(2**63), 2**63, (1, 1030)),
    "int64 that are near": np.random.default_rng(1).integers(-9, -3, (1, 1030)),
    "uint8": np.random.default_rng(1).integers(0, 255, (1, 1030)).astype(np.uint8),
    "float64": np.sort(np.random.default_rng(1).standard_normal((1, 1030))),
}


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.usefixtures("narrow")
def test_narrowing(name, smallest):
    array = NARROW[name]
    check(search(str(array.dtype), 1030, 6, smallest), array)


def test_counting_without_atomics_is_caught(monkeypatch):
    def add(counters, value, place):
        before = counters.load(place)
        counters.store(before + value, place)
        return before

    monkeypatch.setattr(histogram.Counters, "add", add)
    with pytest.raises(EmulatorError, match="race"):
        check(search("float32", 1100, 9), random(1, 1100))


@pytest.mark.parametrize("step", ["_collect", "_count_bins"])
@pytest.mark.usefixtures("narrow")
def test_counting_without_barriers_is_caught(monkeypatch, step):
    """Counters are cleared, counted at, and read: each by other threads."""
    count = getattr(best.Search, step)

    def planted(*args):
        with monkeypatch.context() as here:
            here.setattr(_block, "barrier", lambda: None)
            return count(*args)

    monkeypatch.setattr(best.Search, step, planted)
    array = NARROW["int64 that are near"]
    with pytest.raises(EmulatorError, match="race: updates what another thread wrote"):
        check(search("int64", 1030, 6), array)
