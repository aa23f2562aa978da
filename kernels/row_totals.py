"""What rows of a CPU kernel are reduced to: vectors of accumulators, and at last scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit, host, sizes
from heddle.kernels.rows import At
from heddle.kernels.sizes import Size

VectorsAt = Callable[[Any, Any], Sequence[Any]]
"""Values at a column, under a mask or None."""

CHAINS = 4
"""Accumulators of a row's reduction, so that it is not bound by the latency of one addition."""


@dataclass(frozen=True)
class Totals:
    """What a row is reduced to: the vectors `neutral`, combined with those at its columns.

    Each has `CHAINS` accumulators, which take the vectors of a block in turn. The order depends on
    the length and the machine alone.
    """

    neutral: tuple[Any, ...]
    combine: Callable[[Any, Any], Any]

    @property
    def lanes(self) -> int:
        """Columns of a vector."""
        return emit.lanes_of(self.neutral[0])

    @property
    def block(self) -> int:
        """Columns of a block."""
        return CHAINS * self.lanes

    @property
    def start(self) -> list[Any]:
        """The accumulators before the row, those of one vector after another."""
        return [neutral for neutral in self.neutral for _ in range(CHAINS)]

    def blocks(
        self, start: Any, stop: Any, at: VectorsAt, chains: Sequence[Any], whole: bool = False
    ) -> list[Any]:
        """The accumulators after the whole blocks from `start` to `stop`.

        The vectors of `at` are `whole` blocks, or else those of a chain.
        """

        def several(i: Any, *chains: Any) -> list[Any]:
            if whole:
                values = [part for each in at(i, None) for part in crosslane.parts(each, CHAINS)]
            else:
                columns = [at(i + chain * self.lanes, None) for chain in range(CHAINS)]
                values = [value for vectors in zip(*columns, strict=True) for value in vectors]
            return [self.combine(*pair) for pair in zip(chains, values, strict=True)]

        return emit.carry(start, stop, self.block, chains, several)

    def together(self, chains: Sequence[Any]) -> list[Any]:
        """The vectors that the accumulators of each make."""
        totals = list(chains)
        while len(totals) > len(self.neutral):
            pairs = zip(totals[::2], totals[1::2], strict=True)
            totals = [self.combine(a, b) for a, b in pairs]
        return totals

    def finished(self, length: Size, at: VectorsAt, chains: Sequence[Any]) -> list[Any]:
        """The totals as scalars, after the blocks of the row and what is left of it."""
        totals = self.together(chains)

        def one(i: Any, *totals: Any) -> list[Any]:
            return [self.combine(*pair) for pair in zip(totals, at(i, None), strict=True)]

        whole = length - sizes.mod(length, self.lanes)
        totals = emit.carry(length - sizes.mod(length, self.block), whole, self.lanes, totals, one)
        if not (isinstance(length, int) and length == whole):
            whole = emit.as_index(whole)
            mask = host.first_lanes(length - whole, self.lanes)
            last = zip(totals, at(whole, mask), self.neutral, strict=True)
            totals = [
                self.combine(total, emit.select(mask, value, neutral))
                for total, value, neutral in last
            ]
        return [crosslane.across(total, self.combine) for total in totals]


def reduce(
    length: Size,
    neutral: Any,
    at: At,
    combine: Callable[[Any, Any], Any],
) -> Any:
    """Combines `at(column, mask)` over a row to a scalar; `neutral` is a vector of its lanes."""
    return reduce_each(length, [neutral], lambda column, mask: [at(column, mask)], combine)[0]


def reduce_each(
    length: Size,
    neutral: Sequence[Any],
    at: VectorsAt,
    combine: Callable[[Any, Any], Any],
) -> list[Any]:
    """As `reduce`, of as many rows as `at(column, mask)` gives vectors, each by itself."""
    totals = Totals(tuple(neutral), combine)
    blocks = length - sizes.mod(length, totals.block)
    chains = totals.blocks(0, blocks, at, totals.start)
    return totals.finished(length, at, chains)


def add(a: Any, b: Any) -> Any:
    """`a + b`, as something to reduce with."""
    return a + b
