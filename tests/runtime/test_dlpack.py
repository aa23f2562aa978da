"""DLPack in both directions and in both of its forms, with NumPy as the other side."""

import ctypes
import gc
import struct
from enum import IntEnum

import numpy as np
import pytest

from heddle.runtime import CPU, Buffer, InputError, _core

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_numpy_takes_a_buffer(dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    buffer = Buffer.from_numpy(array)
    taken = np.from_dlpack(buffer)
    assert taken.dtype == array.dtype
    np.testing.assert_array_equal(taken, array)
    del buffer
    gc.collect()
    np.testing.assert_array_equal(taken, array)
    assert array.size == 0 or np.shares_memory(taken, array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_takes_numpy(dtype):
    array = np.random.default_rng(1).integers(0, 2, (2, 3)).astype(dtype)
    buffer = Buffer.from_dlpack(Only(array))
    assert (buffer.dtype, buffer.shape, buffer.device) == (dtype, (2, 3), CPU())
    assert np.shares_memory(buffer.to_numpy(), array)


@pytest.mark.parametrize(("dtype", "code"), [("float8_e4m3fn", 10), ("float8_e5m2", 12)])
def test_floats_of_8_bits(dtype, code):
    bits = np.arange(6, dtype=np.uint8).reshape(2, 3)
    source = Buffer.from_numpy(bits, dtype=dtype)
    buffer = Buffer.from_dlpack(Only(source))
    assert (buffer.dtype, buffer.shape) == (dtype, (2, 3))
    np.testing.assert_array_equal(buffer.to_numpy().view(np.uint8), bits)
    assert _type_code(source.__dlpack__()) == (code, 8, 1)


def _type_code(capsule):
    """The code, bits and lanes of the tensor in a capsule."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    # The data's pointer, then three 32-bit words: device type, device, rank.
    return struct.unpack("BBH", ctypes.string_at(address + 8 + 12, 4))


def test_a_round_trip_of_bfloat16():
    bits = np.arange(6, dtype=np.uint16).reshape(2, 3)
    buffer = Buffer.from_dlpack(Only(Buffer.from_numpy(bits, dtype="bfloat16")))
    assert (buffer.dtype, buffer.shape) == ("bfloat16", (2, 3))
    assert buffer.to_numpy().view(np.uint16).tolist() == bits.tolist()


def test_the_form_from_before_version_1():
    array = np.arange(6.0).reshape(2, 3)
    buffer = Buffer.from_numpy(array)
    assert '"dltensor"' in repr(buffer.__dlpack__())
    assert '"dltensor_versioned"' in repr(buffer.__dlpack__(max_version=(1, 3)))
    taken = Buffer.from_dlpack(Legacy(buffer))
    assert np.shares_memory(taken.to_numpy(), array)
    assert np.shares_memory(np.from_dlpack(Legacy(buffer)), array)


def test_capsules_that_nobody_takes_release_what_they_hold():
    buffer = Buffer("float32", (4,))
    for options in ({}, {"max_version": (1, 0)}):
        buffer.__dlpack__(**options)
    del buffer  # the fixture sees what is left


def test_read_only_memory_stays_so():
    array = np.arange(4)
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    assert not np.from_dlpack(buffer).flags.writeable
    assert not Buffer.from_dlpack(Only(buffer)).writable
    with pytest.raises(BufferError, match="a read-only buffer needs DLPack version 1"):
        buffer.__dlpack__()


def test_other_layouts_are_copied_and_counted():
    array = np.arange(12.0).reshape(3, 4)
    for layout in (array.T, array[:, 1:3], array[::-1]):
        count = _core.copy_count()
        np.testing.assert_array_equal(Buffer.from_dlpack(Only(layout)).to_numpy(), layout)
        assert _core.copy_count() == count + 1


def test_copies_and_devices_as_the_consumer_asks():
    array = np.arange(4.0)
    buffer = Buffer.from_numpy(array)
    assert not np.shares_memory(np.from_dlpack(buffer, copy=True), array)
    assert np.shares_memory(np.from_dlpack(buffer, device="cpu"), array)
    assert buffer.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=r"the memory is on cpu:0; use Buffer\.to\(\) first"):
        buffer.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": 4}, "wanted memory of a CPU (1) or a CUDA device (2), got device type 4"),
        ({"code": 5}, "wanted a dtype of Heddle, got type code 5 with 64 bits and 1 lanes"),
        ({"lanes": 2}, "wanted a dtype of Heddle, got type code 2 with 64 bits and 2 lanes"),
        ({"major": 2}, "wanted version 1, got version 2"),
    ],
)
def test_tensors_that_are_refused(change, message):
    buffer = Buffer.from_numpy(np.arange(4.0))
    tensor = Changed(buffer, **change)
    with pytest.raises(InputError) as error:
        Buffer.from_dlpack(tensor)
    assert str(error.value) == f"DLPack: {message}"
    tensor.restore()


def test_a_producer_that_refuses():
    class Refuses(Only):
        def __dlpack__(self, **options):
            raise BufferError("it needs a gradient")

    with pytest.raises(InputError) as error:
        Buffer.from_dlpack(Refuses(np.zeros(2)))
    assert str(error.value) == "DLPack: wanted a tensor, got the refusal: it needs a gradient"


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("__dlpack_device__", None, "wanted __dlpack_device__() as two integers, got None"),
        ("__dlpack_device__", (1,), "wanted __dlpack_device__() as two integers, got (1,)"),
        ("__dlpack_device__", (1 << 40, 0), "wanted __dlpack_device__() as two integers"),
        ("__dlpack__", 5, "wanted a capsule that nobody has taken over, got 5"),
    ],
)
def test_a_producer_that_is_none(method, value, message):
    kind = type("Odd", (Only,), {method: lambda self, **options: value})
    with pytest.raises(InputError) as error:
        Buffer.from_dlpack(kind(np.zeros(2)))
    assert str(error.value).startswith(f"DLPack: {message}")


def test_a_capsule_is_taken_over_once():
    capsule = np.zeros(2).__dlpack__()
    kind = type("Once", (Only,), {"__dlpack__": lambda self, **options: capsule})
    Buffer.from_dlpack(kind(np.zeros(2)))
    with pytest.raises(InputError, match='got <capsule object "used_dltensor'):
        Buffer.from_dlpack(kind(np.zeros(2)))


def test_a_producer_names_its_device_by_an_enumeration():
    """As torch does."""
    place = (IntEnum("DLDeviceType", {"kDLCPU": 1}).kDLCPU, 0)
    kind = type("Named", (Only,), {"__dlpack_device__": lambda self: place})
    assert Buffer.from_dlpack(kind(np.ones(2))).to_numpy().tolist() == [1, 1]


class Only:
    """An array that shows itself through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Legacy(Only):
    """One that has never heard of versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class Tensor(ctypes.Structure):
    """`DLManagedTensorVersioned` of the DLPack specification."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("index", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class Changed(Only):
    """A tensor of which one field says something else."""

    def __init__(self, array, **change):
        super().__init__(array)
        self.capsule = array.__dlpack__(max_version=(1, 0))
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.tensor = Tensor.from_address(get(self.capsule, b"dltensor_versioned"))
        ((self.field, value),) = change.items()
        self.before = getattr(self.tensor, self.field)
        setattr(self.tensor, self.field, value)

    def __dlpack__(self, **options):
        return self.capsule

    def restore(self):
        setattr(self.tensor, self.field, self.before)
