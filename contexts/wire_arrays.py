"""Arrays inside messages: what stands for one, where its bytes lie, and the checks of both."""

from __future__ import annotations

import math
import struct
import threading
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt

from heddle.contexts.numeric import is_masked

# The code of the msgpack extension type that stands for an array.
ARRAY_CODE = 1
# Arrays begin at multiples of so many bytes.
ALIGNMENT = 16


def _travelling(letter: str) -> tuple[bytes, np.dtype[Any]]:
    """A type of C as it travels, in the little byte order: its code, four bytes, and its dtype."""
    name = np.dtype(letter).newbyteorder("<").str
    return name.encode().ljust(4, b"\0"), np.dtype(name)


# By their numbers in NumPy; types of the same size have two.
_CODES = {np.dtype(letter).num: _travelling(letter) for letter in "?bBhHiIlLqQefdFD"}
_DTYPES = dict(_CODES.values())
_MOST_RANK = 64  # NumPy's


@cache
def _header(rank: int) -> struct.Struct:
    """The code of the dtype, where the bytes begin among those of all arrays, the sizes."""
    return struct.Struct(f"<4sQ{rank}Q")


_WITHOUT_SIZES = _header(0).size


class OutgoingArrays:
    """The arrays of one message on their way out."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []  # their bytes, each filled up to `ALIGNMENT`
        self.size = 0  # of all parts, in bytes

    def pack(self, array: npt.NDArray[Any]) -> msgspec.msgpack.Ext:
        """What stands for `array` in the message; its bytes, in C order, are among the parts.

        Raises:
            TypeError: It has a mask; or its dtype is none of bool, integers, floats and complex.
        """
        if is_masked(array):
            raise TypeError("array: wanted one without a mask, got a MaskedArray")
        if array.dtype.num not in _CODES:
            raise TypeError(f"array: wanted bool, integers, floats or complex, got {array.dtype}")
        code, dtype = _CODES[array.dtype.num]
        data = np.asarray(array, dtype=dtype, order="C")
        header = _header(data.ndim).pack(code, self.size, *data.shape)
        size = data.nbytes
        self.parts.append(data.data)
        if rest := size % ALIGNMENT:
            self.parts.append(bytes(ALIGNMENT - rest))
            size += ALIGNMENT - rest
        self.size += size
        return msgspec.msgpack.Ext(ARRAY_CODE, header)


class IncomingArrays(threading.local):
    """The arrays of the message that a thread reads."""

    def __init__(self, copy: bool) -> None:
        self._copy = copy
        self._free = 0

    def begin(self, data: memoryview) -> None:
        """Read the arrays from here on out of `data`."""
        self._data = data.toreadonly()
        self._free = 0

    def end(self) -> None:
        """Let go of the message."""
        del self._data

    def unpack(self, code: int, header: memoryview) -> npt.NDArray[Any]:
        """The array for which an extension value stands: a read-only view of it, or a copy.

        Each lies behind the one before, so that all of them together are no larger than `data`.

        Raises:
            ValueError: The value stands for no array, or for one that leaves its place.
        """
        if code != ARRAY_CODE:
            raise ValueError(f"wanted extension {ARRAY_CODE}, an array, got {code}")
        rank, odd = divmod(len(header) - _WITHOUT_SIZES, 8)
        if odd or not 0 <= rank <= _MOST_RANK:
            raise ValueError(f"array: wanted its dtype, place and shape, got {len(header)} bytes")
        name, start, *shape = _header(rank).unpack(header)
        dtype = _DTYPES.get(name)
        if dtype is None:
            raise ValueError(f"array: wanted a known dtype, got {name.rstrip(bytes(1))!r}")
        end = start + math.prod(shape) * dtype.itemsize
        if not self._free <= start <= end <= len(self._data):
            raise ValueError(
                f"array: wanted {shape} of {dtype} within bytes {self._free} to "
                f"{len(self._data)}, got bytes {start} to {end}"
            )
        self._free = end
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, self._data, start)
        return array.copy() if self._copy else array


@cache
def is_array(type_: Any) -> bool:
    """Whether the annotation `type_` stands for arrays."""
    return type_ is np.ndarray or get_origin(type_) is np.ndarray


@cache
def _element(type_: Any) -> Any:
    """The scalar type that the annotation of an array names; `np.generic`: any."""
    arguments = get_args(type_)
    wanted = get_args(arguments[1])[0] if arguments else Any
    return np.generic if wanted is Any else get_origin(wanted) or wanted


def check_array(type_: Any, value: object) -> npt.NDArray[Any]:
    """`value` when it is an array of the dtype that the annotation `type_` names.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(value, np.ndarray):
        raise TypeError(f"wanted an array, got {type(value).__name__}")
    wanted = _element(type_)
    if not issubclass(value.dtype.type, wanted):
        raise TypeError(f"wanted an array of {wanted.__name__}, got {value.dtype}")
    array: npt.NDArray[Any] = value
    return array
