"""Products with a right side in panels of 32 columns, task by task and tile by tile.

A task is 12 rows by one panel, done in register tiles of two vectors by 12 rows (AVX-512) or 6:
each step along k takes two vectors of b and spreads one element of each row of a. A tile goes
through the stack once, so that the epilogue's code is there once and its data still in L1.
Tasks run down the rows of one panel, which thus stays in cache, within bands of 192 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu._tile import ROWS, rows_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

PANEL = 32
"""Columns of a panel of packed b."""

BAND = 16
"""Tasks down the rows before the next panel."""

LINE = 64
"""Bytes of a cache line."""

AHEAD = 12 << 10
"""Bytes between what is read of b and what is asked for: memory answers meanwhile."""


@dataclass(frozen=True)
class Tile:
    """`height` rows of a by two vectors of a panel.

    `row` is the first of the rows among those of all batches, `panel` the panel's number among
    those of all batches, `part` the first column in it.
    """

    row: Size
    height: int
    panel: Size
    part: int


def launch(spec: Spec) -> Launch:
    """One task for each 12 rows of each panel of each batch."""
    batch, m, k = extents(spec)
    panels = fold("ceildiv", spec.result.shape[-1], PANEL)
    tasks = product((batch, fold("ceildiv", m, ROWS), panels))
    each = fold("add", fold("mul", k, 2), bodies.work(spec.epilogue))
    operations = product((batch, m, spec.result.shape[-1], each))
    # A few rows are bound by reading b.
    read = product((*spec.operands[1].shape, emit.ITEM_SIZE[spec.operands[1].dtype]))
    return Launch((tasks, 1, 1), fold("max", operations, read))


def emit_tiles(frame: host.Frame, lanes: int, multiply: Callable[[Tile, Any], None]) -> None:
    """Emits the loop over tasks, then over their register tiles.

    `multiply` emits one and leaves its sums on the stack, in row-major order from the pointer on
    that it is given.
    """
    spec, machine = frame.spec, frame.machine
    dtype = spec.operands[0].dtype
    tile_rows = rows_of(machine)
    batch, m, _ = (frame.size(extent) for extent in extents(spec))
    n = frame.size(spec.result.shape[-1])
    panels, blocks = sizes.ceildiv(n, PANEL), sizes.ceildiv(m, ROWS)
    scratch = host.byte_buffer(tile_rows * 2 * machine.vector_bytes)
    finish = rows.Finish(frame, lanes)

    for task in emit.loop(frame.first, frame.last):
        item, in_batch = sizes.split(task, (batch, panels * blocks))
        block, panel = _place(in_batch, blocks, panels)
        row = block * ROWS
        packed = panel if len(spec.operands[1].shape) == 3 else item * panels + panel
        for part in range(0, PANEL, 2 * lanes):
            for top in range(0, ROWS, tile_rows):
                left = m - row - top
                first = item * m + row + top
                for height in range(tile_rows, 0, -1):
                    relation = "greater_equal" if height == tile_rows else "equal"
                    with emit.when(emit.compare(relation, left, height)):
                        multiply(Tile(first, height, packed, part), scratch)
                for r in emit.loop(0, sizes.least(left, tile_rows)):
                    at = finish.row(first + r)
                    for half in range(2):
                        column = panel * PANEL + (part + half * lanes)
                        place = r * (2 * lanes) + half * lanes
                        value = memory.load(scratch, place, dtype, lanes)
                        at(column, finish.mask(column, n, PANEL), value)


def left_reader(frame: host.Frame, tile: Tile, k: Size, lanes: int) -> Callable[[int, Any], Any]:
    """`left_at(r, step)`: element `step` of row r of the tile's part of a, in every lane."""
    a, dtype = frame.inputs[0], frame.spec.operands[0].dtype
    start = tile.row * k

    def left_at(r: int, step: Any) -> Any:
        return emit.splat(memory.load(a, start + k * r + step, dtype), lanes)

    return left_at


def ask_ahead(frame: host.Frame, tile: Tile, offset: Size, dtype: str, count: int) -> None:
    """Prefetches for the `count` elements of b from `offset` on, once for all parts of a panel."""
    if tile.part == 0:
        size = emit.ITEM_SIZE[dtype]
        for line in range(0, count, max(1, LINE // size)):
            memory.prefetch(frame.inputs[1], offset + (line + AHEAD // size), dtype)


def extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Batch, m and k; a b without leading dims makes all of a's rows one m."""
    *leading, m, k = spec.operands[0].shape
    if len(spec.operands[1].shape) == 3:
        return 1, product((*leading, m)), k
    return product(tuple(leading)), m, k


def _place(task: Size, blocks: Size, panels: Size) -> tuple[Size, Size]:
    """The row block and the panel of a task: down a band of blocks, then the next panel."""
    band, within = sizes.floordiv(task, panels * BAND), sizes.mod(task, panels * BAND)
    height = sizes.least(emit.index(BAND), blocks - band * BAND)
    panel, block = within // height, within % height
    return band * BAND + block, panel
