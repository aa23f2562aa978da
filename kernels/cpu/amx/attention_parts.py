"""Attention of float32 in AMX tiles: each number on the stack is the sum of three of bfloat16.

Strips and blocks are those of `attention`. A product of tiles becomes six, of the nine of all
parts those that are not below 2**-24 of the greatest (see `float32`); exponentials are taken
as on vectors, and are split beside the products. What one side holds stays in its tiles while the
other's are loaded in front of their products: keys and values, which come from the second cache.

A pair is of numbers 16 apart, elements or keys, so that splitting two vectors gives it in each
lane. Exponentials are added up lane by lane, in columns behind those of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heddle.kernels import crosslane, emit, row_totals, sizes
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.parts import ORDER, is_any, no_number
from heddle.kernels.cpu.amx.strip import (
    ASKS,
    HALVES,
    LIMIT,
    WORD,
    Strip,
    added,
    do,
    load,
    words,
)
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROWS
from heddle.kernels.cpu.flash.block import Block, Seen
from heddle.kernels.cpu.flash.splits import joined
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.emit import select
from heddle.kernels.functions.powers_of_two import exp2_falling

GROUP = (None,) * 4
"""Steps that a group of four products takes; a store is one."""

STORED = 4
"""Instructions that store the sums of two tiles by two."""


def attend(
    block: Block,
    count: Any,
    span_at: Callable[[Any], Seen],
    seen_at: Callable[[Any, Any], Seen],
    asks_at: Callable[[Any], Sequence[Ask]] = lambda steps: (),
) -> None:
    """Brings the sums of `count` queries forward, as `attention.attend`.

    The first block of a strip comes beside the last one of the strip before it; those that attend
    to none are the first strips or the last ones.
    """
    strips = sizes.ceildiv(count, PAIR)

    def blocks_of(strip: Any) -> tuple[Any, Any]:
        span = span_at(strip * PAIR)
        first = emit.as_index(span.start) // block.keys
        return first, emit.as_index(sizes.ceildiv(span.stop, block.keys))

    def look(strip: Any, skipped: Any, total: Any) -> list[Any]:
        first, stop = blocks_of(strip)
        total = total + sizes.greatest(stop - first, 0)
        return [select(emit.compare("equal", total, 0), strip + 1, skipped), total]

    zero = emit.index(0)
    begin, total = emit.carry(0, strips, 1, [zero] * 2, look)
    with emit.when(emit.compare("greater", total, 0)):
        asks = asks_at(total * (ASKS * SplitStrip.together))

        def made(strip: Any, number: Any, turn: Any) -> SplitStrip:
            row = strip * PAIR
            return SplitStrip(block, row, sizes.least(emit.index(PAIR), count - row), number, turn)

        def step(turn: Any, strip: Any, number: Any, stop: Any, *last: Any) -> list[Any]:
            ends = emit.compare("equal", number + 1, stop)

            def next_strip() -> list[Any]:
                further = sizes.least(strip + 1, strips - 1)
                return [further, *blocks_of(further)]

            inside = [strip, number + 1, stop]
            following = emit.either(ends, [zero.type] * 3, next_strip, lambda: inside)
            here = made(strip, number, turn)
            here.asks, here.step = asks, turn * (ASKS * SplitStrip.together)
            here.finish(seen_at(strip * PAIR, number))
            alone = emit.compare("equal", turn, 0)
            with emit.when(alone | emit.compare("not_equal", strip, last[0])):
                here.raise_shifts()
            (beyond,) = here.between(
                alone,
                emit.compare("equal", turn + 1, total),
                made(last[0], last[1], turn + 1),
                made(following[0], following[1], turn + 1),
            )
            with emit.when(beyond):
                here.raise_shifts()
                here.exponentials()
            return [*following, strip, number]

        first, stop = blocks_of(begin)
        do(made(begin, first, zero).scores())
        state = [begin, first, stop, begin, first]
        strip, number = emit.carry(0, total, 1, state, step)[3:]
        do(made(strip, number, total + 1).sums())


class SplitStrip(Strip):
    """A strip whose numbers are split."""

    limit = 2.0**LIMIT
    together = 2

    def __init__(self, block: Block, row: Any, height: Any, number: Any, turn: Any) -> None:
        super().__init__(block, row, height, number, turn)
        self.weights = words(self.shares, block.split * PAIR * TILE_ROWS)

    @property
    def score_steps(self) -> int:
        """Steps of `scores`, in which others can do something."""
        return self.block.steps // TILE_ROWS * len(ORDER) * len(GROUP) + STORED

    @property
    def sum_steps(self) -> int:
        """Steps of `sums`."""
        return self.block.width // PAIR * (len(ORDER) * len(GROUP) + STORED)

    def scores(self) -> Iterator[None]:
        """Computes the scores, a step at a time."""
        block = self.block
        totals = [tiles.zero() for _ in range(4)]
        for step in range(0, block.steps, TILE_ROWS):
            keys: list[Any] = []
            held = -1
            for of_key, of_query in ORDER:
                if of_key != held:
                    place = of_key * block.key_part + step * block.keys
                    keys = [load(block.key, place + half, block.keys, True) for half in HALVES]
                    held = of_key
                place = self.row * block.depth + (of_query * block.query_part + step)
                queries = [
                    load(block.query, place + half * block.depth, block.depth) for half in HALVES
                ]
                for number, total in enumerate(totals):
                    totals[number] = added(total, queries[number // 2], keys[number % 2])
                yield from GROUP
        for number, total in enumerate(totals):
            place = HALVES[number // 2] * PAIR + HALVES[number % 2]
            tiles.store(total, words(self.place, place), PAIR * WORD)
            yield

    def sums(self) -> Iterator[None]:
        """Adds the weighted values, a step at a time."""
        block = self.block
        row, each = 0, -(-PAIR // self.sum_steps)
        for column in range(0, block.width, PAIR):
            places = [
                words(block.total, (self.row + top) * block.across + (column + left))
                for top in HALVES
                for left in HALVES
            ]
            totals = [tiles.load(place, block.across * WORD) for place in places]
            values: list[Any] = []
            held = -1
            for of_value, of_share in ORDER:
                if of_value != held:
                    place = of_value * block.value_part + column
                    values = [load(block.value, place + half, block.width, True) for half in HALVES]
                    held = of_value
                place = of_share * (PAIR * TILE_ROWS)
                shares = [load(self.shares, place + half * TILE_ROWS, TILE_ROWS) for half in HALVES]
                for number, total in enumerate(totals):
                    totals[number] = added(total, shares[number // 2], values[number % 2])
                for _ in GROUP:
                    row = self._weigh(row, each)
                    yield
            for total, place in zip(totals, places, strict=True):
                tiles.store(total, place, block.across * WORD)
                row = self._weigh(row, each)
                yield

    def _weigh(self, first: int, count: int) -> int:
        """Adds the exponentials of some rows to their sums; the row that follows."""
        block, last = self.block, min(first + count, PAIR)
        for r in range(first, last):
            place = (self.row + r) * block.across + block.width
            weight = block.vector(self.weights, r * block.lanes)
            block.put(block.vector(block.total, place) + weight, block.total, place)
        return last

    def _exponential(self, r: Any) -> list[Any]:
        """Takes the exponentials of a row; the sums of two, of which the others are parts."""
        block = self.block
        shift = block.spread(block.top, self.row + r)
        scores = [(self._score(r, part) - shift) * block.unit for part in HALVES]
        shares = [exp2_falling(score) for score in scores]
        weight = shares[0] + shares[1]
        block.put(weight, self.weights, r * block.lanes)
        for part, word in enumerate(joined(*shares)):
            block.put_words(word, self.shares, part * (PAIR * TILE_ROWS) + r * TILE_ROWS)
        return [weight]


def add_weights(block: Block, stop: Any) -> None:
    """Sums of exponentials of the queries before `stop`, from those of each lane."""
    for top in emit.loop(0, stop, block.lanes):
        lanes = [
            block.vector(block.total, (top + r) * block.across + block.width)
            for r in range(block.lanes)
        ]
        block.put(crosslane.each_across(lanes, row_totals.add), block.weight, top)


def any_no_number(block: Block, count: Any, write: Callable[..., list[Any]]) -> list[Any]:
    """Writes `count` results; where numbers are split, whether one is infinite or a NaN.

    `write(r, *found)` writes one and returns `no_numbers` of it.
    """
    zero = emit.constant(emit.integer(32), 0, block.lanes)
    found = emit.carry(0, count, 1, [zero] * (block.split > 1), write)
    return list(map(is_any, found))


def no_numbers(block: Block, r: Any, share: Any, *found: Any) -> list[Any]:
    """What was `found`, with bits set where a result of row `r` is infinite or a NaN."""
    for column in range(0, block.width, block.lanes) if found else ():
        value = block.vector(block.total, r * block.across + column) * share
        found = (found[0] | no_number(value),)
    return list(found)
