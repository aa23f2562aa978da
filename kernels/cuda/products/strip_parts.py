"""Strips that are cut along k where there are too few of them to keep a GPU busy.

Each part is a block's; the last one of a strip adds them up, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame, _handover
from heddle.kernels.cuda.products import by_rows, mma, outputs, staging
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, fold

_BYTES = 4  # Of a sum.
_LANES = 4  # Sums that a thread writes at once.


@dataclass(frozen=True)
class Part:
    """Part `number` of `count` of strip number `strip`."""

    number: Size
    count: int
    strip: Size


def count(strips: Expr, steps: Expr, stages: int) -> int:
    """Parts of each strip: where they are known to leave multiprocessors idle, more than one.

    A block reads a ring of stages in the time that memory takes to answer. A part has steps for
    one ring at least, and the rings that a block is spared are two at least, as bringing parts
    together takes two answers, too: to a fence with an atomic, and to the loads behind it.
    """
    if not isinstance(strips, int) or not isinstance(steps, int):
        return 1
    parts = max(1, min(_handover.PROCESSORS // max(strips, 1), steps // stages))
    return parts if steps - steps // parts >= 2 * stages else 1


class Strip(Protocol):
    """How a strip is made."""

    @property
    def rows(self) -> int:
        """Rows of the product in it."""

    @property
    def columns(self) -> int:
        """Columns of the product in it."""

    @property
    def stages(self) -> int:
        """Steps along k that are on their way at once."""


Body = Callable[[Any, _frame.Frame, mma.DynamicShared, Size, Part | None], None]


def way(
    most: int | None,
    strip: Strip,
    strips: Expr,
    steps: Expr,
    shared: int,
    body: Body,
    parts: int,
) -> by_rows.Way:
    """The way to compute a product by so many strips, each of so many steps along k, in `parts`.

    `body` emits one, given its number, or a part of it, and the wait for the kernels in front.
    """
    cut = strips if parts > 1 and isinstance(strips, int) else 0

    workspace = cut * parts * strip.rows * strip.columns * _BYTES
    emit_block = partial(_emit_block, strip, cut, parts, body)
    blocks = fold("mul", strips, parts)
    return by_rows.Way(most, blocks, shared, emit_block, workspace, cut)


def _emit_block(
    strip: Strip,
    cut: int,
    parts: int,
    body: Body,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    block: Size,
) -> None:
    if cut:
        number = block % cut
        body(strip, frame, shared, number, Part(block // cut, parts, number))
    else:
        body(strip, frame, shared, block, None)


def steps(every: Size, part: Part | None) -> tuple[Size, Size]:
    """The first of `every` step along k that a part has, and the one after its last."""
    if part is None:
        return 0, every
    first, last = (number * every // part.count for number in (part.number, part.number + 1))
    return first, last


def write(
    frame: _frame.Frame, where: outputs.Place, sums: outputs.SlicedSums, part: Part | None
) -> None:
    """Writes the sums of a strip; where it is cut, only the last of its parts does."""
    tile = sums.rows, sums.columns
    if part is None:
        outputs.write(frame, where, tile, sums.total)
        return
    size = sums.rows * sums.columns

    def place(number: Size, row: Size, column: Size) -> Size:
        return (part.strip * part.count + number) * size + row * sums.columns + column

    across = sums.columns // _LANES
    rows = emit.minimum(emit.as_index(where.m) - where.row, sums.rows)
    for index in emit.loop(_block.thread(), rows * across, staging.THREADS):
        row, column = index // across, index % across * _LANES
        value, at = sums.total(row, column, _LANES), place(part.number, row, column)
        memory.store(value, frame.workspace, at, sums.dtype, alignment=_BYTES * _LANES)

    def total(row: Size, column: Size, lanes: int) -> Any:
        def load(number: Size) -> Sequence[Any]:
            return [_frame.load(frame.workspace, place(number, row, column), sums.dtype, lanes)]

        def add(is_part: Any, found: Sequence[Any], so_far: Any) -> Sequence[Any]:
            return [emit.select(is_part, so_far + found[0], so_far)]

        zero = emit.constant(emit.register_type(sums.dtype), 0, lanes)
        return _handover.in_order(part.count, [zero], load, add)[0]

    with emit.when(_handover.is_last(frame.counters, part.strip, part.count)):
        outputs.write(frame, where, tile, total)
