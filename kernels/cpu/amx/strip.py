"""A strip of attention in AMX tiles: 32 queries by a block of 32 keys that are on the stack.

Beside the exponentials of a block, a row at a time, go single instructions of tiles: the scores of
the block after and the sums of the block before, so that neither waits for the other. What `Block`
has in words is in the order of tiles: pairs along the sums side by side, keys or columns along a
row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from heddle.kernels import crosslane, emit, memory
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROWS
from heddle.kernels.cpu.flash.block import Block, Seen
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import select
from heddle.kernels.functions.powers_of_two import exp2_falling
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm, vector = dialect("llvm"), dialect("vector")

WORD = 4
"""Bytes of a score, and of a pair of bfloat16."""

ASKS = 8
"""Steps beside a block for each thing that is asked for: one of the four beside each row."""

HALVES = (0, TILE_ROWS)
"""Where the tiles of a pair begin."""

LIMIT = 64.0
"""The greatest exponential is 2 to this power: 2^63 of them are a float32."""

UNSEEN = -3.4028234663852886e38
"""Taken off the scores of a query that has seen no key: exponentials are beyond the limit."""


def do(work: Iterator[None]) -> None:
    """Does all steps of some work, with nothing between them."""
    for _ in work:
        pass


class Strip:
    """`rows` queries from `row` on, 32 at most, by block `number` of those on the stack.

    What is computed of the rows below may be anything. Every other `turn` has the same places.
    """

    limit = LIMIT
    """The greatest of what `_exponential` returns."""

    together = 1
    """Things that are asked for beside a row, each in its own turn."""

    def __init__(self, block: Block, row: Any, rows: Any, number: Any, turn: Any) -> None:
        self.block, self.row, self.rows = block.part(number), row, rows
        self.place = words(block.score, turn % 2 * PAIR**2)
        apart = PAIR * TILE_ROWS * block.share_tiles
        self.shares = words(block.score, turn % 2 * apart + 2 * PAIR**2)
        self.scale = block.fill(block.scale)
        self.asks: Sequence[Ask] = ()
        self.step: Size = 0

    @property
    def score_steps(self) -> int:
        """Steps of `scores`."""
        return 4 * (self.block.steps // TILE_ROWS + 1)

    @property
    def sum_steps(self) -> int:
        """Steps of `sums`."""
        return 4 * (self.block.across // TILE_ROWS)

    def scores(self) -> Iterator[None]:
        """The products of two tiles of queries with two of keys, an instruction at a time."""
        block = self.block
        # Each tile of zeros is one of its own: LLVM would copy it by way of memory.
        totals = [tiles.zero() for _ in range(4)]
        for step in range(0, block.steps, TILE_ROWS):
            keys: list[Any] = []
            for down, row in enumerate(HALVES):
                query = load(block.query, (self.row + row) * block.depth + step, block.depth)
                for across, column in enumerate(HALVES):
                    if down == 0:  # the other queries meet the same keys
                        keys.append(load(block.key, step * block.keys + column, block.keys, True))
                    number = 2 * down + across
                    totals[number] = added(totals[number], query, keys[across])
                    yield
        for number, total in enumerate(totals):
            place = HALVES[number // 2] * PAIR + HALVES[number % 2]
            tiles.store(total, words(self.place, place), PAIR * WORD)
            yield

    def finish(self, seen: Seen) -> None:
        """Caps and masks the scores where that changes any."""

        def finished(partial: bool) -> list[Any]:
            for r in emit.loop(0, self.rows):
                for part in HALVES:
                    score = seen.finish(r, part, self._score(r, part), partial=partial)
                    self.block.put(score, self.place, r * PAIR + part)
            return []

        def whole() -> list[Any]:
            if self.block.cap:
                return finished(False)
            if seen.changed is not False:
                with emit.when(seen.changed):
                    finished(False)
            return []

        emit.either(seen.whole, [], whole, lambda: finished(True))

    def raise_shifts(self) -> None:
        """Takes the greatest scores off where exponentials would be beyond the limit."""
        block = self.block
        for top in emit.loop(0, self.rows, TILE_ROWS):
            peaks = [
                emit.maximum(*(self._score(top + r, part) for part in HALVES))
                for r in range(TILE_ROWS)
            ]
            peak = crosslane.each_across(peaks, emit.maximum)
            peak = peak * self.scale if block.late else peak
            before = block.vector(block.top, self.row + top)
            after = select(emit.compare("greater", peak, before + LIMIT / block.unit), peak, before)
            block.put(after, block.top, self.row + top)
            # Where none has seen a key, their sums are zero.
            with emit.when(any_lane(emit.compare("greater", before, UNSEEN))):
                block.put(exp2_falling(before - after, block.unit), block.fade, 0)
                for r in emit.loop(0, TILE_ROWS):
                    share = block.spread(block.fade, r)
                    for column in range(0, block.across, block.lanes):
                        place = (self.row + top + r) * block.across + column
                        block.put(block.vector(block.total, place) * share, block.total, place)

    def exponentials(self) -> None:
        """Takes the exponentials of all scores."""
        for r in emit.loop(0, self.rows):
            self._exponential(r)

    def between(self, begins: Any, ends: Any, before: Strip, after: Strip) -> list[Any]:
        """The same beside what there is to do `before` and `after`; whether any is beyond."""
        bit = [emit.integer(1)]
        first_of, last_of, inner = (
            partial(self.beside, *others)
            for others in ((None, after), (before, None), (before, after))
        )
        return emit.either(
            begins,
            bit,
            partial(emit.either, ends, bit, self.alone, first_of),
            partial(emit.either, ends, bit, last_of, inner),
        )

    def alone(self) -> list[Any]:
        """The same for the only block of a strip: none is beyond the limit."""
        for step in emit.loop(0, ASKS * self.together):
            for ask in self.asks:
                ask(self.step + step)
        self.exponentials()
        return [emit.constant(emit.integer(1), 0)]

    def beside(self, before: Strip | None, after: Strip | None) -> list[Any]:
        """Takes the exponentials of all scores; whether any is beyond the limit.

        Spread over the rows are the steps of the sums of the block `before`, where there is one,
        and of the scores of the block `after`, and what is asked for.
        """
        done = steps = 0
        work: list[Iterator[None]] = []
        if after is not None:
            work.append(after.scores())
            steps += after.score_steps
        if before is not None:
            work.append(before.sums())
            steps += before.sum_steps
        beside = chain(*work)
        inside = [emit.constant(emit.integer(1), 1, self.block.lanes)] * 2
        for r in range(PAIR):
            step, place = divmod(r * self.together, 4)
            for ask in self.asks[place : place + self.together]:
                ask(self.step + step)
            for n, score in enumerate(self._exponential(r)):
                inside[n] = inside[n] & emit.compare("less_equal", score, self.limit)
            while done * PAIR < (r + 1) * steps:
                done += 1
                next(beside)
        do(beside)
        return [any_lane((inside[0] & inside[1]) ^ True)]

    def _exponential(self, r: Any) -> list[Any]:
        """Takes the exponentials of a row; the scores of which they are."""
        block = self.block
        shift = block.spread(block.top, self.row + r)
        scores = [self._score(r, part) for part in HALVES]
        scores = [
            emit.fma(s, self.scale, -shift) if block.late else (s - shift) * block.unit
            for s in scores
        ]
        shares = [exp2_falling(score, result="bfloat16") for score in scores]
        memory.store(_bfloat16.narrowed(*shares), self.shares, r * PAIR, "uint16")
        return scores

    def _score(self, r: Any, column: int) -> Any:
        return self.block.vector(self.place, r * PAIR + column)

    def sums(self) -> Iterator[None]:
        """Adds the exponentials times the values and ones to the sums, as `scores`."""
        block = self.block
        shares = [load(self.shares, i * TILE_ROWS, TILE_ROWS) for i in HALVES]
        before: list[tuple[Any, Any]] = []
        for column in range(0, block.across, TILE_ROWS):
            if column < block.width:
                value = load(block.value, column, block.width, streamed=True)
            else:
                value = load(block.peak, 0, TILE_ROWS)
            following = []
            for half, share in zip(HALVES, shares, strict=True):
                place = words(block.total, (self.row + half) * block.across + column)
                total = tiles.load(place, block.across * WORD)
                following.append((added(total, share, value), place))
                yield
            # A tile that is stored at once keeps the next ones waiting for its product.
            for total, place in before:
                tiles.store(total, place, block.across * WORD)
                yield
            before = following
        for total, place in before:
            tiles.store(total, place, block.across * WORD)
            yield


def added(total: Any, left: Any, right: Any) -> Any:
    """The total with the product of two tiles added."""
    return tiles.multiply("bfloat16", total, left, right)


def words(base: Any, offset: Size) -> Any:
    """The pointer to a word."""
    return memory.at(base, offset, "uint32")


def load(base: Any, offset: Size, row: int, streamed: bool = False) -> Any:
    """The tile from word `offset` on, of rows of `row` words."""
    return tiles.load(words(base, offset), row * WORD, streamed)
