"""The operands of a kit on a machine without the compiler: their bits, and how they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

UNNAMED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""What NumPy lacks: arrays hold the bits."""

DRAWN = ("", "normal", "positive", "index")
"""Operands that are drawn where they are used; others come with the kit."""


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


def drawn(case: dict[str, Any], number: int, folder: Path) -> list[Any]:
    """One set of operands: normal floats, small integers, indices inside their table.

    Offsets, lengths and the like are those of the kit.
    """
    rng = np.random.default_rng(number)
    file = folder / f"{case['path']}.npz"
    held = np.load(file) if file.exists() else {}
    arrays = []
    for i, operand in enumerate(case["operands"]):
        shape, dtype = operand["shape"], operand["dtype"]
        if operand["values"] not in DRAWN:
            arrays.append(held[f"in{i}"])
        elif operand["values"] == "index":
            arrays.append(rng.integers(0, next(iter(case["below"].values())), shape, np.int64))
        elif "float" not in dtype:
            arrays.append(rng.integers(0 if "u" in dtype else -8, 8, shape).astype(dtype))
        else:
            values = rng.standard_normal(shape, np.float32)
            if operand["values"] == "positive":
                values = np.abs(values) + np.float32(1e-3)
            arrays.append(bits(values, dtype))
    return arrays
