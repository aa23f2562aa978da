"""Attention in AMX tiles: strips of 32 queries by a block of keys that is on the stack.

Tiles are multiplied beside the vectors' work: while exponentials are taken of the upper half of a
strip, those of the strip before are multiplied by the values, and beside the lower half come the
scores of the strip after. So there are two strips of scores. Exponentials are, as they lie, the
left side of the products with the values. What `Block` has in words is in the order of tiles: pairs
along the sums side by side, keys or columns along a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import crosslane, emit, memory, rows, sizes
from heddle.kernels.cpu import _amx_tiles as tiles
from heddle.kernels.cpu._amx_tiles import TILE_ROWS
from heddle.kernels.cpu._attention_block import Block, Seen
from heddle.kernels.cpu._histogram import any_lane
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.powers_of_two import exp2_falling
from heddle.kernels.sizes import Size

llvm, vector = dialect("llvm"), dialect("vector")

WORD = 4
"""Bytes of a score, and of a pair of bfloat16."""

PAIR = 2 * TILE_ROWS
"""Rows of a strip, keys of two tiles of scores and of one tile of exponentials, columns of two
tiles of sums."""


def attend(block: Block, row: Any, count: Any, seen_at: Callable[[Any], Seen]) -> None:
    """Brings the sums of `count` queries forward, from `row` on, which are at least one.

    `seen_at(top)`: the keys that the queries from `row + top` to `row + top + 31` attend to.
    """

    def strip_at(top: Any) -> Strip:
        return Strip(block, row, top, seen_at(top))

    first, last = strip_at(emit.index(0)), strip_at((count - 1) // PAIR * PAIR)
    one = emit.compare("less_equal", emit.as_index(count), TILE_ROWS)
    emit.either(one, [], lambda: first.score_all(1), lambda: first.score_all(2))
    for top in emit.loop(0, count, PAIR):
        strip, before, after = (strip_at(top + step) for step in (0, -PAIR, PAIR))
        parts = select(emit.compare("greater", top, 0), before.parts, emit.index(0))
        strip.exponentials(0, parts, before.add_values)
        below = emit.compare("less", top + TILE_ROWS, count)
        with emit.when(below):
            follows = emit.compare("less", top + PAIR, count)
            pairs = select(follows, after.pairs, emit.index(0))
            strip.exponentials(TILE_ROWS, pairs, after.score)
    low = emit.compare("less_equal", emit.as_index(count - last.top), TILE_ROWS)
    emit.either(low, [], lambda: last.add_all_values(1), lambda: last.add_all_values(2))


class Strip:
    """The queries `row + top` to `row + top + 31` by the keys that they attend to."""

    def __init__(self, block: Block, row: Any, top: Any, seen: Seen) -> None:
        self.block, self.top, self.seen = block, top, seen
        self.row = row + top
        self.pairs = sizes.ceildiv(seen.stop, PAIR)
        self.parts = emit.index(block.width // PAIR)
        self.scores = _words(block.score, (top & PAIR) * block.keys)
        self.scale = block.fill(block.scale)

    def score_all(self, height: int) -> list[Any]:
        """The scores of `height` tiles of queries."""
        for pair in emit.loop(0, self.pairs):
            self.score(pair, height)
        return []

    def score(self, pair: Any, height: int = 2) -> None:
        """The products of `height` tiles of queries with two tiles of keys."""
        block, first = self.block, pair * PAIR
        # Each tile of zeros is one of its own: LLVM would copy it by way of memory.
        totals = [tiles.zero() for _ in range(2 * height)]
        for step in range(0, block.steps, TILE_ROWS):
            queries = [
                _load(block.query, (self.row + i) * block.depth + step, block.depth)
                for i in range(0, height * TILE_ROWS, TILE_ROWS)
            ]
            keys = [
                _load(block.key, first + (step * block.keys + j), block.keys)
                for j in (0, TILE_ROWS)
            ]
            totals = _added(totals, queries, keys)
        for number, total in enumerate(totals):
            place = number // 2 * TILE_ROWS * block.keys + number % 2 * TILE_ROWS
            tiles.store(total, _words(self.scores, first + place), block.keys * WORD)

    def exponentials(self, top: int, work: Any, beside: Callable[[Any], None]) -> None:
        """Turns 16 rows of scores into exponentials and brings their statistics forward.

        `beside(number)` is emitted for each `number` below `work`, beside them as long as it goes.
        """
        block, row = self.block, self.row + top
        peaks = emit.either(
            self.seen.whole,
            [self.scale.type] * TILE_ROWS,
            lambda: self._peaks(top, partial=False),
            lambda: self._peaks(top, partial=True),
        )
        peak = crosslane.each_across(peaks, emit.maximum)
        peak = peak * self.scale if block.late else peak
        before = block.vector(block.top, row)
        after = emit.maximum(before, peak)
        shift = select(emit.compare("equal", after, -math.inf), 0.0, after)
        fade = exp2_falling(before - shift)
        for value, place, at in ((after, block.top, row), (shift, block.shift, 0)):
            block.put(value, place, at)
        with emit.when(any_lane(emit.compare("not_equal", fade, 1.0))):
            self._scale_sums(row, fade)

        def exponential(pair: Any, *totals: Any) -> list[Any]:
            with emit.when(emit.compare("less", pair, work)):
                beside(pair)
            following = []
            for r, total in enumerate(totals):
                shift, column = block.spread(block.shift, r), pair * PAIR
                shares = [
                    self._exponential(self._score_at(top + r, column + part), shift)
                    for part in (0, TILE_ROWS)
                ]
                place = (top + r) * (2 * block.keys) + column
                memory.store(_narrowed(*shares), self.scores, place, "uint16")
                following.append(total + (shares[0] + shares[1]))
            return following

        zeros = [block.fill(0)] * TILE_ROWS
        totals = emit.carry(0, self.pairs, 1, zeros, exponential)
        for number in emit.loop(self.pairs, work):
            beside(number)
        weight = block.vector(block.weight, row)
        weight = emit.fma(weight, fade, crosslane.each_across(totals, rows.add))
        block.put(weight, block.weight, row)

    def _peaks(self, top: int, partial: bool) -> list[Any]:
        """The greatest scores of 16 rows, in the lanes of a vector for each."""
        block = self.block

        def step(column: Any, *peaks: Any) -> list[Any]:
            following = []
            for r, peak in enumerate(peaks):
                score = self._score_at(top + r, column)
                if partial or block.mask:
                    score = self.seen.finish(top + r, column, score, partial=partial)
                    block.put(score, self.scores, (top + r) * block.keys + column)
                following.append(emit.maximum(peak, score))
            return following

        lowest = [block.fill(-math.inf)] * TILE_ROWS
        return emit.carry(0, self.pairs * PAIR, block.lanes, lowest, step)

    def _score_at(self, r: int, column: Any) -> Any:
        return self.block.vector(self.scores, r * self.block.keys + column)

    def _exponential(self, score: Any, shift: Any) -> Any:
        scaled = emit.fma(score, self.scale, -shift) if self.block.late else score - shift
        return exp2_falling(scaled, coarse=True)

    def _scale_sums(self, row: Any, fade: Any) -> None:
        """Scales the sums of 16 queries."""
        block = self.block
        block.put(fade, block.fade, 0)
        for r in emit.loop(0, TILE_ROWS):
            share = block.spread(block.fade, r)
            for column in range(0, block.width, block.lanes):
                place = (row + r) * block.width + column
                block.put(block.vector(block.total, place) * share, block.total, place)

    def add_all_values(self, height: int) -> list[Any]:
        """Adds the exponentials times the values to the sums of `height` tiles of queries."""
        for part in emit.loop(0, self.parts):
            self.add_values(part, height)
        return []

    def add_values(self, part: Any, height: int = 2) -> None:
        """The same for the columns of two tiles of values."""
        block, first = self.block, part * PAIR
        tops = range(0, height * TILE_ROWS, TILE_ROWS)
        places = [
            _words(block.total, (self.row + i) * block.width + first + j)
            for i in tops
            for j in (0, TILE_ROWS)
        ]

        def step(pair: Any, *totals: Any) -> list[Any]:
            across, along = pair * TILE_ROWS, pair * (TILE_ROWS * block.width) + first
            shares = [_load(self.scores, across + i * block.keys, block.keys) for i in tops]
            values = [_load(block.value, along + j, block.width) for j in (0, TILE_ROWS)]
            return _added(totals, shares, values)

        totals = [tiles.load(place, block.width * WORD) for place in places]
        totals = emit.carry(0, self.pairs, 1, totals, step)
        for place, total in zip(places, totals, strict=True):
            tiles.store(total, place, block.width * WORD)


def clear_values(block: Block, present: Any) -> None:
    """Zeros where a tile reads values beyond those of the `present` keys."""
    stop = sizes.ceildiv(present, PAIR) * TILE_ROWS
    for step in emit.loop(sizes.ceildiv(present, 2), stop):
        for column in range(0, block.width, block.lanes):
            zero = emit.constant(emit.register_type(block.word), 0, block.lanes)
            block.put_words(zero, block.value, step * block.width + column)


def _added(totals: Sequence[Any], left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """The totals with the products of each tile on the left by two on the right added."""
    return [
        tiles.multiply("bfloat16", total, left[number // 2], right[number % 2])
        for number, total in enumerate(totals)
    ]


def _words(base: Any, offset: Size) -> Any:
    """The pointer to a word."""
    return memory.at(base, offset, "uint32")


def _load(base: Any, offset: Size, row: int) -> Any:
    """The tile from word `offset` on, of rows of `row` words."""
    return tiles.load(_words(base, offset), row * WORD)


def _narrowed(low: Any, high: Any) -> Any:
    """Two vectors rounded to bfloat16, side by side."""
    kind = ir.VectorType.get([2 * TILE_ROWS], ir.BF16Type.get())
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    value = llvm.call_intrinsic(kind, name, [high, low], [], [])
    return vector.bitcast(emit.widen(emit.integer(16), 2 * TILE_ROWS), value)
