"""The operands of a kit, drawn from seeds where it is made and where it runs, and their bits."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

UNNAMED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""What NumPy lacks: arrays hold the bits."""

DRAWN = ("", "normal", "positive", "index")
"""Operands that are drawn where they are used; others come with the kit."""


MOST_DRAWN = 2**22 + 15
"""Numbers that are drawn for one operand; a larger one repeats them, as drawing takes a second for
each 10^8. The number is odd: rows of a matrix do not begin with the same ones."""


ALIKE = 3
"""The first floats of each operand are 1: random ones are never equal, as comparisons want them."""


def buffer(array: Any, dtype: str) -> Any:
    """`array` as a Buffer of the host."""
    from heddle.runtime import Buffer

    named = dtype if dtype in UNNAMED else None
    return Buffer.from_numpy(np.ascontiguousarray(array), dtype=named)


def floats(array: Any, dtype: str) -> Any:
    """The values of an array; what NumPy lacks as float32."""
    if dtype == "bfloat16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return of_codes(dtype)[array.view(np.uint8)] if dtype in UNNAMED else array


def bits(values: Any, dtype: str) -> Any:
    """Float32 values as `dtype`; those of 8 bits rounded to one of the two nearest."""
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    if dtype not in UNNAMED:
        return values.astype(dtype)
    table = of_codes(dtype)
    codes = np.flatnonzero(np.isfinite(table))
    order = codes[np.argsort(table[codes], kind="stable")].astype(np.uint8)
    return order[np.searchsorted(table[order], values).clip(0, len(order) - 1)]


def of_codes(dtype: str) -> Any:
    """The 256 values of a float of 8 bits ("OCP 8-bit Floating Point Specification", 1.0)."""
    codes = np.arange(256, dtype=np.uint16)
    if dtype == "float8_e5m2":  # The upper half of float16.
        return (codes << 8).view(np.float16).astype(np.float32)
    exponent, fraction = codes >> 3 & 15, codes & 7
    normal = np.ldexp(8.0 + fraction, exponent.astype(int) - 10)
    values = np.where(exponent == 0, np.ldexp(fraction.astype(float), -9), normal)
    values[codes & 127 == 127] = np.nan
    return np.where(codes < 128, values, -values).astype(np.float32)


def drawn(case: dict[str, Any], number: int, held: Mapping[str, Any]) -> list[Any]:
    """Set `number` of a case's operands: normal floats, small integers, indices of a table.

    What says which rows there are (offsets, lengths, ...) is `held` by the kit.
    """
    return [
        _drawn((number, i), operand) if operand["values"] in DRAWN else held[f"in{i}"]
        for i, operand in enumerate(case["operands"])
    ]


def _drawn(seed: tuple[int, int], operand: dict[str, Any]) -> Any:
    """Of random bits, which NumPy does not change from version to version, as it may the rest."""
    shape, dtype, values = operand["shape"], operand["dtype"], operand["values"]
    source = np.random.PCG64(seed)
    count = math.prod(shape)
    if values == "index":
        return _below(source, count, operand["below"]).reshape(shape).astype(dtype)
    if "float" not in dtype:
        least = 1 if values == "positive" else 0 if dtype[0] in "ub" else -8
        span = (2 if dtype == "bool" else 8) - least
        integers = _below(source, min(count, MOST_DRAWN), span) + least
        return np.resize(integers.astype(dtype), shape)
    found = _nearly_normal(source, min(count, MOST_DRAWN))
    found[:ALIKE] = 1
    if dtype != "float64":
        found = found.astype(np.float32)
    if values == "positive":
        found = np.abs(found) + found.dtype.type(1e-3)
    return np.resize(bits(found, dtype), shape)


def _below(source: Any, count: int, stop: int) -> Any:
    """Integers from 0 on, below `stop`."""
    return (source.random_raw(count) % np.uint64(stop)).astype(np.int64)


def _nearly_normal(source: Any, count: int) -> Any:
    """Floats of double precision, from sums alone, which all machines round alike."""
    halves = source.random_raw(count).view(np.uint16).reshape(count, 4)
    fractions = (source.random_raw(count) >> np.uint64(11)) * 2.0**-53
    return (halves.sum(axis=1, dtype=np.int64) - 2 * 0xFFFF + fractions) * 2.0**-15


def fingerprint(arrays: Sequence[Any]) -> int:
    """A checksum of operands: those of the place where a kit was made are those where it runs."""
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1), found)
    return found


def wide(array: Any, dtype: str) -> Any:
    """The values of an operand as a reference takes them: floats in double precision."""
    return floats(array, dtype).astype(np.float64) if "float" in dtype else array


REFERENCES: dict[str, Callable[..., Any]] = {"matmul": np.matmul}
"""What NumPy computes where a kit runs, by the case's name. Other results are held by the kit."""
