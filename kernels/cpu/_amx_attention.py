"""Attention in AMX tiles: strips of 32 queries by blocks of keys that are on the stack.

A strip goes over all blocks that are there, and stays in the first cache meanwhile. Tiles are
multiplied beside the vectors' work: while exponentials are taken of its upper half, those of the
block before are multiplied by their values, and beside the lower half come the scores of the block
after. So there are scores of two blocks. Exponentials are, as they lie, the left side of the
products with the values. What `Block` has in words is in the order of tiles: pairs along the sums
side by side, keys or columns along a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
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

HALVES = (0, TILE_ROWS)
"""Where the tiles of a pair begin."""

Work = Sequence[tuple[Any, Callable[[], None]]]
"""What is done beside something else: each under a condition."""


def attend(
    block: Block,
    row: Any,
    count: Any,
    span_at: Callable[[Any], Seen],
    seen_at: Callable[[Any, Any], Seen],
) -> None:
    """Brings the sums of `count` queries forward, from `row` on.

    The queries from `row + top` to `row + top + 31` attend to `span_at(top)` of all keys on the
    stack, and to `seen_at(top, number)` of those of a block.
    """
    for top in emit.loop(0, count, PAIR):
        span = span_at(top)
        first, stop = emit.as_index(span.start) // block.keys, sizes.ceildiv(span.stop, block.keys)
        below = emit.compare("greater", count - top, TILE_ROWS)

        def strip_at(number: Any, top: Any = top) -> Strip:
            return Strip(block, row + top, number, seen_at(top, number))

        with emit.when(emit.compare("less", first, stop)):
            strip_at(first).score_all()
            for number in emit.loop(first, stop):
                before, strip, after = (strip_at(number + step) for step in (-1, 0, 1))
                follows = emit.compare("greater", number, first)
                precedes = emit.compare("less", number + 1, stop)
                strip.exponentials(0, [(follows, work) for work in before.sums()])
                scores = [(precedes & due, work) for due, work in after.scores()]
                emit.either(
                    below, [], partial(strip.exponentials, TILE_ROWS, scores), partial(_do, scores)
                )
                strip.scale_sums()
            strip_at(stop - 1).add_values()


def _do(work: Work) -> list[Any]:
    for due, function in work:
        with emit.when(due):
            function()
    return []


class Strip:
    """The queries `row` to `row + 31` by block `number` of those on the stack.

    Where only the upper 16 are there, what is computed of the lower ones may be anything.
    """

    def __init__(self, block: Block, row: Any, number: Any, seen: Seen) -> None:
        self.block, self.row, self.seen = block.part(number), row, seen
        self.pairs = sizes.ceildiv(seen.stop, PAIR)
        self.place = _words(block.score, number % 2 * (PAIR * block.keys))
        self.scale = block.fill(block.scale)

    def score_all(self) -> None:
        """The scores of the strip."""
        for pair in emit.loop(0, self.pairs):
            self._score(pair)

    def scores(self) -> Work:
        """The same in parts."""
        pairs = range(self.block.keys // PAIR)
        return [
            (emit.compare("greater", self.pairs, pair), partial(self._score, pair))
            for pair in pairs
        ]

    def _score(self, pair: Any) -> None:
        """The products of two tiles of queries with two tiles of keys."""
        block, first = self.block, pair * PAIR
        # Each tile of zeros is one of its own: LLVM would copy it by way of memory.
        totals = [tiles.zero() for _ in range(4)]
        for step in range(0, block.steps, TILE_ROWS):
            queries = [
                _load(block.query, (self.row + i) * block.depth + step, block.depth) for i in HALVES
            ]
            keys = [_load(block.key, first + (step * block.keys + j), block.keys) for j in HALVES]
            totals = _added(totals, queries, keys)
        for number, total in enumerate(totals):
            place = number // 2 * TILE_ROWS * block.keys + number % 2 * TILE_ROWS
            tiles.store(total, _words(self.place, first + place), block.keys * WORD)

    def exponentials(self, top: int, beside: Work) -> list[Any]:
        """Turns 16 rows of scores into exponentials and brings their statistics forward.

        What is done `beside` is spread over the first pair of tiles.
        """
        block, row = self.block, self.row + top
        peaks = emit.either(
            self.seen.whole,
            [self.scale.type] * TILE_ROWS,
            lambda: self._peaks(top, False),
            lambda: self._peaks(top, True),
        )
        peak = crosslane.each_across(peaks, emit.maximum)
        peak = peak * self.scale if block.late else peak
        before = block.vector(block.top, row)
        after = emit.maximum(before, peak)
        shift = select(emit.compare("equal", after, -math.inf), 0.0, after)
        fade = exp2_falling(before - shift)
        for value, place, at in (
            (after, block.top, row),
            (shift, block.shift, 0),
            (fade, block.fade, top),
        ):
            block.put(value, place, at)

        def exponential(pair: Any, *totals: Any) -> list[Any]:
            following = []
            first = emit.compare("equal", pair, 0)
            for r, total in enumerate(totals):
                for due, work in (beside[n] for n in _starting(len(beside), r)):
                    with emit.when(due & first):
                        work()
                shift, column = block.spread(block.shift, r), pair * PAIR
                shares = [
                    self._exponential(self._score_at(top + r, column + part), shift)
                    for part in HALVES
                ]
                place = (top + r) * (2 * block.keys) + column
                memory.store(_narrowed(*shares), self.place, place, "uint16")
                following.append(total + (shares[0] + shares[1]))
            return following

        zeros = [block.fill(0)] * TILE_ROWS
        totals = emit.carry(0, self.pairs, 1, zeros, exponential)
        weight = block.vector(block.weight, row)
        weight = emit.fma(weight, fade, crosslane.each_across(totals, rows.add))
        block.put(weight, block.weight, row)
        return []

    def _peaks(self, top: int, edge: bool) -> list[Any]:
        """The greatest scores of 16 rows, in the lanes of a vector for each."""
        block = self.block

        def step(column: Any, *peaks: Any) -> list[Any]:
            following = []
            for r, peak in enumerate(peaks):
                score = self._score_at(top + r, column)
                if edge or block.mask:
                    score = self.seen.finish(top + r, column, score, partial=edge)
                    block.put(score, self.place, (top + r) * block.keys + column)
                following.append(emit.maximum(peak, score))
            return following

        lowest = [block.fill(-math.inf)] * TILE_ROWS
        return emit.carry(0, self.pairs * PAIR, block.lanes, lowest, step)

    def _score_at(self, r: int, column: Any) -> Any:
        return self.block.vector(self.place, r * self.block.keys + column)

    def _exponential(self, score: Any, shift: Any) -> Any:
        scaled = emit.fma(score, self.scale, -shift) if self.block.late else score - shift
        return exp2_falling(scaled, coarse=True)

    def scale_sums(self) -> None:
        """Scales the sums before this block, where a greater score was found."""
        block = self.block
        for top in HALVES:
            fade = block.vector(block.fade, top)
            with emit.when(any_lane(emit.compare("not_equal", fade, 1.0))):
                for r in emit.loop(top, top + TILE_ROWS):
                    share = block.spread(block.fade, r)
                    for column in range(0, block.width, block.lanes):
                        place = (self.row + r) * block.width + column
                        block.put(block.vector(block.total, place) * share, block.total, place)

    def add_values(self) -> None:
        """Adds the exponentials times the values to the sums."""
        for part in emit.loop(0, self.block.width // PAIR):
            self._add_values(part, self.pairs)

    def sums(self) -> list[Callable[[], None]]:
        """The same in parts, for a block of which all keys are there."""
        pairs = self.block.keys // PAIR
        return [partial(self._add_values, part, pairs) for part in range(self.block.width // PAIR)]

    def _add_values(self, part: Any, pairs: Any) -> None:
        """The same for the columns of two tiles of values."""
        block, first = self.block, part * PAIR
        places = [
            _words(block.total, (self.row + i) * block.width + first + j)
            for i in HALVES
            for j in HALVES
        ]

        def step(pair: Any, *totals: Any) -> list[Any]:
            across, along = pair * TILE_ROWS, pair * (TILE_ROWS * block.width) + first
            shares = [_load(self.place, across + i * block.keys, block.keys) for i in HALVES]
            values = [_load(block.value, along + j, block.width) for j in HALVES]
            return _added(totals, shares, values)

        totals = [tiles.load(place, block.width * WORD) for place in places]
        totals = emit.carry(0, pairs, 1, totals, step)
        for place, total in zip(places, totals, strict=True):
            tiles.store(total, place, block.width * WORD)


def clear_values(block: Block, present: Any) -> None:
    """Zeros where a tile reads values beyond those of the `present` keys."""
    stop = sizes.ceildiv(present, PAIR) * TILE_ROWS
    for step in emit.loop(sizes.ceildiv(present, 2), stop):
        for column in range(0, block.width, block.lanes):
            zero = emit.constant(emit.register_type(block.word), 0, block.lanes)
            block.put_words(zero, block.value, step * block.width + column)


def _starting(count: int, r: int) -> list[int]:
    """Which of `count` things, spread over 16 rows, come before row `r`."""
    return [n for n in range(count) if n * TILE_ROWS // count == r]


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
