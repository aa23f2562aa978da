"""A warp's tile of attention on tensor cores: scores, an online softmax in base two, and sums.

Fragments are those of mma.sync.m16n8k16 (PTX ISA 9.0, "Matrix Fragments"): lane 4 g + t has of
16 x 8 scores the columns 2 t and 2 t + 1 of the rows g and g + 8. Two such tiles, rounded to 16
bits, are the fragment of a 16 x 16 matrix that multiplies the values: scores stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda._rounding import packed
from heddle.kernels.cuda.flash import softmax
from heddle.kernels.cuda.flash.stages import Layout
from heddle.kernels.cuda.products import mma
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class WarpTile:
    """What a warp has of a tile: 16 `down` lines of queries, and `keys` of each stage.

    Of their values it has `columns` from `column` on.
    """

    line: Size
    down: int
    key: Size
    keys: int
    column: Size
    columns: int


class Warp(softmax.Softmax):
    """The state of a warp's tile and its steps.

    The state is, for each line of the lane, the greatest score so far and the lane's part of the
    sum of powers, then the fragments of the weighted values.
    """

    def __init__(
        self,
        dtype: str,
        layout: Layout,
        shared: mma.DynamicShared,
        tile: WarpTile,
        scores: softmax.Scores,
    ) -> None:
        self._kind, self._dtype = mma.KINDS[dtype, dtype], dtype
        self._layout, self._shared, self._tile = layout, shared, tile
        self._item = layout.keys.size // layout.size
        super().__init__(scores, tile.keys, tile.down, tile.key)
        self._v = self._first_value(tile)
        self._place(tile)
        self._slices = layout.size // 16
        # One line of tiles: queries stay in registers.
        held = tile.down == 1 and not layout.is_wide
        self._held = [self._queries(i, 0) for i in range(self._slices)] if held else None

    def _first_value(self, tile: WarpTile) -> Size:
        """Where the lane reads the first values."""
        lane, layout = _block.thread() % _block.WARP, self._layout
        place = layout.keys.at(tile.key + lane % 16, lane // 16) + layout.value_offset
        return place + tile.column * self._item

    def _place(self, tile: WarpTile) -> None:
        """Works out where the lane reads the first queries and keys."""
        lane, layout = _block.thread() % _block.WARP, self._layout
        self._q = layout.queries.at(tile.line + lane % 16, lane // 16)
        self._k = layout.keys.at(tile.key + lane % 8 + lane // 16 * 8, lane // 8 % 2)

    def _queries(self, i: int, down: int) -> list[Any]:
        """The fragment of 16 rows of queries, and 16 elements of their heads."""
        place = self._layout.queries.beyond(self._q, 16 * down, 2 * i)
        return mma.load_matrices(self._shared.at(place), False)

    def _key_fragments(self, stage: Size, pair: int, i: int) -> list[Any]:
        """Those of two tiles of eight keys, and 16 elements of their heads."""
        place = self._layout.keys.beyond(stage + self._k, 16 * pair, 2 * i)
        return mma.load_matrices(self._shared.at(place), False)

    def _value_fragments(self, stage: Size, pair: int) -> Iterator[list[Any]]:
        """Those of 16 keys, and two tiles of eight columns of their values, again and again."""
        for i in range(self._tile.columns * self._item // (2 * mma.CHUNK)):
            place = self._layout.keys.beyond(stage + self._v, 16 * pair, 2 * i)
            yield mma.load_matrices(self._shared.at(place), True)

    @property
    def lines(self) -> list[Size]:
        """The lines of the tile that this lane has scores of."""
        first = self._tile.line + self.group
        return [first + 8 * i for i in range(2 * self._tile.down)]

    def start(self) -> list[Any]:
        """The state before the first key."""
        element, lines = emit.register_type("float32"), 2 * self._tile.down
        zero, top = emit.constant(element, 0.0), emit.constant(element, -math.inf)
        return [top] * lines + [zero] * (lines + self._tile.down * self._tile.columns // 8 * 4)

    def split(self, state: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Maxima, sums of powers and fragments."""
        lines = 2 * self._tile.down
        return list(state[:lines]), list(state[lines : 2 * lines]), list(state[2 * lines :])

    def step(
        self,
        stage: Size,
        first: Size,
        edge: Any,
        ranges: Sequence[softmax.Range],
        state: Sequence[Any],
    ) -> list[Any]:
        """The state after the keys from `first` on, which are in the stage at byte `stage`.

        Where `edge` holds, keys outside of the `ranges` of the lines are not seen.
        """
        scores = self._biased(self._scores(stage), first)
        scores = emit.either(
            edge,
            [value.type for value in scores],
            lambda: self.seen(scores, first, ranges),
            lambda: scores,
        )
        tops, totals, sums = self.split(state)
        scores, tops, totals, fades = self.shares(scores, tops, totals)
        shares = [packed(scores[i : i + 2], self._dtype) for i in range(0, len(scores), 2)]
        across = self._tile.columns // 8 * 4
        for place in range(len(sums)):
            line = place // across * 2 + place % 4 // 2
            sums[place] = sums[place] * fades[line]
        return [*tops, *totals, *self._add_values(stage, shares, sums)]

    def totals(self, state: Sequence[Any]) -> list[Any]:
        """The sums of powers of the lines, each over all lanes of the row."""
        return self.sums(self.split(state)[1])

    def pairs(self, state: Sequence[Any]) -> Iterator[tuple[int, Size, Sequence[Any]]]:
        """The weighted values: which of the lines, the column, and the values of two columns."""
        sums, across = self.split(state)[2], self._tile.columns // 8
        for place in range(0, len(sums), 2):
            tile, half = place // 4, place % 4 // 2
            column = self._tile.column + self.member * 2 + tile % across * 8
            yield tile // across * 2 + half, column, sums[place : place + 2]

    def _scores(self, stage: Size) -> list[Any]:
        """The products of queries and keys, fragment by fragment."""
        tiles, down = self._tile.keys // 8, self._tile.down
        sums = [emit.constant(emit.register_type("float32"), 0.0)] * (down * tiles * 4)
        for i in range(self._slices):
            queries = [self._held[i]] if self._held else [self._queries(i, d) for d in range(down)]
            for pair in range(tiles // 2):
                keys = self._key_fragments(stage, pair, i)
                self._multiply(queries, keys, sums, tiles, 2 * pair)
        return sums

    def _add_values(self, stage: Size, shares: Sequence[Any], sums: list[Any]) -> list[Any]:
        """Adds the values, weighted by the fragments `shares`."""
        tiles, down, across = self._tile.keys // 8, self._tile.down, self._tile.columns // 8
        for pair in range(tiles // 2):
            # The words of two tiles: rows g and g + 8 of the one, then of the other.
            weights = [shares[(d * tiles + 2 * pair) * 2 :][:4] for d in range(down)]
            for i, values in enumerate(self._value_fragments(stage, pair)):
                self._multiply(weights, values, sums, across, 2 * i)
        return sums

    def _multiply(
        self, a: Sequence[Any], b: Sequence[Any], sums: list[Any], across: int, tile: int
    ) -> None:
        """Adds to tiles `tile` and `tile` + 1 of each line of tiles, `across` in each."""
        for down, left in enumerate(a):
            for part in range(2):
                here = 4 * (down * across + tile + part)
                right = b[2 * part : 2 * part + 2]
                sums[here : here + 4] = mma.multiply(self._kind, left, right, sums[here : here + 4])

    def _biased(self, scores: list[Any], first: Size) -> list[Any]:
        scores, bias = self._scoring.unmasked(scores), self._scoring.bias
        if bias is None:
            return scores
        found = list(scores)
        for number, line in enumerate(self.lines):
            for place in self._places(number):
                key = first + self._tile.key + self.column(place)
                found[place] = bias(line, key, scores[place])
        return found
