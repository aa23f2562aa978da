"""The next token of each row of logits: what it means is said by `graph/ops/sampling.py`.

A task is one row, which is read from memory once and then from the caches: for its largest logit,
for a histogram of weights where top-k or top-p cut (`kernels/sampling_cut.py`: no sort), and for
the sums of weights of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, host, memory, rows, sizes
from heddle.kernels.cpu._histogram import Histogram, any_lane
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sampling import CHUNKS, Parameters, Scores, is_finite, parameters, unsupported
from heddle.kernels.sampling_cut import Cuts, WeightAt
from heddle.kernels.spec import Launch, Spec, product

arith, vector = dialect("arith"), dialect("vector")


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
    """The row that is worked on, and its memory on the stack."""

    def __init__(self, frame: host.Frame) -> None:
        self.frame = frame
        self.dtype = frame.spec.operands[0].dtype
        self.lanes = host.lanes_for(frame.machine, ["float32"])
        self.length = emit.as_index(frame.size(frame.spec.operands[0].shape[1]))
        self.lowest = emit.constant(emit.register_type("float32"), -math.inf, self.lanes)
        self.places = crosslane.numbers(emit.integer(32), self.lanes)
        self.size = sizes.ceildiv(self.length, CHUNKS * self.lanes) * self.lanes
        self.parts = sizes.ceildiv(self.length, emit.maximum(self.size, 1))
        self.sums, self.weights, self.found = map(host.byte_buffer, (8 * CHUNKS, 4 * self.lanes, 8))
        self.cuts = Cuts(self, Histogram(self.lanes), Histogram(self.lanes))

    def token(self, row: Any) -> Any:
        """The token of `row`, an i64."""
        self.row = row
        top = self._top()

        def choose() -> list[Any]:
            settings = parameters(self.frame, row, self.length)
            draw = partial(self._draw, Scores(top, settings.inverse), settings)
            return emit.either(
                settings.greedy, [emit.integer(64)], lambda: [self._first_of(top)], draw
            )

        return emit.either(is_finite(top), [emit.integer(64)], choose, lambda: [emit.index(-1)])[0]

    def _top(self) -> Any:
        """The largest logit; `floor` is the smallest of the largest ones of all parts."""
        maximum = partial(bodies.maximum, "float32")

        def part(start: Any, top: Any, floor: Any) -> list[Any]:
            count = sizes.least(self.size, self.length - start)
            largest = rows.reduce(
                count, self.lowest, lambda i, mask: self.x_at(start + i, mask), maximum
            )
            return [maximum(top, largest), emit.minimum(largest, floor)]

        infinite = [emit.constant(emit.register_type("float32"), x * math.inf) for x in (-1, 1)]
        top, self.floor = emit.carry(0, self.length, self.size, infinite, part)
        return top

    def x_at(self, column: Any, mask: Any) -> Any:
        """The logits from `column` on, a multiple of the lanes; what is not allowed is -inf."""
        place = self.row * self.length + column
        x = memory.load(self.frame.inputs[0], place, self.dtype, self.lanes, mask)
        if mask is not None:
            x = select(mask, x, self.lowest)
        if len(self.frame.inputs) > 4:
            x = select(self._allowed(emit.as_index(column)), x, self.lowest)
        return x

    def _allowed(self, column: Any) -> Any:
        """The bits of the mask for a vector, none beyond its last word."""
        words = emit.as_index(self.frame.size(self.frame.spec.operands[4].shape[1]))
        dtype = f"uint{self.lanes}"

        def load() -> list[Any]:
            place = (self.row * words * 32 + column) // self.lanes
            return [memory.load(self.frame.inputs[4], place, dtype)]

        (bits,) = emit.either(
            compare("less", column, words * 32),
            [emit.integer(self.lanes)],
            load,
            lambda: [emit.constant(emit.integer(self.lanes), 0)],
        )
        one = vector.broadcast(ir.VectorType.get([1], emit.integer(self.lanes)), bits)
        return vector.bitcast(emit.widen(emit.integer(1), self.lanes), one)

    def vectors(self, start: Any, stop: Any, values: list[Any], body: Any) -> list[Any]:
        """`body(column, x, *values)` gives the next values, over a part of the row."""
        whole = stop - sizes.mod(stop - start, self.lanes)
        values = emit.carry(
            start, whole, self.lanes, values, lambda i, *v: body(i, self.x_at(i, None), *v)
        )
        rest = host.first_lanes(stop - whole, self.lanes)
        return list(body(whole, self.x_at(whole, rest), *values))

    def each(self, least: Any, body: Callable[[Any], None]) -> None:
        """See `heddle.kernels.sampling_cut.Row`."""

        def at(column: Any, x: Any) -> list[Any]:
            with emit.when(any_lane(compare("greater_equal", x, least))):
                body(x)
            return []

        self.vectors(emit.index(0), self.length, [], at)

    def _first_of(self, top: Any) -> Any:
        """The first place of `top`."""
        one = emit.constant(emit.integer(32), 1, self.lanes)

        def weights(column: Any, x: Any) -> Any:
            return select(compare("equal", x, top), one, 0)

        return self.passed(top, weights, lambda total: emit.index(0))

    def _draw(self, scores: Scores, settings: Parameters) -> list[Any]:
        cut = self.cuts.find(scores, settings)

        def weights(column: Any, x: Any) -> Any:
            """The weights of what is kept, else 0."""
            left = arith.trunci(emit.integer(32), cut.stop - column)
            tied = compare("equal", x, cut.logit) & compare("less", self.places, left)
            kept = compare("greater", x, cut.logit) | tied
            weight = scores.weight(x)
            return select(kept & compare("greater_equal", weight, settings.least), weight, 0)

        return [self.passed(cut.logit, weights, settings.target)]

    def passed(self, least: Any, weights: WeightAt, target_of: Callable[[Any], Any]) -> Any:
        """See `heddle.kernels.sampling_cut.Row`."""
        size = self.size
        zero = emit.constant(emit.integer(64), 0, self.lanes // 2)

        def add(column: Any, x: Any, even: Any, odd: Any) -> list[Any]:
            def pairs() -> list[Any]:
                pairs = vector.bitcast(zero.type, weights(column, x))
                return [even + (pairs & (2**32 - 1)), odd + (pairs >> 32)]

            reaches = any_lane(compare("greater_equal", x, least))
            return emit.either(reaches, [zero.type] * 2, pairs, lambda: [even, odd])

        def add_chunk(start: Any, total: Any) -> list[Any]:
            stop = sizes.least(start + size, self.length)
            even, odd = self.vectors(start, stop, [zero, zero], add)
            part = crosslane.across(even + odd, rows.add)
            memory.store(part, self.sums, sizes.floordiv(start, size), "int64")
            return [total + part]

        (total,) = emit.carry(0, self.length, size, [emit.index(0)], add_chunk)
        target = target_of(total)

        def is_in(before: Any, weight: Any) -> Any:
            return compare("less_equal", before, target) & compare("less", target, before + weight)

        def look_at_chunk(start: Any, before: Any) -> list[Any]:
            part = memory.load(self.sums, sizes.floordiv(start, size), "int64")
            with emit.when(is_in(before, part)):
                stop = sizes.least(start + size, self.length)
                self.vectors(start, stop, [before], look_at_vector)
            return [before + part]

        def look_at_vector(column: Any, x: Any, before: Any) -> list[Any]:
            even, odd = add(column, x, zero, zero)
            part = crosslane.across(even + odd, rows.add)
            with emit.when(is_in(before, part)):
                memory.store(weights(column, x), self.weights, 0, "int32")
                emit.carry(0, self.lanes, 1, [before], partial(look_at_lane, column))
            return [before + part]

        def look_at_lane(column: Any, lane: Any, before: Any) -> list[Any]:
            weight = convert.cast(memory.load(self.weights, lane, "int32"), "int32", "int64")
            with emit.when(is_in(before, weight)):
                memory.store(column + lane, self.found, 0, "int64")
            return [before + weight]

        emit.carry(0, self.length, size, [emit.index(0)], look_at_chunk)
        return memory.load(self.found, 0, "int64")


KERNEL = Kernel("sample_tokens", "cpu", emit_sample_tokens, launch, unsupported)
