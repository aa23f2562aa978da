"""Running a model from Python: what is taken, what comes back, what is refused."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from heddle.runtime import CPU, Buffer, InputError, _core
from heddle.runtime.artifact import Weight


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


def test_profiling_tells_what_each_step_took(doubler, four):
    (row,) = doubler.profile(four)
    assert row["seconds"] > 0
    assert row["bytes"] == 2 * four.nbytes
    assert row["work"] >= four.size
    (kernel,) = doubler.artifact.programs[0]["kernels"]
    assert row["kernel"] == kernel["name"]
    assert row["label"]
    with pytest.raises(InputError, match="'x': wanted"):
        doubler.profile(np.zeros((2, 2), np.float32))


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
        ("bfloat16", 1 + 2**-8 + 2**-40, b"\x81\x3f"),  # above the tie, where a float32 is one
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
        ("float32", 10**400, f"input 'x': wanted a number for float32, got {10**400}"),
        ("bfloat16", 10**400, f"input 'x': wanted a number for bfloat16, got {10**400}"),
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


def test_arrays_that_are_not_dense_are_copied_and_counted(doubler):
    x = np.arange(8, dtype=np.float32)
    for layout in (x[::2], x[::-1], misaligned(x)):
        count = _core.copy_count()
        np.testing.assert_array_equal(doubler.execute(layout)[0].to_numpy(), 2 * layout)
        assert _core.copy_count() == count + 1
    count = _core.copy_count()
    x.flags.writeable = False
    doubler.execute(x)
    assert _core.copy_count() == count


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "execute: wanted 1 inputs (x), got 0"),
        ([np.zeros(1, "f4"), np.zeros(1, "f4")], "execute: wanted 1 inputs (x), got 2"),
        ([np.zeros(1, "f8")], "input 'x': wanted dtype float32, got float64"),
        ([np.zeros((1, 1), "f4")], "input 'x': wanted shape [n], got [1, 1]"),
        ([1.5], "input 'x': wanted shape [n], got []"),
        (
            [np.zeros(1, ">f4")],
            "input 'x': wanted an array of a dtype of Heddle in native byte order,"
            " got elements of format '>f'",
        ),
        (
            [np.zeros(1, object)],
            "input 'x': wanted an array of a dtype of Heddle in native byte order,"
            " got elements of format 'O'",
        ),
        (
            [np.zeros(1, "datetime64[s]")],
            "input 'x': wanted an array of a dtype of Heddle, got ndarray of dtype datetime64[s]",
        ),
        (
            [np.zeros(1, "c8")],
            "input 'x': wanted an array of a dtype of Heddle in native byte order,"
            " got elements of format 'Zf'",
        ),
        (
            [[1.0, 2.0]],
            "input 'x': wanted an array (NumPy, Buffer, DLPack or CUDA array interface) or a"
            " number, got list",
        ),
        (
            [np.ma.masked_array(np.zeros(4, "f4"), [0, 1, 0, 0])],
            "input 'x': wanted an array without a mask, got a MaskedArray",
        ),
        ([None, 2], "input 'x': wanted an array (NumPy, Buffer, DLPack or CUDA array interface)"),
    ],
)
def test_wrong_inputs(doubler, inputs, message):
    with pytest.raises(InputError) as error:
        doubler.execute(*inputs)
    assert str(error.value).startswith(message)


def test_a_size_outside_its_range(weighted, session, four):
    model = session.load(weighted, weights={"w": four})
    with pytest.raises(InputError, match=r"dim 'n' of input 'x': wanted 0 to 4, got 5"):
        model.execute(np.zeros(5, np.float32))


@pytest.mark.parametrize(("size", "stays"), [(1 << 10, False), (1 << 16, True)])
def test_large_weights_stay_where_they_are_and_live(make, session, size, stays):
    made = make("multiply", weights=(Weight("w", "float32", (size,)),), maximum=size)
    given = np.full(size, 3, np.float32)
    model, kept = session.load(made, weights={"w": given}), weakref.ref(given)
    del given
    gc.collect()
    assert (kept() is not None) is stays
    assert model.execute(np.float32([1, 2]))[0].to_numpy().tolist() == [3, 6]
    del model
    assert kept() is None


def test_values_that_a_kernel_refuses(make, session):
    model = session.load(make("check"))
    for _ in range(2):  # the status word is zero again after a refusal
        with pytest.raises(InputError) as error:
            model.execute(np.float32([1, -7, 3]))
        assert str(error.value) == "check at m.py:1: wanted an index inside a size of 3, got -7"
        assert model.execute(np.float32([1, 2]))[0].to_numpy().tolist() == [1, 2]


def read_only(size):
    array = np.zeros(size, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([], "execute: wanted 1 outputs (y), got 0"),
        ([np.zeros(4, "f8")], "output 'y': wanted dtype float32, got float64"),
        ([np.zeros(3, "f4")], "output 'y': wanted shape [4], got [3]"),
        (
            [np.zeros(8, "f4")[::2]],
            "output 'y': wanted dense, row-major and aligned memory, got a view that is not",
        ),
        (
            [np.ma.masked_array(np.zeros(4, "f4"), [0, 1, 0, 0])],
            "output 'y': wanted an array without a mask, got a MaskedArray (fill it: "
            "array.filled(0))",
        ),
        ([read_only(4)], "output 'y': wanted writable memory, got read-only memory"),
        (
            [4],
            "output 'y': wanted an array (NumPy, Buffer, DLPack or CUDA array interface), got int",
        ),
        (
            [[1]],
            "output 'y': wanted an array (NumPy, Buffer, DLPack or CUDA array interface), got list",
        ),
    ],
)
def test_wrong_outputs(doubler, four, out, message):
    with pytest.raises(InputError) as error:
        doubler.execute(four, out=out)
    assert str(error.value) == message


def test_an_output_may_not_be_an_input(doubler, four):
    with pytest.raises(InputError, match=r"output 'y': wanted memory of its own"):
        doubler.execute(four, out=[four])


def test_wrong_calls(doubler, four):
    with pytest.raises(TypeError, match=r"wanted the keywords 'out' and 'stream', got 'output'"):
        doubler.execute(four, output=[four])
    with pytest.raises(InputError, match=r"out: wanted a list of arrays, .*, got 3"):
        doubler.execute(four, out=3)
    for array, name in ((np.empty((1, 4), np.float32), "ndarray"), (Buffer("float32", (4,)), "")):
        with pytest.raises(InputError, match=rf"out: wanted a list of arrays, .*, got .*{name}$"):
            doubler.execute(four, out=array)


def test_many_threads_run_one_model(doubler):
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).random(64 + seed, np.float32)
        for _ in range(200):
            if not np.array_equal(doubler.execute(x)[0].to_numpy(), 2 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_a_model_does(make, session):
    """With the interpreter locked, the counter could not move between start and end of a run."""
    model = session.load(make("slow"))
    x = np.zeros(20_000, np.float32)
    counter = [0]
    running = True

    def count():
        while running:
            counter[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counter[0]
        model.execute(x)
        after = counter[0]
    finally:
        running = False
        thread.join()
    assert after - before >= 3


def misaligned(array):
    """The same elements one byte off their alignment."""
    room = np.empty(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype)
    moved[:] = array
    return moved


class OnlyDlpack:
    """A tensor that shows itself through DLPack alone, in the way of before version 1."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
