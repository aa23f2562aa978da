"""Running a model from Python: what is taken, what comes back, what is refused."""

import threading
import time

import numpy as np
import pytest
from heddle.runtime import CPU, Buffer, InferenceSession, InputError, _core


def test_arrays_buffers_and_dlpack_are_taken(doubler, four):
    for x in (four, Buffer.from_numpy(four), memoryview(four), OnlyDlpack(four)):
        (y,) = doubler.execute(x)
        assert isinstance(y, Buffer)
        np.testing.assert_array_equal(y.to_numpy(), 2 * four)


def test_calling_is_executing(doubler, four):
    np.testing.assert_array_equal(doubler(four)[0].to_numpy(), 2 * four)
    y = np.empty_like(four)
    assert doubler(four, out=[y])[0] is y
    np.testing.assert_array_equal(y, 2 * four)


def test_any_size_of_a_symbolic_dim(doubler):
    for size in (0, 1, 7, 1000, 7):
        x = np.full(size, 3, np.float32)
        assert doubler.execute(x)[0].to_numpy().tolist() == [6.0] * size


def test_metadata_and_signature(doubler):
    (x,) = doubler.input_metadata
    assert (x.name, x.dtype, x.shape) == ("x", "float32", ("n",))
    assert repr(doubler.output_metadata) == "[y: float32[n]]"
    assert doubler.signature == "hand(x: float32[n]) -> (y: float32[n])"
    assert repr(doubler) == f"Model({doubler.signature})"
    assert doubler.name == "hand"
    assert doubler.device == CPU()
    assert doubler.archs == ["x86-64-v3"]
    assert doubler.state_bytes == 0
    assert doubler.artifact.name == "hand"


@pytest.mark.parametrize(
    ("dtype", "number", "bits"),
    [
        ("bool", True, b"\1"),
        ("int8", -3, np.int8(-3).tobytes()),
        ("uint64", 2**64 - 1, b"\xff" * 8),
        ("float16", 1.5, np.float16(1.5).tobytes()),
        ("bfloat16", 1.00390625, b"\x80\x3f"),  # 1 + 2**-8, a tie: to even, down
        ("bfloat16", 1.01171875, b"\x82\x3f"),  # 1 + 3 * 2**-8, a tie: to even, up
        ("bfloat16", float("nan"), b"\xc0\x7f"),
        ("float32", 3, np.float32(3).tobytes()),
        ("float64", 0.1, np.float64(0.1).tobytes()),
    ],
)
def test_a_number_is_a_tensor_of_rank_0(make, session, dtype, number, bits):
    model = session.load(make("same", dtype=dtype, shape=()))
    (y,) = model.execute(number)
    assert (y.dtype, y.shape) == (dtype, ())
    assert y.to_numpy().tobytes() == bits


@pytest.mark.parametrize(
    ("dtype", "number", "message"),
    [
        ("int8", 300, "input 'x': wanted a number for int8, got 300"),
        ("int8", 1.5, "input 'x': wanted a number for int8, got float 1.5"),
        ("bool", 2, "input 'x': wanted a number for bool, got int 2"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(make, session, dtype, number, message):
    model = session.load(make("same", dtype=dtype, shape=()))
    with pytest.raises(InputError) as error:
        model.execute(number)
    assert str(error.value) == message


def test_out_receives_the_result_without_new_memory(doubler, four):
    live = _core.live_objects()
    y = Buffer("float32", (4,))
    result = doubler.execute(four, out=(y,))
    assert result == (y,)
    np.testing.assert_array_equal(y.to_numpy(), 2 * four)
    array = np.empty(4, np.float32)
    for _ in range(3):
        doubler.execute(four, out=[array])
    np.testing.assert_array_equal(array, 2 * four)
    del y, result
    grown = _core.live_objects()
    assert grown["storages"] == live["storages"] + 1  # the arena of the first call
    assert grown["arenas"] == live["arenas"] + 1


class OnlyDlpack:
    """A tensor that shows itself through DLPack alone, in the way of before version 1."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
