"""A warp's tile of attention to keys and values of 8-bit floats, which it widens in registers.

They are exact in float16, which one instruction makes of two: so queries and shares are float16,
too. A product sums over the elements of a head in any order: a lane has four neighbours of a key in
a word, and of the queries the same ones. Of values, which are transposed as pairs of bytes, it
gets two keys by two neighbouring columns, and sorts them: the even columns of 16 are a tile of
eight, the odd ones another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _float8
from heddle.kernels.cuda._rounding import packed
from heddle.kernels.cuda.flash import softmax, stages
from heddle.kernels.cuda.flash.warp import Warp, WarpTile
from heddle.kernels.cuda.products import mma
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm, vector = dialect("llvm"), dialect("vector")

_SORTED = 0x3120  # The first and third byte of a word, then the others.


class NarrowWarp(Warp):
    """The state of a warp's tile and its steps, for keys of the dtype `held`."""

    def __init__(
        self,
        dtype: str,
        held: str,
        layout: stages.Layout,
        shared: mma.DynamicShared,
        tile: WarpTile,
        scores: softmax.Scores,
    ) -> None:
        self._codes = held
        super().__init__("float16", layout, shared, tile, scores)
        self._unit: Any = None  # What scores are to be multiplied by.
        if dtype == "bfloat16":
            fragments = self._held or [self._queries(i, 0) for i in range(self._slices)]
            narrowed, self._unit = _in_float16(fragments)
            if self._held:
                self._held = narrowed
            else:
                self._store_queries(narrowed)

    def _place(self, tile: WarpTile) -> None:
        lane, layout = _block.thread() % _block.WARP, self._layout
        line, member = lane // 4, lane % 4
        self._q = layout.queries.at(tile.line + line, member // 2) + member % 2 * 8
        self._k = layout.keys.at(tile.key + line, 0) + member * 4

    def _queries(self, i: int, down: int) -> list[Any]:
        rows = []
        for below in (0, 8):
            place = self._layout.queries.beyond(self._q, 16 * down + below, 2 * i)
            rows.append(_block.lanes(self._shared.load(place, emit.integer(32), 2)))
        return [word for pair in zip(*rows, strict=True) for word in pair]

    def _store_queries(self, fragments: Sequence[list[Any]]) -> None:
        """Puts fragments of one line of tiles in place of the queries, for all who have them.

        They are there when the block has met for the first stage.
        """
        _block.barrier()  # Everybody has read them.
        one = emit.compare("equal", emit.as_index(self._tile.key + self._tile.column), 0)
        with emit.when(one):
            for i, words in enumerate(fragments):
                for below in (0, 1):
                    place = self._layout.queries.beyond(self._q, 8 * below, 2 * i)
                    pair = vector.from_elements(emit.widen(words[0].type, 2), words[below::2])
                    self._shared.store(pair, place)

    def _key_fragments(self, stage: Size, pair: int, i: int) -> list[Any]:
        words = []
        for below in (0, 8):
            place = self._layout.keys.beyond(stage + self._k, 16 * pair + below, i)
            word = self._shared.load(place, emit.integer(32), 1)
            words += _float8.halves(word, self._codes)
        return words

    def _value_fragments(self, stage: Size, pair: int) -> Iterator[list[Any]]:
        selector = emit.constant(emit.integer(32), _SORTED)
        for both in super()._value_fragments(stage, pair):
            for i in (0, 2):
                few, more = (
                    _float8.halves(mma.bytes_of(word, word, selector), self._codes)
                    for word in both[i : i + 2]
                )
                yield [few[0], more[0], few[1], more[1]]

    def _scores(self, stage: Size) -> list[Any]:
        scores = super()._scores(stage)
        return scores if self._unit is None else [score * self._unit for score in scores]

    def pairs(self, state: Sequence[Any]) -> Iterator[tuple[int, Size, Sequence[Any]]]:
        """As of any warp; a lane has four neighbouring columns."""
        sums = self.split(state)[2]
        for start in range(0, len(sums), 8):  # An even tile, then an odd one.
            column = self._tile.column + self.member * 4 + start // 8 * 16
            for place in range(start, start + 4):
                half, right = place % 4 // 2, place % 2 * 2
                yield half, column + right, (sums[place], sums[place + 4])


def _in_float16(held: list[list[Any]]) -> tuple[list[list[Any]], Any]:
    """Fragments of bfloat16 over a power of two, so that all the warp's are in range; that power.

    It is 1 where they are below 2^15. What is lost of one is below 2^-24, or below 2^-38 of the
    greatest one.
    """
    word, single = emit.integer(32), emit.register_type("float32")
    pairs = [[(x << 16, x & 0xFFFF0000) for x in map(emit.Number, words)] for words in held]
    top = emit.constant(word, 0)
    for half in chain.from_iterable(chain.from_iterable(pairs)):
        top = emit.maximum(half & 0x7FFFFFFF, top)
    top = _block.across(top, emit.maximum, _block.WARP)
    beyond = emit.maximum((top >> 23) - (127 + 14), emit.constant(word, 0))
    down, up = (llvm.bitcast(single, bits << 23) for bits in (127 - beyond, beyond + 127))
    found = []
    for words in pairs:
        halves = [[llvm.bitcast(single, half) * down for half in pair] for pair in words]
        found.append([packed(pair, "float16") for pair in halves])
    return found, up
