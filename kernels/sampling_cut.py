"""Where top-k and top-p cut a row of logits off, by histograms of counts and weights: no sort.

The first one is of distances below the top, in units of the temperature. The bin that a cut falls
into is a range of keys (`kernels/ordering.py`), which the next ones part until it is one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from heddle.kernels import convert, emit, ordering
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.sampling import (
    BINS,
    ROUNDS,
    Parameters,
    Scores,
    number_of,
    shift_for,
    word_of,
)

arith = dialect("arith")

WeightAt = Callable[[Any, Any], Any]
"""int32 weights from a column on, given the logits there."""


def passes(target: Any, before: Any, weight: Any) -> Any:
    """Whether a running sum, which was `before`, passes `target` with the next `weight`."""
    return compare("less_equal", before, target) & compare("less", target, before + weight)


class Row(Protocol):
    """The row that is worked on, `lanes` logits at a time.

    No fewer than `parts` of its logits, or all, are no smaller than `floor`.
    """

    lanes: int
    length: Any
    floor: Any
    parts: Any

    def each(self, least: Any, body: Callable[[Any], None]) -> None:
        """Emits `body(x)` for logits, at least those that are no smaller than `least`."""

    def passed(self, least: Any, weight_at: WeightAt, target_of: Callable[[Any], Any]) -> Any:
        """The column where the running sum of weights passes the target for their total.

        Smaller logits than `least` have no weight.
        """


class Histogram(Protocol):
    """Counts and weights in `BINS` bins."""

    def clear(self) -> None:
        """Nothing was counted."""

    def add(self, bins: Any, weights: Callable[[], Any]) -> None:
        """Counts int32 weights; of bins from `BINS` on none."""

    def total(self) -> Any:
        """The sum of all weights."""

    def count(self, number: Any) -> Any:
        """How many were counted in a bin, an i64."""

    def walk(self, by: str, limit: Any, count: Any, weight: Any, bins: Any) -> list[Any]:
        """The bin in which `limit` is reached, by `"count"` or `"weight"`, `bins` for none.

        Also returns count and weight of all before it; `count` and `weight` are those before the
        first bin.
        """


@dataclass(frozen=True)
class Cut:
    """What stays: larger logits than `logit`, and equal ones before column `stop`."""

    logit: Any
    stop: Any


class Cuts:
    """Finds the cut of `row` with the histograms `first` and `finer`."""

    def __init__(self, row: Row, first: Histogram, finer: Histogram) -> None:
        self._row, self._first, self._finer = row, first, finer
        self._lanes, self._length = row.lanes, row.length

    def find(
        self, scores: Scores, settings: Parameters, above: Any = None, total: Any = None
    ) -> Cut:
        """The cut of the row that is worked on.

        Where the row gives but a part of its logits to `each`, what better ones weigh is `above`
        (without top-k: nothing), and what all of them weigh is `total`.
        """
        self._scores, self._above = scores, emit.index(0) if above is None else above
        kinds = [emit.register_type("float32"), emit.integer(64)]
        fewer = compare("less", settings.top_k, self._length)

        def search() -> list[Any]:
            few = compare("less_equal", settings.top_k, self._row.parts)
            counted = self._count_all(select(few, self._row.floor, -math.inf))
            weight = counted if total is None else total
            whole = [emit.constant(kinds[0], -math.inf), *map(emit.index, (0, 0)), weight]
            by_count = partial(self._narrow, "count", settings.top_k)
            types = [kinds[0], *[kinds[1]] * 3]
            found = emit.either(fewer, types, lambda: by_count(weight), lambda: whole)
            budget = settings.budget(found[-1])
            by_weight = partial(self._narrow, "weight", budget, weight)
            logit, kept, ties, _ = emit.either(settings.cuts, types, by_weight, lambda: found)
            last = partial(self._behind, logit, kept)
            (stop,) = emit.either(
                compare("less", kept, ties), kinds[1:], last, lambda: [self._length]
            )
            return [logit, stop]

        def everything() -> list[Any]:
            return [emit.constant(kinds[0], -math.inf), self._length]

        return Cut(*emit.either(fewer | settings.cuts, kinds, search, everything))

    def _count_all(self, least: Any) -> Any:
        """Fills the first histogram from `least` on; returns the sum of the weights."""
        self._first.clear()

        def count(x: Any) -> None:
            bins = select(compare("greater_equal", x, least), self._scores.bin(x), BINS)
            self._first.add(bins, partial(self._scores.weight, x))

        self._row.each(least, count)
        return self._first.total()

    def _narrow(self, by: str, limit: Any, total: Any) -> list[Any]:
        """The logit where as many or as much as `limit` is reached.

        Returns it, how many equal ones stay, how many there are, and the weight of all that stays;
        where the limit is not reached, -inf, 0, 0 and `total`.
        """
        zero = emit.index(0)
        number, count, weight = self._first.walk(by, limit, zero, self._above, emit.index(BINS))
        kinds = [emit.register_type("float32"), *[emit.integer(64)] * 3]

        def inside() -> list[Any]:
            high = self._scores.greatest_key(number)
            low = self._scores.greatest_key(number + 1) + 1
            state = [low, high, count, weight, zero, emit.index(1)]

            def part(_: Any, *state: Any) -> list[Any]:
                def further() -> list[Any]:
                    return self._part(by, limit, *state[:4])

                types = [value.type for value in state]
                return emit.either(compare("equal", state[-1], 1), types, further, lambda: state)

            _, key, before, lighter, ties, _ = emit.carry(0, ROUNDS, 1, state, part)
            logit = number_of(key)
            each = convert.cast(self._scores.weight(logit), "int32", "int64")
            kept = limit - before
            if by == "weight":
                kept = (limit - lighter + each - 1) // emit.maximum(each, 1)
            return [logit, kept, ties, lighter + kept * each]

        def nowhere() -> list[Any]:
            return [emit.constant(kinds[0], -math.inf), zero, zero, total]

        return emit.either(compare("less", number, BINS), kinds, inside, nowhere)

    def _part(self, by: str, limit: Any, low: Any, high: Any, count: Any, weight: Any) -> list[Any]:
        """Parts the keys from `low` to `high` into bins; the state of the bin of the cut."""
        width = high - low
        shift = shift_for(width)
        top, range_, narrow = (
            emit.splat(word, self._lanes)
            for word in (
                word_of(high),
                *(arith.trunci(emit.integer(32), x) for x in (width, shift)),
            )
        )
        self._finer.clear()

        def look(x: Any) -> None:
            below = top - ordering.key("float32", x)
            inside = compare("less_equal", below, range_, unsigned=True)
            self._finer.add(select(inside, below >> narrow, BINS), partial(self._scores.weight, x))

        self._row.each(number_of(low), look)
        bins = (width >> shift) + 1
        number, count, weight = self._finer.walk(by, limit, count, weight, bins)
        first = high - (number << shift)
        last = emit.maximum(low, first - (emit.index(1) << shift) + 1)
        going = arith.extui(emit.integer(64), compare("greater", shift, 0))
        return [last, first, count, weight, self._finer.count(number), going]

    def _behind(self, logit: Any, kept: Any) -> list[Any]:
        """The column behind the first `kept` logits that are equal to `logit`."""
        kind = emit.widen(emit.integer(32), self._lanes)

        def ties(column: Any, x: Any) -> Any:
            return arith.extui(kind, compare("equal", x, logit))

        return [self._row.passed(logit, ties, lambda total: kept - 1) + 1]
