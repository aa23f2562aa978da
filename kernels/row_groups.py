"""Rows that are sorted by group, for both targets: the pieces that a group's rows are cut into.

Pieces have `height` rows, the last one of a group fewer. How many there are depends on the offsets;
there are as many numbers for them as any offsets need, so that no launch depends on their values.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, emit, memory, sizes
from heddle.kernels.emit import compare, select
from heddle.kernels.row_spans import FALLING, Report
from heddle.kernels.spec import Expr, Spec, fold


def offsets(spec: Spec) -> int:
    """Which operand they are: the last one, but for minimums of weights."""
    return 3 if spec.op == "quantized_grouped_matmul" else len(spec.operands) - 1


def most(spec: Spec, height: int) -> Expr:
    """As many pieces as the rows of operand 0 can have, whatever the offsets are."""
    rows, (count,) = spec.operands[0].shape[0], spec.operands[offsets(spec)].shape
    return fold("min", rows, fold("add", fold("floordiv", rows, height), fold("add", count, 1)))


def unsupported(spec: Spec) -> str | None:
    """Why not, unless offsets are integers."""
    dtype = spec.operands[offsets(spec)].dtype
    if dtype not in ("int32", "int64"):
        return f"offsets: wanted int32 or int64, got {dtype}"
    return None


class RowGroups:
    """The rows of operand 0 by the operand of `offsets`; no prologue is before them.

    Rows before the first group and behind the last one are pieces, too, of no group.
    """

    def __init__(self, frame: Any, report: Report) -> None:
        self._frame, self._report = frame, report
        number = offsets(frame.spec)
        operand = frame.spec.operands[number]
        self._offsets, self._dtype = frame.inputs[number], operand.dtype
        self._rows = emit.as_index(frame.size(frame.spec.operands[0].shape[0]))
        self._last = emit.as_index(frame.size(operand.shape[0])) - 1

    @property
    def count(self) -> Any:
        """How many spans of rows there are: the groups, and one before and one behind them."""
        return self._last + 2

    def span(self, number: Any) -> tuple[Any, Any]:
        """Where a span starts and ends; empty where its offsets are wrong, which is reported."""
        start = select(compare("equal", number, 0), 0, self._at(number - 1))
        behind = compare("greater", number, self._last)
        end = select(behind, self._rows, self._at(number))
        falls = compare("less", start, 0) | compare("less", end, start)
        wrong = falls | compare("greater", end, self._rows)
        with emit.when(wrong & (behind ^ True)):
            self._report(self._frame, FALLING, end, self._rows, start)
        return start, select(wrong, start, end)

    def _at(self, number: Any) -> Any:
        """The offset of that number, or the nearest there is."""
        number = emit.maximum(emit.minimum(number, self._last), 0)
        return convert.cast(memory.load(self._offsets, number, self._dtype), self._dtype, "int64")

    def find(self, piece: Any, height: int) -> tuple[Any, Any, Any]:
        """The group of a piece, -1 for none, its first row and how many it has: 0, if not there."""

        def look(number: Any, before: Any, group: Any, row: Any, left: Any) -> list[Any]:
            start, end = self.span(number)
            here = piece - before
            count = sizes.ceildiv(end - start, height)
            found = compare("greater_equal", here, 0) & compare("less", here, count)
            top = start + here * height
            chosen = ((number, group), (top, row), (end - top, left))
            return [before + count, *(select(found, a, b) for a, b in chosen)]

        start = [emit.index(0)] * 4
        _, span, row, left = emit.carry(0, self.count, 1, start, look)
        return self.group(span), row, emit.minimum(left, height)

    def group(self, span: Any) -> Any:
        """The group of a span, -1 for those of none."""
        return select(compare("greater", span, self._last), -1, span - 1)
