from typing import Any

import numpy as np
import pytest

from heddle.contexts import msgpack_numpy_decoder, msgpack_numpy_encoder

encode = msgpack_numpy_encoder()


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(12, dtype=np.uint16)[::3],
        np.arange(3, dtype=">i4"),
        np.array([1 + 2j], np.complex64),
        np.zeros((1,) * 20, np.float16),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)[:3]}",
)
def test_arrays_come_back_in_c_order(array, copy):
    message = encode(array)
    again = msgpack_numpy_decoder(np.ndarray, copy=copy)(message)
    assert again.dtype == array.dtype.newbyteorder("<")
    assert again.shape == array.shape
    assert np.array_equal(again, array)
    assert again.flags.c_contiguous
    assert again.flags.writeable is copy
    if array.size and not copy:
        assert np.shares_memory(again, np.frombuffer(message, np.uint8))


def test_views_of_a_mutable_message_are_read_only():
    again = msgpack_numpy_decoder(np.ndarray, copy=False)(bytearray(encode(np.arange(3))))
    assert not again.flags.writeable


def test_numpy_scalars_become_numbers():
    assert msgpack_numpy_decoder(Any)(encode([np.int64(3), np.float32(0.5)])) == [3, 0.5]


def test_a_masked_array_is_refused():
    array = np.ma.masked_array([1, 2], [0, 1])
    with pytest.raises(TypeError, match=r"^array: wanted one without a mask, got a MaskedArray$"):
        msgpack_numpy_encoder()(array)
