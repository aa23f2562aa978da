"""What a block attends to: the rows of a sequence by the heads of a group, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import row_spans, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.cuda.flash.split import Split
from heddle.kernels.sizes import Size

Bias = Callable[[Size, Size, Size, Any], Any]
"""The score of a query, a head of the group and a key, as a mask changes it."""


@dataclass(frozen=True)
class Task:
    """The queries of a sequence by the heads of one group, and their keys.

    `query` is where the row of a query and a head of the group begins in the operand, `result`
    where it begins in the result, as in the operand if it is None; `key` where the row of a key
    begins; `sink` is the scaled score of the sink of a head of the group.
    """

    group: int
    queries: Size
    length: Size
    query: Callable[[Size, Size], Size]
    key: Callable[[Size], Size]
    bias: Bias | None = None
    added: bool = False
    split: Split | None = None
    sink: Callable[[Size], Any] | None = None
    result: Callable[[Size, Size], Size] | None = None

    @property
    def rows(self) -> Size:
        """Of all queries of the group."""
        return self.queries * self.group

    def place(self, row: Size) -> Size:
        """Where a row begins in the operand."""
        return self.query(*self._member(row))

    def target(self, row: Size) -> Size:
        """Where a row begins in the result."""
        return (self.result or self.query)(*self._member(row))

    def _member(self, row: Size) -> tuple[Size, Size]:
        """The query of a row, and the head of the group."""
        return sizes.floordiv(row, self.group), sizes.mod(row, self.group)

    def sinks(self, rows: Sequence[Size]) -> list[Any]:
        """The scores of the sinks of rows, None where heads have none."""
        if self.sink is None:
            return [None] * len(rows)
        return [self.sink(sizes.mod(row, self.group)) for row in rows]


def sinks_of(frame: _frame.Frame) -> _frame.Reader | None:
    """The sinks of all heads of ragged rows, None where they have none."""
    number = row_spans.sinks_of(frame.spec)
    return None if number is None else frame.reader(number)
