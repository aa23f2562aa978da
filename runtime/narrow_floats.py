"""The floats that NumPy lacks: their bits from values, rounded to the nearest one, ties to even.

The floats of 8 bits are those of "OCP 8-bit Floating Point Specification (OFP8)", version 1.0,
without saturation: what is too large becomes infinity, or NaN in float8_e4m3fn, which has no
infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DTYPES = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
"""What holds the bits of each."""

CHUNK = 1 << 18
"""Elements that are rounded together: few enough that what comes in between stays in a cache."""


def nbytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of an array of any dtype, of `DTYPES` or NumPy's."""
    return math.prod(shape) * np.dtype(DTYPES.get(dtype, dtype)).itemsize


def narrowed(values: Any, dtype: str) -> Array:
    """The bits of `values` in one of `DTYPES`."""
    array = np.asarray(values)
    if dtype == "bfloat16":
        return _bfloat16_bits(_float32_to_round(array))
    return _FLOAT8[dtype].encode(array.astype(np.float64))


def widened(bits: Array, dtype: str) -> Array:
    """The float32 values of `bits`, which `narrowed` gave."""
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    values: Array = _FLOAT8[dtype].values[bits]
    return values


def _float32_to_round(array: Array) -> Array:
    """The array in float32, to be rounded once more: what lies between two numbers is the odd one.

    So it stays on its side of the middle of two narrower floats (Boldo and Melquiond, "When double
    rounding is odd", 2005). As in kernels, float64 is what integers of 64 bits come by.
    """
    if array.dtype == np.float32 or array.dtype.itemsize < 4:
        return array.astype(np.float32, copy=False)
    wide = array.astype(np.float64)
    with np.errstate(over="ignore"):
        near = wide.astype(np.float32)
    lost = (near != wide) & ~np.isnan(wide)
    bits = near.view(np.uint32) - (lost & (np.abs(near) > np.abs(wide)))
    odd: Array = (bits | lost).view(np.float32)
    return odd


def _bfloat16_bits(values: Array) -> Array:
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    kept: Array = np.empty(values.shape, np.uint16)
    flat = kept.reshape(-1)
    for start in range(0, bits.size, CHUNK):
        part = bits[start : start + CHUNK]
        rounded = (part + (0x7FFF + ((part >> 16) & 1)).astype(np.uint32)) >> 16
        quiet = (part >> 16) | 0x40  # adding to a NaN's bits could carry it over to infinity
        flat[start : start + CHUNK] = np.where(np.isnan(part.view(np.float32)), quiet, rounded)
    return kept


@dataclass(frozen=True, eq=False)
class _Float8:
    """A format of 8 bits.

    Attributes:
        values: The float32 value of each of the 256 codes.
        starts: The least magnitude that becomes code 1, 2, ... in float64.
        nan: The code of NaN, without its sign.
    """

    values: Array
    starts: Array
    nan: int

    def encode(self, values: Array) -> Array:
        codes = np.searchsorted(self.starts, np.abs(values), side="right")
        codes = np.where(np.isnan(values), self.nan, codes)
        signed: Array = (codes | np.signbit(values) * 0x80).astype(np.uint8)
        return signed


def _float8(mantissa: int, bias: int, largest: int, nan: int) -> _Float8:
    """The format with so many bits of mantissa, whose `largest` code is that of a finite number."""
    codes = np.arange(largest + 2)
    exponents, fractions = codes >> mantissa, codes % 2**mantissa
    # Code 0 of the exponent has that of 1, and no leading one.
    ones = (exponents > 0) * 2**mantissa + fractions
    magnitudes = np.ldexp(ones.astype(np.float64), np.maximum(exponents, 1) - bias - mantissa)
    middles = (magnitudes[:-1] + magnitudes[1:]) / 2
    # The middle itself belongs to the even code, which is the lower or the upper one.
    starts = np.where(codes[:-1] % 2 == 0, np.nextafter(middles, np.inf), middles)
    halves = np.full(2**7, np.nan, np.float32)
    halves[: largest + 1] = magnitudes[:-1]
    if nan > largest + 1:
        halves[largest + 1] = np.inf
    return _Float8(np.concatenate([halves, -halves]), starts, nan)


_FLOAT8 = {
    "float8_e4m3fn": _float8(mantissa=3, bias=7, largest=0x7E, nan=0x7F),
    "float8_e5m2": _float8(mantissa=2, bias=15, largest=0x7B, nan=0x7E),
}
