"""Rows by lines of a transposed b, which lie along k as those of a do.

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
"""Rows of a tile at most, if there are more columns: as many are as many loads for each step."""


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
        self, m: Size, columns: tuple[Size, Size], row: Callable[[Size], Callable[..., None]]
    ) -> None:
        """All of `m` rows by the columns from the first to that before the second.

        `row(r)` gives what writes lanes of row r: `(column, mask, values)`.
        """
        few = self.lanes // sizes.power_of_two(self.n) if isinstance(self.n, int) else 1
        tall = min(max(TALL, few), self.lanes)
        if isinstance(m, int):
            tall = max(1, min(tall, m))
        wide = 1 << (self.lanes // tall).bit_length() - 1
        whole = sizes.floordiv(m, tall) * tall
        for column in emit.loop(*columns, wide):
            for top in emit.loop(0, whole, tall):
                self._tile(top, tall, column, wide, row)
            if isinstance(m, int):
                if m % tall:
                    self._tile(whole, m % tall, column, wide, row)
                continue
            for rest in range(1, tall):
                with emit.when(emit.compare("equal", m - whole, rest)):
                    self._tile(whole, rest, column, wide, row)

    def _tile(
        self,
        top: Size,
        tall: int,
        column: Size,
        wide: int,
        row: Callable[[Size], Callable[..., None]],
    ) -> None:
        sums = self._sums(top, tall, column, wide)
        total = crosslane.sums([sums[i % len(sums)] for i in range(self.lanes)])
        mask = host.first_lanes(sizes.least(self.n - column, wide), self.lanes)
        for r in range(tall):
            own = [r * wide + i % wide for i in range(self.lanes)]
            row(top + r)(column, mask, crosslane.shuffle(total, total, own))

    def _sums(self, top: Size, tall: int, column: Size, wide: int) -> list[Any]:
        """The products of some rows and `wide` columns, lane by lane, row after row."""
        zero = emit.constant(emit.register_type(self.dtype), 0, self.lanes)
        whole = sizes.floordiv(self.k, self.lanes) * self.lanes
        # Columns that are not there are the last one again.
        starts = [sizes.least(column + i, self.n - 1) * self.k for i in range(wide)]
        left = memory.at(self.left, top * self.k, self.dtype)

        def add(at: Size, sums: Sequence[Any], mask: Any) -> list[Any]:
            a, b = (
                [memory.load(side, start + at, self.dtype, self.lanes, mask) for start in lines]
                for side, lines in ((left, [r * self.k for r in range(tall)]), (self.right, starts))
            )
            pairs = [(x, y) for x in a for y in b]
            return [emit.fma(x, y, total) for (x, y), total in zip(pairs, sums, strict=True)]

        begin = [zero] * (tall * wide)
        found = emit.carry(0, whole, self.lanes, begin, lambda at, *sums: add(at, sums, None))
        if isinstance(self.k, int) and self.k % self.lanes == 0:
            return found
        return add(whole, found, host.first_lanes(self.k - whole, self.lanes))
