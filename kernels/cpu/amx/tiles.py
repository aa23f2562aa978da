"""The instructions of Intel AMX, on tiles of 16 rows by 64 bytes.

What is multiplied may have less along k: fewer bytes of a row on the left, as many fewer words
below each other on the right. A function configures its tiles once, so that a register has one
shape, and other shapes have other registers. LLVM's intrinsics take each tile's shape, and it
allocates registers and configures them.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

MULTIPLY = {"bfloat16": "tdpbf16ps", "uint8": "tdpbusd", "int8": "tdpbssd"}
"""What multiplies a tile of a by one of b and adds float32 or int32, by the dtype of a: bytes of b
have signs."""

TILE_ROWS, TILE_ROW = 16, 64
"""Rows of a tile, and the bytes of one."""

TILE = TILE_ROWS * TILE_ROW
"""Bytes of a tile."""

WORDS = TILE_ROWS**2
"""Words of 32 bits of a tile."""

PAIR = 2 * TILE_ROWS
"""Rows of a pair of tiles, one below the other."""


def zero(rows: int = TILE_ROWS, row: int = TILE_ROW) -> Any:
    """A tile of zeros: `rows` of `row` bytes."""
    return _intrinsic("tilezero", rows, row)


def load(
    base: Any, stride: Size, streamed: bool = False, rows: int = TILE_ROWS, row: int = TILE_ROW
) -> Any:
    """The tile whose `rows`, of `row` bytes, are `stride` bytes apart, from `base` on.

    One that is `streamed` leaves what is in the first cache there, where it does not go itself.
    """
    name = "tileloaddt164" if streamed else "tileloadd64"
    return _intrinsic(name, rows, row, base, emit.as_index(stride))


def store(tile: Any, base: Any, stride: int, rows: int = TILE_ROWS, row: int = TILE_ROW) -> None:
    """Writes a tile where `load` would read it."""
    _intrinsic("tilestored64", rows, row, base, emit.index(stride), tile, result=None)


def multiply(
    dtype: str,
    total: Any,
    left: Any,
    right: Any,
    row: int = TILE_ROW,
    rows: int = TILE_ROWS,
    across: int = TILE_ROW,
) -> Any:
    """`total`, of 32 bits, with the products added of `left`, of `dtype`, by `right`.

    The left tile has `rows` of so many bytes in a `row`, the right one `across` bytes in a row: for
    each column the pair or the four that follow each other along k.
    """
    return _intrinsic(MULTIPLY[dtype], rows, across, row, total, left, right)


def _intrinsic(name: str, *arguments: Any, result: str | None = "!llvm.x86_amx") -> Any:
    """A call of an AMX intrinsic; a Python number is an extent of a shape."""
    extent = emit.integer(16)
    values = [emit.constant(extent, a) if isinstance(a, int) else a for a in arguments]
    kind = ir.Type.parse(result) if result else None
    return llvm.call_intrinsic(kind, f"llvm.x86.{name}.internal", values, [], [])
