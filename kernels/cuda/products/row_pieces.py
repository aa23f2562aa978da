"""Which rows of which group a piece has, of rows that are sorted by group."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame, _scan
from heddle.kernels.cuda.flash import online
from heddle.kernels.emit import compare, select
from heddle.kernels.row_groups import RowGroups


def find(frame: _frame.Frame, piece: Any, height: int) -> tuple[Any, Any, Any]:
    """The group of a piece, -1 for none, its first row and the group's end; not there: both 0.

    A warp looks at 32 spans at a time, and adds up how many pieces they have.
    """
    groups = RowGroups(frame, online.report)
    lane = _block.thread() % _block.WARP
    zero = emit.index(0)

    def look(first: Any, before: Any, *found: Any) -> list[Any]:
        number = first + lane

        def span() -> list[Any]:
            return list(groups.span(number))

        word = emit.integer(64)
        inside = compare("less", number, groups.count)
        start, end = emit.either(inside, [word, word], span, lambda: [zero, zero])
        count = sizes.ceildiv(end - start, height)
        upto = before + _scan.in_warp(count)
        here = piece - (upto - count)
        mine = compare("greater_equal", here, 0) & compare("less", here, count)
        values = (groups.group(number) + 1, start + here * height, end)
        chosen = [
            _block.across(select(mine, value, 0), emit.maximum, _block.WARP) for value in values
        ]
        last = _block.shuffle_from(upto, _block.WARP - 1)
        return [last, *(emit.maximum(a, b) for a, b in zip(found, chosen, strict=True))]

    _, group, row, end = emit.carry(0, groups.count, _block.WARP, [zero] * 4, look)
    return group - 1, row, end
