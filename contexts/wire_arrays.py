"""Arrays inside messages: dtype, shape and bytes, and the checks that keep them honest."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt

from heddle.contexts.numeric import is_masked

# The code of the msgpack extension type that holds an array.
ARRAY_CODE = 1

_NAMES = "? i1 u1 <i2 <u2 <i4 <u4 <i8 <u8 <f2 <f4 <f8 <c8 <c16"
# By their code: four bytes, the last ones zeros.
_DTYPES = {np.dtype(name).str.encode().ljust(4, b"\0"): np.dtype(name) for name in _NAMES.split()}
# Arrays of either byte order travel in the little one.
_CODES = {
    either: code for code, dtype in _DTYPES.items() for either in (dtype, dtype.newbyteorder())
}
# The code of the dtype, and the rank; the sizes follow.
_BEGIN = struct.Struct("<4sB")


def pack_array(array: npt.NDArray[Any]) -> msgspec.msgpack.Ext:
    """An array as an extension value: dtype, rank, shape, then its bytes in C order.

    Raises:
        TypeError: It has a mask; or its dtype is none of bool, integers, floats and complex.
    """
    if is_masked(array):
        raise TypeError("array: wanted one without a mask, got a MaskedArray")
    code = _CODES.get(array.dtype)
    if code is None:
        raise TypeError(f"array: wanted bool, integers, floats or complex, got {array.dtype}")
    header = _BEGIN.pack(code, array.ndim) + struct.pack(f"<{array.ndim}Q", *array.shape)
    data = np.asarray(array, dtype=_DTYPES[code], order="C").reshape(-1)
    return msgspec.msgpack.Ext(ARRAY_CODE, b"".join((header, data.data)))


def unpack_array(data: memoryview, copy: bool) -> npt.NDArray[Any]:
    """The array of an extension value: a read-only view of `data`, or a copy.

    Raises:
        ValueError: `data` is no array, or its sizes contradict its bytes.
    """
    if len(data) < _BEGIN.size:
        raise ValueError(f"array: wanted at least {_BEGIN.size} bytes, got {len(data)}")
    code, rank = _BEGIN.unpack_from(data)
    dtype = _DTYPES.get(code)
    start = _BEGIN.size + 8 * rank
    if dtype is None or len(data) < start:
        found = code.rstrip(b"\0")
        raise ValueError(f"array: wanted a known dtype and its shape, got {found!r}, rank {rank}")
    shape = struct.unpack_from(f"<{rank}Q", data, _BEGIN.size)
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) - start != wanted:
        raise ValueError(
            f"array: wanted {wanted} bytes for shape {list(shape)} of {dtype}, "
            f"got {len(data) - start}"
        )
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, data.toreadonly(), start)
    return array.copy() if copy else array


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
