"""The way out of a product on tensor cores: from sums in shared memory to the outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _frame, _staging
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Place:
    """Where a block's tile is: the product's number in the batch, its first row and column.

    `m`, `n` and `k` are the sizes of the product.
    """

    number: Size
    row: Size
    column: Size
    m: Size
    n: Size
    k: Size


def write(
    frame: _frame.Frame,
    where: Place,
    tile: tuple[int, int],
    sums: Callable[[Size, Size, int], Any],
) -> None:
    """Writes a tile of so many rows and columns through the epilogue; 256 threads call.

    `sums(row, column, lanes)` are neighbouring ones of the tile. Neighbouring threads write next to
    each other.
    """
    finish = frame.writer()
    rows, columns = tile

    def body(lanes: int) -> None:
        across = columns // lanes
        for index in emit.loop(_block.thread(), rows * across, _staging.THREADS):
            row, column = index // across, index % across * lanes
            inside = emit.compare("less", where.row + row, where.m)
            inside = inside & emit.compare("less", where.column + column, where.n)
            with emit.when(inside):
                value = convert.rounded(sums(row, column, lanes), frame.spec.result.dtype)
                line = where.number * where.m + where.row + row
                finish(value, line * where.n + where.column + column)

    _frame.in_vectors(frame, [finish.inputs], [where.n], body, most=8)
