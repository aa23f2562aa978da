"""Attention in AMX tiles of wide heads, whose values are narrower: queries are turned, not keys.

Keys lie in rows, as in memory, and 16 of them are the left side of a product: so scores have a key
in each row and queries in their lanes, where all that is known of a query is a number of a vector.
Exponentials are turned, which are far fewer numbers than keys have, and are the left side of the
products with values. These lie in rows, too: what is multiplied with a pair of columns is a pair of
an exponential and zero for the sum of the even one, and of zero and the exponential for the odd
one's. That is twice as many products, but no number of a key or a value is moved.

A strip is one tile of queries or two, by a block of many keys: so its sums go through registers
once for all of them. What else tiles load lies together on the stack: [16 rows, 16 words], 1 KiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

from heddle.kernels import convert, crosslane, emit, memory, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.strip import HALVES, added, words
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROW, TILE_ROWS, WORDS
from heddle.kernels.cpu.amx.wide_sides import Limits, Sides
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import compare, select
from heddle.kernels.functions.powers_of_two import exp2_falling, finite
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, vector = dialect("arith"), dialect("vector")

SUMS = 4
"""Tiles of sums in registers."""

LOW = 0xFFFF
"""The lower half of a word."""

TOGETHER = 4
"""Keys whose scores are compared side by side."""


@dataclass(frozen=True)
class Strip:
    """So many `tiles` of queries, from query `row` on, by the first `stop` keys of a block.

    `first` is its first key's number in the row. Its `score` is [keys, queries of the strip], and
    `shares` [tiles of keys, tiles of queries, even and odd], a tile's rows being queries.
    """

    block: Block
    sides: Sides
    shares: Any
    limits: Limits
    row: Any
    first: Any
    stop: Any
    tiles: int

    @property
    def score_steps(self) -> Size:
        """Steps of the products of keys with queries."""
        return sizes.ceildiv(self.stop, TILE_ROWS * self._apart) * self._depth

    @property
    def sum_steps(self) -> Size:
        """Steps of the products of exponentials with values."""
        return sizes.ceildiv(self.stop, PAIR) * (self.block.width // PAIR // self._beside)

    def attend(self, ask: Ask) -> None:
        """Brings the sums of the strip's queries forward."""
        self._scores(ask)
        last = self.row + (TILE_ROWS * self.tiles - 1)
        end = self.first + self.stop
        whole = compare("equal", sizes.mod(self.stop, PAIR), 0)
        whole = whole & self.limits.all_see(self.row, last, self.first, end)
        self._finish(whole)
        self._sums(self._exponentials(), ask)

    @property
    def _depth(self) -> int:
        """Tiles of a key."""
        return self.block.steps // TILE_ROWS

    @property
    def _apart(self) -> int:
        """Tiles of keys whose products with those of queries are in registers."""
        return SUMS // self.tiles

    @property
    def _beside(self) -> int:
        """The same of columns, of which there are two sums each."""
        return SUMS // 2 // self.tiles

    def _scores(self, ask: Ask) -> None:
        """The products of keys with queries."""
        block, depth, apart = self.block, self._depth, self._apart
        row = TILE_ROWS * self.tiles

        for group in emit.loop(0, sizes.ceildiv(self.stop, TILE_ROWS * apart)):
            starts = [self.sides.keys(group * apart + n) for n in range(apart)]
            queries = [(self.row // TILE_ROWS + n) * depth for n in range(self.tiles)]

            def step_of(
                step: Any,
                *before: Any,
                group: Any = group,
                starts: list[tuple[Any, Any]] = starts,
                queries: list[Any] = queries,
            ) -> list[Any]:
                right = [_load(block.query, start + step) for start in queries]
                ask(group * depth + step)
                totals = iter(before)
                after = []
                # One tile of keys at a time: more than eight tiles would be spilled.
                for start, row in starts:
                    left = tiles.load(memory.at(start, step * TILE_ROW, "int8"), row)
                    after += [added(next(totals), left, query) for query in right]
                return after

            zeros = [tiles.zero() for _ in range(SUMS)]
            for number, total in enumerate(emit.carry(0, depth, 1, zeros, step_of)):
                key, column = divmod(number, self.tiles)
                place = ((group * apart + key) * row + column) * TILE_ROWS
                tiles.store(total, words(block.score, place), row * 4)

    def _finish(self, whole: Any) -> None:
        """Caps and masks scores where that changes any."""
        if self.block.cap:
            emit.either(whole, [], lambda: self._finished(False), lambda: self._finished(True))
            return
        with emit.when(whole ^ True):
            self._finished(True)

    def _finished(self, partial: bool) -> list[Any]:
        block = self.block
        end = arith.trunci(emit.integer(32), self.first + self.stop)
        limits = []
        for n in range(self.tiles):
            low, high = self.limits.of(self.row + n * TILE_ROWS)
            limits.append((low, emit.minimum(high, emit.splat(end, TILE_ROWS))))
        for key in emit.loop(0, sizes.ceildiv(self.stop, PAIR) * PAIR):
            number = arith.trunci(emit.integer(32), self.first + key)
            for n, (low, high) in enumerate(limits):
                place = (key * self.tiles + n) * TILE_ROWS
                score = block.vector(block.score, place)
                score = block.scaled(score) if block.cap else score
                if partial:
                    each = emit.splat(number, TILE_ROWS)
                    seen = compare("less_equal", low, each) & compare("less", each, high)
                    score = select(seen, score, -math.inf)
                block.put(score, block.score, place)
        return []

    def _exponentials(self) -> Size:
        """Turns scores into exponentials, and brings the queries' sums forward to them.

        Returns how many pairs of tiles of keys there are.
        """
        block, scale = self.block, _scale_of(self.block)
        pairs = sizes.ceildiv(self.stop, PAIR)
        shifts = []
        for n, peak in enumerate(self._peaks(pairs * PAIR)):
            row = self.row + n * TILE_ROWS
            before = block.vector(block.top, row)
            after = emit.maximum(before, peak * scale)
            shift = finite(after)
            shifts.append(shift)
            block.put(after, block.top, row)
            fade = exp2_falling(before - shift)
            block.put(block.vector(block.weight, row) * fade, block.weight, row)
            changed = compare("not_equal", fade, 1.0) & compare("greater", before, -math.inf)
            with emit.when(any_lane(changed)):
                block.put(fade, block.fade, 0)
                for r in emit.loop(0, TILE_ROWS):
                    share = block.spread(block.fade, r)
                    for column in emit.loop(0, block.width, block.lanes):
                        place = (row + r) * block.across + column
                        block.put(block.vector(block.total, place) * share, block.total, place)

        def pair_of(pair: Any, *weights: Any) -> list[Any]:
            return [
                self._shares(pair, n, shifts[n], scale, weight) for n, weight in enumerate(weights)
            ]

        zeros = [block.fill(0)] * self.tiles
        for n, weight in enumerate(emit.carry(0, pairs, 1, zeros, pair_of)):
            row = self.row + n * TILE_ROWS
            block.put(block.vector(block.weight, row) + weight, block.weight, row)
        return pairs

    def _peaks(self, keys: Size) -> list[Any]:
        """The greatest scores of each query."""
        block, each = self.block, range(TOGETHER * self.tiles)

        def turn(key: Any, *tops: Any) -> list[Any]:
            scores = [block.vector(block.score, (key * self.tiles + n) * TILE_ROWS) for n in each]
            return [emit.maximum(score, top) for score, top in zip(scores, tops, strict=True)]

        tops = emit.carry(0, keys, TOGETHER, [block.fill(-math.inf)] * len(each), turn)
        found = []
        for n in range(self.tiles):
            one, two, three, four = tops[n :: self.tiles]
            found.append(emit.maximum(emit.maximum(one, two), emit.maximum(three, four)))
        return found

    def _shares(self, pair: Any, n: int, shift: Any, scale: Any, weight: Any) -> Any:
        """The exponentials of a tile of queries by a pair of tiles of keys; their sum, added."""
        block = self.block
        lines, weights = [], [weight, block.fill(0)]
        for key in range(TILE_ROWS):
            shares = []
            for half in HALVES:
                place = ((pair * PAIR + key + half) * self.tiles + n) * TILE_ROWS
                score = emit.fma(block.vector(block.score, place), scale, -shift)
                shares.append(exp2_falling(score, result="bfloat16"))
            weights = [a + b for a, b in zip(weights, shares, strict=True)]
            both = _bfloat16.narrowed(*shares)
            order = [i // 2 + i % 2 * TILE_ROWS for i in range(PAIR)]
            kind = emit.widen(emit.integer(32), TILE_ROWS)
            lines.append(vector.bitcast(kind, crosslane.shuffle(both, both, order)))
        for r, line in enumerate(crosslane.transposed(lines)):
            for number, value in enumerate(
                (line & LOW, line << 16, line >> 16, line & convert.HIGH)
            ):
                key, odd = divmod(number, 2)
                tile = ((pair * 2 + key) * self.tiles + n) * 2 + odd
                memory.store(value, self.shares, tile * WORDS + r * TILE_ROWS, "uint32")
        return weights[0] + weights[1]

    def _sums(self, pairs: Size, ask: Ask) -> None:
        """Adds the exponentials times the values to the sums."""
        block, beside = self.block, self._beside
        pairs_beside, shares_beside = range(beside), range(2 * self.tiles)
        for group in emit.loop(0, block.width // PAIR // beside):
            first = group * (beside * PAIR)
            places = []
            for n, share in product(pairs_beside, shares_beside):
                tile, odd = divmod(share, 2)
                row = self.row + tile * TILE_ROWS
                column = first + (n * PAIR + odd * TILE_ROWS)
                places.append(words(block.total, row * block.across + column))
            due = self.score_steps + group * pairs

            def step_of(pair: Any, *totals: Any, first: Any = first, due: Any = due) -> list[Any]:
                ask(due + pair)
                for key in (pair * 2, pair * 2 + 1):
                    start, apart = self.sides.values(key)
                    before, left, after = iter(totals), [], []
                    for n in pairs_beside:
                        place = memory.at(start, (first + n * PAIR) * 2, "int8")
                        right = tiles.load(place, apart)
                        for share in shares_beside:
                            if n == 0:  # the other columns meet the same shares
                                left.append(_load(self.shares, key * (2 * self.tiles) + share))
                            after.append(added(next(before), left[share], right))
                    totals = tuple(after)
                return list(totals)

            before = [tiles.load(place, block.across * 4) for place in places]
            after = emit.carry(0, pairs, 1, before, step_of)
            for place, total in zip(places, after, strict=True):
                tiles.store(total, place, block.across * 4)


def _scale_of(block: Block) -> Any:
    """What scores are multiplied by when exponentials are taken: capped ones are scaled then."""
    return block.fill(1.0 if block.cap else block.scale)


def _load(base: Any, number: Any) -> Any:
    """Tile number `number`, of those that lie one after another."""
    return tiles.load(words(base, number * WORDS), TILE_ROW)
