"""The numbers of the artifact's format: sections and their record sizes, and what has a number.

`docs/artifact.md` says what they mean; the reader has its own (`runtime/include/heddle/records.h`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

MAGIC = b"\x89HDL\r\n\x1a\n"
VERSION = 3
ALIGNMENT = 64

SECTIONS = (
    ("strings", 1),
    ("model", 64),
    ("provenance", 16),
    ("symbols", 24),
    ("sizes", 16),
    ("dims", 4),
    ("tensors", 24),
    ("weights", 72),
    ("constants", 16),
    ("programs", 80),
    ("kernels", 48),
    ("launches", 32),
    ("codes", 64),
    ("buffers", 16),
    ("instructions", 56),
    ("tensor maps", 48),
    ("arguments", 4),
    ("code", 1),
    ("constant data", 1),
    ("weight data", 1),
)
"""Kinds from 1 on, with the bytes of a record."""

CALCULATE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": operator.mod,
    "min": min,
    "max": max,
}
"""The operations of sizes, whose numbers follow those of a number and a symbol."""


def _numbered(names: str, first: int = 1) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


DTYPES = _numbered(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "float8_e4m3fn float8_e5m2"
)
OPS = _numbered(" ".join(CALCULATE), 3)
TARGETS = _numbered("cpu cuda")
FORMATS = _numbered("image cubin ptx")
BUFFERS = _numbered("input output weight constant state arena status counters")
HAS_SHA256, EMBEDDED, SETTLED = 1, 2, 4
DISPATCH, COPY = 1, 2
MOST_AXES = 5  # Of a tensor map.
