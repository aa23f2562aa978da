"""Rows in several passes, reductions and then the writing of the result, side by side.

One pass after another would leave memory idle while a row in cache is worked on. Here each pass
works a row or two behind the pass before it, all of them in turns of a few vectors, so that reads
and writes come as evenly as in a copy: while a row is written, the next one is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from heddle.kernels import emit, rows, sizes
from heddle.kernels.row_totals import CHAINS, Totals
from heddle.kernels.rows import AGAIN, At, Finish, Source
from heddle.kernels.sizes import Size

TURN = 512
"""Bytes of registers that a pass works on, in blocks of `Totals`, before the next has its turn.

Twice as many where a vector is two registers.
"""

SHORT = 512
"""Columns of a row whose root and division are not there yet when the next one is reduced."""


def rows_behind(length: Size) -> int:
    """How many rows of `length` a norm is behind its reduction."""
    return 2 if isinstance(length, int) and length <= SHORT else 1


@dataclass(frozen=True)
class Reduction:
    """One pass over a row. What is known of the row are scalars of the computing type.

    Attributes:
        totals: How vectors are put together.
        at: `(x, column, mask, *known)` gives the vectors at a column, where the operand is x.
        found: `(*totals, *known)` gives what is known from then on.
        finds: How many scalars that are.
        opening: What is known before the first pass, from the row's operand.
        source: What it reads the row from, where that is not what the result is made of.
        blocks: A source whose vectors are whole blocks, by which it reads those.
    """

    totals: Totals
    at: Callable[..., Sequence[Any]]
    found: Callable[..., Sequence[Any]]
    finds: int = 1
    opening: Callable[[At], Sequence[Any]] = lambda x_at: ()
    source: Source | None = None
    blocks: Source | None = None


@dataclass(frozen=True)
class _Pass:
    """A reduction at one row, up to column `stop`: 0 where the row is none of the task's."""

    reduction: Reduction
    x_at: At
    known: Sequence[Any]
    stop: Size
    block_at: At | None

    def at(self, column: Any, mask: Any) -> Sequence[Any]:
        return self.reduction.at(self.x_at(column, mask), column, mask, *self.known)

    def turn(self, start: Any, end: Any, chains: Sequence[Any]) -> list[Any]:
        end = sizes.least(end, self.stop)
        if self.block_at is None:
            return self.reduction.totals.blocks(start, end, self.at, chains)
        block_at = self.block_at

        def at(column: Any, mask: Any) -> Sequence[Any]:
            return self.reduction.at(block_at(column, mask), column, mask, *self.known)

        return self.reduction.totals.blocks(start, end, at, chains, whole=True)

    def found(self, length: Size, chains: Sequence[Any]) -> Sequence[Any]:
        totals = self.reduction.totals.finished(length, self.at, chains)
        return self.reduction.found(*totals, *self.known)


def emit_rows(
    source: Source,
    finish: Finish,
    reductions: Sequence[Reduction],
    value: Callable[..., Any],
    behind: int = 1,
) -> None:
    """Emits the loop over the rows that are a kernel's tasks.

    The result is `value(x, column, mask, *known)`, with what the last reduction found. Each pass is
    `behind` the one before it by so many rows, and what it keeps of one lasts as long. Whole
    vectors are `rows.in_order`, so that nothing may tell their lanes apart.
    """
    first, last = source.frame.first, source.frame.last
    length, stream = source.length, finish.stream
    block = reductions[0].totals.block
    turn = TURN // (CHAINS * source.frame.machine.vector_bytes) * block
    blocks = emit.as_index(length - sizes.mod(length, block))
    finds = [reduction.finds for reduction in reductions]

    def step(written: Any, *carried: Any) -> list[Any]:
        # Each pass is `behind` rows further than the next one, the last of which writes.
        numbers = [written + late * behind for late in range(len(reductions), -1, -1)]
        active = [
            emit.compare("greater_equal", number, first) & emit.compare("less", number, last)
            for number in numbers
        ]
        # Where a pass has no row it stays inside of the operands.
        numbers = [emit.maximum(emit.minimum(number, last - 1), first) for number in numbers]
        sources = [*(reduction.source or source for reduction in reductions), source]
        x_ats = [
            each.row(number, () if late else AGAIN)
            for late, (each, number) in enumerate(zip(sources, numbers, strict=True))
        ]
        *_, x_at = x_ats
        *known, facts = reductions[0].opening(x_ats[0]), *_cut(carried, finds)
        passes = [
            _Pass(
                reduction,
                x_ats[late],
                known[late],
                emit.select(active[late], blocks, 0),
                reduction.blocks.row(numbers[late]) if reduction.blocks else None,
            )
            for late, reduction in enumerate(reductions)
        ]
        out_at = finish.row(numbers[-1], streams=True)

        def write(column: Any, mask: Any) -> None:
            out_at(column, mask, value(x_at(column, mask), column, mask, *facts))

        lead, rest = stream.whole(0, length, numbers[-1] * length)
        # Both ends before the turns, which replace what a pass keeps of the row that is written.
        with emit.when(active[-1]):
            stream.edge(0, lead, write)
            stream.edge(rest, length, write)
        stop = emit.select(active[-1], emit.as_index(rest), 0)

        def turns(start: Any, *chains: Any) -> list[Any]:
            end = start + turn
            for column in emit.loop(start + lead, emit.minimum(end + lead, stop), stream.lanes):
                write(column, None)
            own = _cut(chains, [len(each.reduction.totals.start) for each in passes])
            return _joined(
                each.turn(start, end, mine) for each, mine in zip(passes, own, strict=True)
            )

        chains = emit.carry(
            0, length, turn, _joined(each.totals.start for each in reductions), turns
        )
        own = _cut(chains, [len(each.reduction.totals.start) for each in passes])
        found = _joined(each.found(length, mine) for each, mine in zip(passes, own, strict=True))
        return [*carried[sum(finds) :], *found]

    zero = emit.constant(emit.element_of(reductions[-1].totals.neutral[0]), 0)
    some = emit.compare("less", first, last)  # else there is no row to stay inside of
    with rows.in_order(source.frame.spec, source.lanes), emit.when(some):
        begin = first - behind * len(reductions)
        emit.carry(begin, last, 1, [zero] * (behind * sum(finds)), step)
    stream.fence()


def _cut(values: Iterable[Any], lengths: Iterable[int]) -> list[list[Any]]:
    """Consecutive pieces of `values` of the given lengths."""
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]


def _joined(pieces: Iterable[Iterable[Any]]) -> list[Any]:
    return [value for piece in pieces for value in piece]
