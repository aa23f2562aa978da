"""An online softmax in base two, of the scores that a lane has of some lines and keys.

Scores are fragments of mma.sync.m16n8k16 or of wgmma.m64nNk16, which have the same layout (PTX ISA
9.0, "Matrix Fragments", "Register Fragments"): lane 4 g + t has of each 8 columns 2 t and 2 t + 1
of the rows g and g + 8.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _special
from heddle.kernels.functions.powers_of_two import LOG2_E, finite
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, llvm, vector = (dialect(name) for name in ("arith", "llvm", "vector"))

QUAD = 4
"""Lanes that share a row."""

MOST_CAP = 512.0
"""The greatest cap of scores, which err by 2 ** -21 of it."""

Bias = Callable[[Size, Size, Any], Any]
"""The score of a row and a key, as a mask changes it."""


Range = tuple[Size | None, Size]
"""The first key that a row sees, None for all up to the last; and the one after its last."""


def in_words(range_: Range) -> Range:
    """The range in 32 bits: a lane holds those of all its rows."""
    low, high = range_
    word = emit.integer(32)
    return None if low is None else arith.trunci(word, low), arith.trunci(word, high)


@dataclass(frozen=True)
class Scores:
    """How a score becomes a power of two: 2 ** (`factor` * score).

    `steep`: a score x is 1 / (1 + 2 ** (`steep` * x)) first, where it has a cap. `before`: scores
    are multiplied by it then, since they may change sign or get a bias. `apart`: times `factor` a
    score may be -inf, so that the greatest one is taken off before. `cap`: so much more than scaled
    scores are those that become powers.
    """

    factor: float
    before: float | None
    bias: Bias | None
    apart: bool = False
    steep: float | None = None
    cap: float = 0.0

    @staticmethod
    def of(scale: float, cap: float, bias: Bias | None, added: bool) -> Scores:
        """`added`: the bias adds to scaled scores, else it selects.

        What is added may be the least number of its type: a mask that hides nothing where all
        keys have it. A score s with a `cap`, where it is not 0, would be cap * tanh(s / cap), and
        is 2 * cap / (1 + e ** (-2 * s / cap)), which is `cap` more: no share changes by that.
        """
        steep = None
        if cap:
            steep, scale = -2 * LOG2_E * scale / cap, 2 * cap
        factor, before = scale * LOG2_E, None
        if added:
            factor, before = LOG2_E, scale
        elif scale <= 0:
            factor, before = 1.0, scale * LOG2_E
        return Scores(factor, before, bias, added, steep, cap)

    def unmasked(self, products: Sequence[Any]) -> list[Any]:
        """The scores of products of queries and keys, before a mask."""
        scores = list(products)
        if self.steep is not None:
            powers = [_special.exp2(score * self.steep) for score in scores]
            scores = [_special.reciprocal(power + 1.0) for power in powers]
        if self.before is not None:
            scores = [score * self.before for score in scores]
        return scores


class Softmax:
    """How the scores of a lane become shares.

    Args:
        scoring: What a score means.
        keys: How many keys the scores are of.
        tiles: How many tiles of 16 lines; the lane has scores of two lines of each.
        first: The first key, of those that are at hand.
        chains: Maxima, and sums, of a line that do not wait for each other; they take registers.
    """

    def __init__(
        self, scoring: Scores, keys: int, tiles: int, first: Size = 0, chains: int = 1
    ) -> None:
        self._scoring, self._keys, self._lines, self._first = scoring, keys, 2 * tiles, first
        self._chains = chains
        lane = _block.thread() % _block.WARP
        self.group, self.member = lane // QUAD, lane % QUAD

    def shares(
        self, scores: Sequence[Any], tops: Sequence[Any], totals: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """The powers of the scores, and of each line: the new maximum and sum, and what fades.

        What was added up for a line before is to be multiplied by the last of these.
        """
        found, bests, sums, fades = list(scores), [], [], []
        for line, top in enumerate(tops):  # One by one: all maxima first take more registers.
            best = self.best(line, scores, top)
            shift = self.shift(best)
            fade = self.power(top, shift)
            total = self.raise_line(line, found, shift)
            bests.append(best)
            sums.append(emit.fma(totals[line], fade, total))
            fades.append(fade)
        return found, bests, sums, fades

    def best(self, line: int, scores: Sequence[Any], top: Any) -> Any:
        """The maximum of a line, that so far among them."""
        best = self._joined([scores[place] for place in self._places(line)], arith.maxnumf)
        return arith.maxnumf(top, _block.across(best, arith.maxnumf, QUAD))

    def raise_line(self, line: int, scores: list[Any], shift: Any) -> Any:
        """Puts the powers in place of a line's scores, and returns their sum."""
        places = self._places(line)
        for place in places:
            scores[place] = self.power(scores[place], shift)
        return self._joined([scores[place] for place in places], operator.add)

    def shift(self, top: Any) -> Any:
        """What `power` takes: before the first key that is seen, there is nothing to shift by."""
        top = finite(top)
        return -top if self._scoring.apart else -(top * self._scoring.factor)

    def power(self, score: Any, shift: Any) -> Any:
        """2 ** (factor * score + shift), where scores are `apart` 2 ** (factor * (score + shift)).

        Below 2 ** -126 it is 0: to tell such powers from 0 would take three more instructions.
        """
        factor = self._scoring.factor
        exponent = (
            (score + shift) * factor if self._scoring.apart else emit.fma(score, factor, shift)
        )
        return _special.exp2(exponent)

    def sums(self, totals: Sequence[Any]) -> list[Any]:
        """The sums of the lines, each over all lanes of the row."""
        return [_block.across(total, lambda a, b: a + b, QUAD) for total in totals]

    def inverse(self, top: Any, total: Any, sink: Any = None) -> Any:
        """What to multiply by in place of dividing by a row's sum of powers; 1 where that is 0.

        `sink`: the scaled score of one more key, which adds its power to the sum.

        rcp.approx errs by 2 ** -23. A division of full precision would be a call, for which the
        assembler lets every wgmma of the kernel wait for the one before it.
        """
        if sink is not None:
            unit = LOG2_E / self._scoring.factor
            score = emit.fma(sink, unit, self._scoring.cap * unit)
            total = total + self.power(score, self.shift(top))
        return _special.reciprocal(emit.select(emit.compare("equal", total, 0.0), 1.0, total))

    def seen(self, scores: Sequence[Any], first: Size, ranges: Sequence[Range]) -> list[Any]:
        """-inf in place of the scores of keys outside of the ranges."""
        word, found = emit.integer(32), list(scores)
        own = arith.trunci(word, first + self._first + self.member * 2)

        def column(end: Any) -> Any:
            return emit.minimum(emit.maximum(end - own, 0), self._keys)

        for number, (low, high) in enumerate(ranges):
            start, stop = None if low is None else column(low), column(high)
            for place in self._places(number):
                here = emit.constant(word, self._fixed(place))
                seen = emit.compare("less", here, stop)
                if start is not None:
                    seen = seen & emit.compare("less_equal", start, here)
                found[place] = emit.select(seen, scores[place], -math.inf)
        return found

    def _joined(self, values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
        """All values combined, in so many chains."""
        count = self._chains
        parts = [functools.reduce(combine, values[i::count]) for i in range(count)]
        while len(parts) > 1:
            parts = [functools.reduce(combine, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0]

    def _places(self, line: int) -> list[int]:
        """Where the scores of a line are in their fragments."""
        tiles = self._keys // 8
        return [
            (line // 2 * tiles + tile) * 4 + line % 2 * 2 + part
            for tile in range(tiles)
            for part in range(2)
        ]

    def _fixed(self, place: int) -> int:
        """The column of a score, as far as it is the same in all lanes."""
        return place // 4 % (self._keys // 8) * 8 + place % 2

    def column(self, place: int) -> Size:
        """The column of the lane's score at a place."""
        return self.member * 2 + self._fixed(place)
