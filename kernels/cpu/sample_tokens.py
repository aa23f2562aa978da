"""The next token of each row of logits: what it means is said by `graph/ops/sampling.py`.

A task is one row. It is read from memory for its largest logits, and once more from cache for the
sums of weights of its parts, of which one is then looked through for the token. Where top-k or
top-p cut, a sample of the row says about where. The second reading adds up what is better than that
and lists what lies around it, so that the search (`kernels/sampling_cut.py`) is of few logits; in
the rare case that the cut lies elsewhere, it is of all of them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.ranking.histogram import Histogram, any_lane
from heddle.kernels.cpu.ranking.logits import ROOM, Listed, Logits, Parts, Sum
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sampling import (
    BINS,
    Scores,
    is_finite,
    number_of,
    parameters,
    unsupported,
)
from heddle.kernels.sampling_cut import Cut, Cuts
from heddle.kernels.spec import Launch, Spec, product

arith = dialect("arith")

_FINITE = float.fromhex("-0x1.fffffep127")


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return Launch((spec.operands[0].shape[0], 1, 1), product((*spec.operands[0].shape, 24)))


def emit_sample_tokens(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows."""
    frame = host.frame(spec, machine)
    sampler = _Sampler(frame)
    for row in emit.loop(frame.first, frame.last):
        memory.store(sampler.token(row), frame.outputs[0], row, "int64")


class _Sampler:
    """What is known of the row that is worked on, on the stack."""

    def __init__(self, frame: host.Frame) -> None:
        self.frame, self.row = frame, Logits(frame)
        self.lanes, self.length = self.row.lanes, self.row.length
        self.parts, self.listed = Parts(self.row), Listed(self.row)
        self.kept, self.dropped, self.inside, self.below = (Sum(self.lanes) for _ in range(4))
        self.above = host.byte_buffer(8)
        self.first = Histogram(self.lanes)
        finer = Histogram(self.lanes)
        self.of_all = Cuts(self.row, self.first, finer)
        self.of_listed = Cuts(self.listed, self.first, finer)
        self.places = crosslane.numbers(emit.integer(32), self.lanes)

    def token(self, row: Any) -> Any:
        """The token of `row`, an i64."""
        top = self.row.start(row)

        def choose() -> list[Any]:
            self.settings = parameters(self.frame, row, self.length)
            self.scores = Scores(top, self.settings.inverse)
            greedy = self.settings.greedy
            return emit.either(
                greedy, [emit.integer(64)], lambda: [self._first_of(top)], self._draw
            )

        return emit.either(is_finite(top), [emit.integer(64)], choose, lambda: [emit.index(-1)])[0]

    def _first_of(self, top: Any) -> Any:
        """The first place of `top`, which is in the first part that has it."""
        one = emit.constant(emit.integer(32), 1, self.lanes)
        for part in emit.loop(0, self.row.parts):
            here = compare("equal", memory.load(self.row.tops, part, "float32"), top)
            self.parts.put(part, arith.extui(emit.integer(64), here))

        def weights(column: Any, x: Any) -> Any:
            return select(compare("equal", x, top), one, 0)

        return self.row.find(self.parts, weights, emit.index(0))

    def _draw(self) -> list[Any]:
        settings = self.settings
        fewer = compare("less", settings.top_k, self.length)
        few = fewer & compare("less_equal", settings.top_k, self.row.parts)
        number, word = emit.register_type("float32"), emit.integer(64)
        infinite = emit.constant(number, math.inf)

        def by_sample() -> list[Any]:
            return emit.either(
                fewer | settings.cuts,
                [number] * 2,
                partial(self._guess, fewer),
                lambda: [-infinite, infinite],
            )

        better, low = emit.either(few, [number] * 2, lambda: [infinite, self.row.floor], by_sample)
        self._weigh(better, None, low, select(fewer, low, -math.inf))
        above = memory.load(self.above, 0, "int64")
        inside = self.inside.total()
        total = above + inside + self.below.total()
        budget = settings.budget(total)
        count = self.listed.count
        # The cut is among the listed ones.
        within = compare("less", above, budget) & compare("less_equal", budget, above + inside)
        within = select(fewer, few | compare("greater_equal", count, settings.top_k), within)
        within = within | ((fewer | settings.cuts) ^ True)

        def of_listed() -> list[Any]:
            cut = self.of_listed.find(self.scores, settings, above, total)
            self._add_listed(cut)
            return [cut.logit, cut.stop]

        def of_all() -> list[Any]:
            cut = self.of_all.find(self.scores, settings)
            self._weigh(cut.logit, cut.stop, infinite, cut.logit)
            return [cut.logit, cut.stop]

        within = within & compare("less_equal", count, ROOM)
        cut = Cut(*emit.either(within, [number, word], of_listed, of_all))
        return [
            self.row.find(self.parts, partial(self._kept, cut), settings.target(self.parts.total()))
        ]

    def _kept(self, cut: Cut, column: Any, x: Any) -> Any:
        """The weights of what is kept, else 0."""
        weight = self.scores.weight(x)
        kept = self._better(cut.logit, cut.stop, column, x)
        return select(kept & compare("greater_equal", weight, self.settings.least), weight, 0)

    def _better(self, logit: Any, stop: Any, column: Any, x: Any) -> Any:
        """What is larger than `logit`, or equal and before column `stop`, if there is one."""
        larger = compare("greater", x, logit)
        if stop is None:
            return larger
        left = arith.trunci(emit.integer(32), stop - column)
        return larger | (compare("equal", x, logit) & compare("less", self.places, left))

    def _weigh(self, logit: Any, stop: Any, low: Any, least: Any) -> None:
        """Adds up the row and lists what is from `low` on and not better than `logit` and `stop`.

        Smaller logits than `least` count for nothing.
        """
        for item in (self.inside, self.below, self.listed):
            item.clear()
        memory.store(emit.index(0), self.above, 0, "int64")

        def at(column: Any, x: Any) -> None:
            with emit.when(any_lane(compare("greater_equal", x, least))):
                weight = self.scores.weight(x)
                better = self._better(logit, stop, column, x)
                heavy = compare("greater_equal", weight, self.settings.least)
                self.kept.add(select(better & heavy, weight, 0))
                light = better & (heavy ^ True)
                with emit.when(any_lane(light)):
                    self.dropped.add(select(light, weight, 0))
                with emit.when(any_lane(better ^ True)):
                    worse(x, select(better, 0, weight), better ^ True)

        def worse(x: Any, weight: Any, here: Any) -> None:
            here = here & compare("greater_equal", x, low)
            self.below.add(select(here, 0, weight))
            with emit.when(any_lane(here)):
                self.inside.add(select(here, weight, 0))
                self.listed.add(x, here)

        for part in emit.loop(0, self.row.parts):
            self.kept.clear()
            self.dropped.clear()
            self.listed.mark(part)
            self.row.vectors(*self.row.columns(part), at)
            kept = self.kept.total()
            self.parts.put(part, kept)
            above = memory.load(self.above, 0, "int64") + kept + self.dropped.total()
            memory.store(above, self.above, 0, "int64")
        self.listed.mark(self.row.parts)

    def _add_listed(self, cut: Cut) -> None:
        """Adds what is kept of the listed logits to the weights of the parts."""
        for part in emit.loop(0, self.row.parts):
            # Of equal ones all are kept before the part where they end, and none behind it.
            start, _ = self.row.columns(part)
            equal = compare("less", start, cut.stop)
            self.kept.clear()

            def add(x: Any, equal: Any = equal) -> None:
                kept = compare("equal", x, cut.logit) & equal | compare("greater", x, cut.logit)
                weight = self.scores.weight(x)
                heavy = compare("greater_equal", weight, self.settings.least)
                self.kept.add(select(kept & heavy, weight, 0))

            self.listed.in_part(part, add)
            self.parts.put(part, self.parts.of(part) + self.kept.total())
        with emit.when(compare("less", cut.stop, self.length)):
            part = sizes.floordiv(cut.stop, self.row.size)
            self.row.weigh(self.parts, part, cut.logit, partial(self._kept, cut))

    def _guess(self, fewer: Any) -> list[Any]:
        """Two logits between which the cut should be, from the first vectors of all parts.

        Of the rest of a part nothing is known but its largest logit, which counts as itself.
        """
        self.first.clear()
        scores = self.scores
        share = arith.sitofp(emit.register_type("float32"), self.row.size // self.lanes)

        for part in emit.loop(0, self.row.parts):
            x = self.row.first_of(part)
            top = memory.load(self.row.tops, part, "float32")
            bins = select(compare("equal", x, top) & (fewer ^ True), BINS, scores.bin(x))
            self.first.add(bins, partial(scores.weight, x))

        def add_tops(place: Any, mask: Any) -> None:
            x = memory.load(self.row.tops, place, "float32", self.lanes, mask)
            bins = scores.bin(x) if mask is None else select(mask, scores.bin(x), BINS)

            def weights() -> Any:
                weight = convert.cast(scores.weight(x), "int32", "float32")
                return arith.fptosi(bins.type, weight / emit.like(weight, share))

            self.first.add(bins, weights)

        with emit.when(fewer ^ True):
            for place, mask in host.vectors(0, self.row.parts, self.lanes):
                add_tops(place, mask)
        return emit.either(
            fewer, [emit.register_type("float32")] * 2, self._around_count, self._around_share
        )

    def _around_count(self) -> list[Any]:
        """Around the k-th largest: everything from below it on, so that top-p has it all."""
        double = emit.register_type("float64")
        sampled = arith.sitofp(double, self.row.parts * self.lanes)
        share = sampled / arith.sitofp(double, self.length)
        count = arith.sitofp(double, self.settings.top_k) * share
        slack = 4.0 * emit.sqrt(count) + 4.0
        limit = convert.cast(count + slack, "float64", "int64")
        return [
            emit.constant(emit.register_type("float32"), math.inf),
            self._reached("count", limit)[1],
        ]

    def _around_share(self) -> list[Any]:
        """Around the share p: an error e of the sample's weights moves it by about p (1 - p) e."""
        p = self.settings.top_p
        slack = p * (1.0 - p) * 0.2 + 0.01
        total = arith.sitofp(p.type, self.first.total())
        low, high = (
            convert.cast((p + side) * total, "float64", "int64") for side in (-slack, slack)
        )
        return [self._reached("weight", low)[0], self._reached("weight", high)[1]]

    def _reached(self, by: str, limit: Any) -> list[Any]:
        """What the better logits are larger than, and the least logit, where `limit` is reached."""
        zero = emit.index(0)
        number, _, _ = self.first.walk(by, limit, zero, zero, emit.index(BINS))
        last = self.scores.greatest_key(number + 1) + 1
        lowest = emit.constant(emit.register_type("float32"), _FINITE)
        low = select(compare("less", number, BINS), number_of(last), lowest)
        return [number_of(self.scores.greatest_key(number)), low]


KERNEL = Kernel("sample_tokens", "cpu", emit_sample_tokens, launch, unsupported)
