"""Products of a few rows by a transposed b, whose lines lie along k as those of a do.

A lane adds up every so many products of a sum; where a tile of rows by columns has as many sums as
a vector has lanes, all of them are brought together at once. The lanes of a sum are added in the
same order in every tile, so that a row's bits do not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.sizes import Size

TALL = 4
"""Rows of a tile at most: as many columns are as many loads for each step."""


@dataclass(frozen=True)
class Lines:
    """Lines of `k` elements from `left` on, and `n` of them from `right` on."""

    left: Any
    right: Any
    dtype: str
    k: Size
    n: Size
    lanes: int

    def multiply(
        self, m: int, columns: tuple[Size, Size], row: Callable[[int], Callable[..., None]]
    ) -> None:
        """All of `m` rows by the columns from the first to that before the second.

        `row(r)` gives what writes lanes of row r: `(column, mask, values)`.
        """
        top = 0
        while top < m:
            tall = min(TALL, self.lanes, 1 << (m - top).bit_length() - 1)
            self._tile(range(top, top + tall), columns, row)
            top += tall

    def _tile(
        self,
        some: range,
        columns: tuple[Size, Size],
        row: Callable[[int], Callable[..., None]],
    ) -> None:
        wide = self.lanes // len(some)
        for column in emit.loop(*columns, wide):
            sums = crosslane.sums(self._sums(some, column, wide))
            mask = host.first_lanes(sizes.least(self.n - column, wide), self.lanes)
            for number, r in enumerate(some):
                own = [number * wide + i % wide for i in range(self.lanes)]
                row(r)(column, mask, crosslane.shuffle(sums, sums, own))

    def _sums(self, some: range, column: Size, wide: int) -> list[Any]:
        """The products of some rows and `wide` columns, lane by lane, row after row."""
        zero = emit.constant(emit.register_type(self.dtype), 0, self.lanes)
        whole = sizes.floordiv(self.k, self.lanes) * self.lanes
        # Columns that are not there are the last one again.
        starts = [sizes.least(column + i, self.n - 1) * self.k for i in range(wide)]

        def add(at: Size, sums: Sequence[Any], mask: Any) -> list[Any]:
            a, b = (
                [memory.load(side, start + at, self.dtype, self.lanes, mask) for start in lines]
                for side, lines in ((self.left, [r * self.k for r in some]), (self.right, starts))
            )
            pairs = [(x, y) for x in a for y in b]
            return [emit.fma(x, y, total) for (x, y), total in zip(pairs, sums, strict=True)]

        begin = [zero] * (len(some) * wide)
        found = emit.carry(0, whole, self.lanes, begin, lambda at, *sums: add(at, sums, None))
        if isinstance(self.k, int) and self.k % self.lanes == 0:
            return found
        return add(whole, found, host.first_lanes(self.k - whole, self.lanes))
