"""Buffers: memory that NumPy and others share with the runtime."""

import gc
import json
import mmap
import subprocess
import sys
import types
import weakref

import ml_dtypes
import numpy as np
import pytest

from heddle.runtime import CPU, Buffer, InputError, _core

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_numpy_and_back(dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    count = _core.copy_count()
    buffer = Buffer.from_numpy(array)
    assert (buffer.dtype, buffer.shape, buffer.device) == (dtype, shape, CPU())
    assert buffer.nbytes == array.nbytes
    back = buffer.to_numpy()
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.asarray(buffer), array)
    assert _core.copy_count() == count
    if array.size:
        assert np.shares_memory(back, array)
        assert np.shares_memory(np.asarray(buffer), array)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_new_memory_is_aligned_and_writable(dtype):
    buffer = Buffer(dtype, (3, 5))
    assert buffer.writable
    assert np.asarray(buffer.to_numpy()).ctypes.data % 64 == 0
    assert buffer.nbytes == 15 * _core.dtype_size(dtype)
    assert repr(buffer) == f"Buffer({dtype}[3, 5], cpu:0)"


def test_an_empty_tensor_has_no_memory_and_is_an_array_all_the_same():
    buffer = Buffer("float32", (2, 0))
    for array in (buffer.to_numpy(), np.asarray(buffer), np.from_dlpack(buffer)):
        assert (array.shape, array.dtype, array.tolist()) == ((2, 0), np.float32, [[], []])


def test_dtypes_by_object():
    named = types.SimpleNamespace(name="float32")
    for dtype in (np.float32, np.dtype("f4"), "float32", named):
        assert Buffer(dtype, [2]).dtype == "float32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float31", (1,)), "wanted a dtype such as 'float32', got 'float31'"),
        ((3, (1,)), "wanted a dtype such as 'float32', got 3"),
        (("float32", (-1,)), "a buffer of float32[-1]: wanted sizes of 0 or more"),
        (("float32", (1 << 40, 1 << 40)), "wanted sizes of 0 or more that fit 63 bits in bytes"),
        (("float32", (1,) * 17), "Buffer: wanted at most 16 dims, got more"),
        (("float32", (2, 2.5)), "Buffer: wanted sizes as integers of 64 bits, got 2.5"),
        (("float32", ("a",)), "Buffer: wanted sizes as integers of 64 bits, got 'a'"),
        (("float32", (1 << 63,)), "integers of 64 bits, got 9223372036854775808"),
        (("float32", 3), "Buffer: wanted a shape, as (3, 4), got 3"),
        ((None, (1,)), "wanted a dtype such as 'float32', got None"),
        (("float32", (1,), "cpu"), "Buffer: wanted a Device, as CPU() or Accelerator(0), got"),
    ],
)
def test_wrong_buffers(arguments, message):
    with pytest.raises(InputError) as error:
        Buffer(*arguments)
    assert message in str(error.value)


def test_memory_lives_as_long_as_a_view():
    before = _core.live_objects()["storages"]
    array = Buffer("float32", (1000,)).to_numpy()
    assert _core.live_objects()["storages"] == before + 1
    array[:] = 7
    assert array.sum() == 7000
    del array
    assert _core.live_objects()["storages"] == before


class Holder(np.ndarray):
    """An array with attributes."""


@pytest.mark.parametrize("step", [1, 2], ids=["shared", "copied"])
def test_an_array_that_holds_the_buffer_over_itself_is_freed(step):
    array = np.arange(8, dtype=np.float32).view(Holder)[::step]
    array.buffer = Buffer.from_numpy(array)
    view, kept = array.buffer.to_numpy(), weakref.ref(array)
    del array
    gc.collect()
    assert view.tolist() == list(range(0, 8, step))  # what is in use is not garbage
    del view
    gc.collect()
    assert kept() is None


def test_a_second_buffer_over_such_an_array_is_freed():
    array = np.arange(8, dtype=np.float32).view(Holder)
    array.buffer = Buffer.from_numpy(Buffer.from_numpy(array))
    kept = weakref.ref(array)
    del array
    gc.collect()
    assert kept() is None


def test_the_source_of_a_copy_is_not_kept():
    array = np.arange(8).view(Holder)
    buffer, kept = Buffer.from_numpy(array[::2]), weakref.ref(array)
    del array
    assert kept() is None
    assert buffer.to_numpy().tolist() == [0, 2, 4, 6]


def test_a_read_only_array_stays_so():
    array = np.arange(4)
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    assert not buffer.writable
    assert not buffer.to_numpy().flags.writeable
    assert buffer.copy().writable


def test_arrays_that_cannot_be_shared_are_copied_and_counted():
    array = np.arange(12).reshape(3, 4)
    for layout in (array.T, array[:, 1:3], array[::-1], np.broadcast_to(array[0], (2, 4))):
        count = _core.copy_count()
        buffer = Buffer.from_numpy(layout)
        assert _core.copy_count() == count + 1
        np.testing.assert_array_equal(buffer.to_numpy(), layout)
        assert not np.shares_memory(buffer.to_numpy(), array)
        assert buffer.writable


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2, ">i4"), "in native byte order, got elements of format '>i'"),
        (np.zeros(2, object), "in native byte order, got elements of format 'O'"),
        (np.zeros(2, "c16"), "in native byte order, got elements of format 'Zd'"),
        (np.zeros(2, "S3"), "in native byte order, got elements of format '3s'"),
        (np.zeros(2, "datetime64[s]"), "got ndarray of dtype datetime64[s]"),
        (None, "or a number, got NoneType"),
        (
            np.ma.masked_array(np.zeros(2), [True, False]),
            "wanted an array without a mask, got a MaskedArray (fill it: array.filled(0))",
        ),
    ],
)
def test_arrays_that_are_refused(array, message):
    with pytest.raises(InputError) as error:
        Buffer.from_numpy(array)
    assert str(error.value).endswith(message)


def test_memory_that_was_given_back_is_refused():
    memory = memoryview(b"1234")
    memory.release()
    with pytest.raises(InputError, match=r"wanted an array, got memoryview: operation forbidden"):
        Buffer.from_numpy(memory)


def test_items_and_copies():
    buffer = Buffer.from_numpy(np.float32(2.5))
    assert buffer.item() == 2.5
    copy = buffer.copy()
    copy.to_numpy()[...] = 3
    assert (buffer.item(), copy.item()) == (2.5, 3)
    assert buffer.to(CPU()) is buffer
    assert np.asarray(buffer, dtype=np.float64).dtype == np.float64
    with pytest.raises(InputError, match=r"Buffer.item: wanted one element, got the shape \[2\]"):
        Buffer("float32", (2,)).item()
    with pytest.raises(InputError, match=r"Buffer.to: wanted a Device, as CPU\(\) .*, got 'cpu'"):
        buffer.to("cpu")
    with pytest.raises(InputError, match=r"from_dlpack: wanted an object with __dlpack__, got 3"):
        Buffer.from_dlpack(3)


def test_there_is_no_cuda_array_interface_on_a_cpu():
    buffer = Buffer("float32", (2,))
    assert not hasattr(buffer, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the memory is on the CPU, not on a CUDA device"):
        buffer.__cuda_array_interface__  # noqa: B018


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", "uint16"), ("float8_e5m2", "uint8")])
def test_bits_where_ml_dtypes_is_missing(dtype, bits):
    script = f"""
dtype, raw = "{dtype}", "{bits}"
"""
    script += """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
from heddle.runtime import Buffer, InputError
bits = np.arange(6, dtype=raw).reshape(2, 3)
buffer = Buffer.from_numpy(bits, dtype=dtype)
assert buffer.dtype == dtype
for array in (buffer.to_numpy(), np.asarray(buffer)):
    assert array.dtype == raw and np.shares_memory(array, bits)
    assert np.array_equal(array, bits)
assert buffer.copy().dtype == dtype
try:
    Buffer.from_numpy(bits, dtype="float32")
except InputError as error:
    assert str(error) == f"Buffer: wanted elements of the size of float32, got {raw}", error
else:
    raise AssertionError
assert not hasattr(buffer, "__array_interface__")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_ml_dtypes(dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    buffer = Buffer.from_numpy(array)
    assert buffer.dtype == dtype
    assert buffer.to_numpy().dtype == array.dtype
    assert np.shares_memory(buffer.to_numpy(), array)
    np.testing.assert_array_equal(Buffer.from_numpy(array.T).to_numpy(), array.T)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_model_takes_arrays_of_ml_dtypes(make, session, dtype):
    """Theirs are dtypes for which the buffer protocol has no format."""
    same = session.load(make("same", dtype=dtype))
    x = np.arange(8, dtype=np.float32).astype(dtype)
    for layout, copies in ((x, 0), (x[:0], 0), (x[::2], 1), (x[::-1], 1)):
        count = _core.copy_count()
        (y,) = same.execute(layout)
        np.testing.assert_array_equal(y.to_numpy(), layout)
        assert _core.copy_count() == count + copies
    y = np.zeros_like(x)
    same.execute(x, out=[y])
    np.testing.assert_array_equal(y, x)
    y.flags.writeable = False
    with pytest.raises(InputError, match="writ"):
        same.execute(x, out=[y])
    with pytest.raises(InputError, match=f"wanted dtype {dtype}, got float16"):
        same.execute(x.astype(np.float16))
    with pytest.raises(InputError, match=r"wanted an array of a dtype of Heddle.* of dtype int4"):
        same.execute(x.astype(ml_dtypes.int4))


def test_bytes_that_call_themselves_bfloat16_are_refused(make, session):
    """Their memory is half of what so many elements would have."""

    class Bytes(bytearray):
        dtype = types.SimpleNamespace(type=type("bfloat16", (), {}))

    same = session.load(make("same", dtype="bfloat16"))
    with pytest.raises(InputError, match="wanted elements of the size of bfloat16, got 1 bytes"):
        same.execute(Bytes(64))


def test_an_array_of_bfloat16_without_memory_on_the_host_is_asked_for_its_device(make, session):
    """As CuPy's, whose buffer protocol refuses: a closed file's does as well."""

    class Elsewhere(mmap.mmap):
        dtype = types.SimpleNamespace(type=type("bfloat16", (), {}))
        __cuda_array_interface__ = types.MappingProxyType({})

    array = Elsewhere(-1, 64)
    array.close()
    same = session.load(make("same", dtype="bfloat16"))
    with pytest.raises(InputError) as caught:
        same.execute(array)
    assert "__cuda_array_interface__" in str(caught.value)


def test_a_buffer_of_a_file_at_no_multiple_of_its_element_is_copied_for_a_call(tmp_path, doubler):
    path = tmp_path / "x.safetensors"
    rows = {
        "first": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    header = json.dumps(rows).encode()
    values = np.float32([1, 2]).tobytes()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" + values)
    x = _core.Safetensors(path).tensors()["x"]
    assert x.__array_interface__["data"][0] % 4 != 0
    before = _core.copy_count()
    assert doubler.execute(x)[0].to_numpy().tolist() == [2, 4]
    assert _core.copy_count() == before + 1
