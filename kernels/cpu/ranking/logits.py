"""A row of logits on a CPU, in parts: its largest ones, sums of weights, and where a sum passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, host, memory, row_totals, rows, sizes
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sampling import CHUNKS
from heddle.kernels.sampling_cut import WeightAt, passes

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")


class Sum:
    """An int64 sum of int32 weights, in a vector on the stack that LLVM keeps in registers."""

    def __init__(self, lanes: int) -> None:
        self._zero = emit.constant(emit.integer(64), 0, lanes // 2)
        self._halves = [host.byte_buffer(4 * lanes) for _ in range(2)]

    def clear(self) -> None:
        """Nothing was added."""
        for half in self._halves:
            memory.store(self._zero, half, 0, "int64")

    def add(self, weights: Any) -> None:
        """Adds the lanes, none of them negative."""
        pairs = vector.bitcast(self._zero.type, weights)
        for half, found in zip(self._halves, (pairs & (2**32 - 1), pairs >> 32), strict=True):
            before = memory.load(half, 0, "int64", emit.lanes_of(pairs))
            memory.store(before + found, half, 0, "int64")

    def total(self) -> Any:
        """The sum, an i64."""
        lanes = emit.lanes_of(self._zero)
        even, odd = (memory.load(half, 0, "int64", lanes) for half in self._halves)
        return crosslane.across(even + odd, row_totals.add)


class Parts:
    """The weights of the parts of a row, int64."""

    def __init__(self, row: Logits) -> None:
        self._row, self._sums = row, host.byte_buffer(8 * CHUNKS)

    def of(self, part: Any) -> Any:
        """That of a part."""
        return memory.load(self._sums, part, "int64")

    def put(self, part: Any, weight: Any) -> None:
        """Sets that of a part."""
        memory.store(weight, self._sums, part, "int64")

    def total(self) -> Any:
        """The sum of all."""
        zero = emit.index(0)
        return emit.carry(0, self._row.parts, 1, [zero], lambda i, sum_: [sum_ + self.of(i)])[0]


class Logits:
    """The row that is worked on, in `parts` parts of `size` columns: a `sampling_cut.Row`."""

    def __init__(self, frame: host.Frame) -> None:
        self.frame = frame
        self.dtype = frame.spec.operands[0].dtype
        self.lanes = host.lanes_for(frame.machine, ["float32"])
        self.length = emit.as_index(frame.size(frame.spec.operands[0].shape[1]))
        self.lowest = emit.constant(emit.register_type("float32"), -math.inf, self.lanes)
        self.size = sizes.ceildiv(self.length, CHUNKS * self.lanes) * self.lanes
        self.parts = sizes.ceildiv(self.length, emit.maximum(self.size, 1))
        self.tops = host.byte_buffer(4 * CHUNKS)
        self._others = Parts(self)
        self._weights, self._found = host.byte_buffer(4 * self.lanes), host.byte_buffer(8)
        self._part = Sum(self.lanes)

    def start(self, row: Any) -> Any:
        """Turns to `row`; returns its largest logit.

        `tops` are those of the parts, `floor` the smallest of them.
        """
        self.row = row
        maximum = partial(bodies.maximum, "float32")

        def part(number: Any, top: Any, floor: Any) -> list[Any]:
            start, stop = self.columns(number)
            largest = row_totals.reduce(
                stop - start,
                self.lowest,
                lambda i, mask: self._read(start + i, mask, True),
                maximum,
            )
            memory.store(largest, self.tops, number, "float32")
            return [maximum(top, largest), emit.minimum(largest, floor)]

        infinite = [emit.constant(emit.register_type("float32"), x * math.inf) for x in (-1, 1)]
        top, self.floor = emit.carry(0, self.parts, 1, infinite, part)
        return top

    def columns(self, part: Any) -> tuple[Any, Any]:
        """The columns from which and up to which a part goes."""
        start = part * self.size
        return start, sizes.least(start + self.size, self.length)

    def _read(self, column: Any, mask: Any, ahead: bool = False) -> Any:
        """The logits from `column` on, a multiple of the lanes; what is not allowed is -inf."""
        pointer, place = self.frame.inputs[0], self.row * self.length + column
        if ahead:
            memory.prefetch(pointer, place + rows.AHEAD // emit.ITEM_SIZE[self.dtype], self.dtype)
        x = memory.load(pointer, place, self.dtype, self.lanes, mask)
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

    def first_of(self, part: Any) -> Any:
        """The logits with which a part begins."""
        start, stop = self.columns(part)
        return self._read(start, host.first_lanes(stop - start, self.lanes))

    def vectors(self, start: Any, stop: Any, body: Callable[[Any, Any], None]) -> None:
        """Emits `body(column, x)` for the vectors of a stretch."""
        whole = stop - sizes.mod(stop - start, self.lanes)
        for column in emit.loop(start, whole, self.lanes):
            body(column, self._read(column, None))
        with emit.when(compare("less", whole, stop)):
            body(whole, self._read(whole, host.first_lanes(stop - whole, self.lanes)))

    def each(self, least: Any, body: Callable[[Any], None]) -> None:
        """See `heddle.kernels.sampling_cut.Row`."""

        def at(column: Any, x: Any) -> None:
            with emit.when(any_lane(compare("greater_equal", x, least))):
                body(x)

        self.vectors(emit.index(0), self.length, at)

    def weigh(self, parts: Parts, part: Any, least: Any, weight_at: WeightAt) -> None:
        """Sets what weighs a part of what is no smaller than `least`."""
        self._part.clear()

        def at(column: Any, x: Any) -> None:
            with emit.when(any_lane(compare("greater_equal", x, least))):
                self._part.add(weight_at(column, x))

        self.vectors(*self.columns(part), at)
        parts.put(part, self._part.total())

    def passed(self, least: Any, weight_at: WeightAt, target_of: Callable[[Any], Any]) -> Any:
        """See `heddle.kernels.sampling_cut.Row`."""
        for part in emit.loop(0, self.parts):
            self.weigh(self._others, part, least, weight_at)
        return self.find(self._others, weight_at, target_of(self._others.total()))

    def find(self, parts: Parts, weight_at: WeightAt, target: Any) -> Any:
        """The column where the running sum of weights, known for parts, passes `target`."""

        def look_at_part(part: Any, before: Any) -> list[Any]:
            weight = parts.of(part)
            with emit.when(passes(target, before, weight)):
                start, stop = self.columns(part)
                emit.carry(start, stop, self.lanes, [before], partial(look_at_vector, stop))
            return [before + weight]

        def look_at_vector(stop: Any, column: Any, before: Any) -> list[Any]:
            x = self._read(column, host.first_lanes(stop - column, self.lanes))
            weights = weight_at(column, x)
            self._part.clear()
            self._part.add(weights)
            weight = self._part.total()
            with emit.when(passes(target, before, weight)):
                memory.store(weights, self._weights, 0, "int32")
                emit.carry(0, self.lanes, 1, [before], partial(look_at_lane, column))
            return [before + weight]

        def look_at_lane(column: Any, lane: Any, before: Any) -> list[Any]:
            weight = convert.cast(memory.load(self._weights, lane, "int32"), "int32", "int64")
            with emit.when(passes(target, before, weight)):
                memory.store(column + lane, self._found, 0, "int64")
            return [before + weight]

        emit.carry(0, self.parts, 1, [emit.index(0)], look_at_part)
        return memory.load(self._found, 0, "int64")


ROOM = 2**15
"""Logits that are listed at most: 128 KiB of the stack."""


class Listed:
    """The logits of a row that the cut may be at, in their order: a `sampling_cut.Row`."""

    def __init__(self, row: Logits) -> None:
        self._row, self.lanes, self.length, self.parts = row, row.lanes, row.length, row.parts
        self._logits = host.byte_buffer(4 * (ROOM + row.lanes))
        self._starts, self._count = host.byte_buffer(8 * (CHUNKS + 1)), host.byte_buffer(8)

    @property
    def count(self) -> Any:
        """How many there are: where they are more than `ROOM`, some are missing."""
        return memory.load(self._count, 0, "int64")

    def clear(self) -> None:
        """There are none; the row is the one that is worked on."""
        self.floor = self._row.floor
        memory.store(emit.index(0), self._count, 0, "int64")

    def mark(self, part: Any) -> None:
        """What follows is in `part`, or behind all of them."""
        memory.store(self.count, self._starts, part, "int64")

    def add(self, x: Any, here: Any) -> None:
        """Appends the lanes of `x` that are `here`."""
        count = self.count
        # As integers: LLVM 22 fails on floats where there is no instruction for it.
        words = emit.bitcast(x, emit.integer(32))
        operands = [words, here, emit.like(words, 0)]
        name = "llvm.experimental.vector.compress"
        packed = llvm.call_intrinsic(words.type, name, operands, [], [])
        memory.store(packed, self._logits, emit.minimum(count, ROOM), "int32")
        bits = vector.bitcast(ir.VectorType.get([1], emit.integer(self.lanes)), here)
        ones = llvm.intr_ctpop(vector.extract(bits, [], [0]))
        memory.store(count + arith.extui(emit.integer(64), ones), self._count, 0, "int64")

    def vectors(self, start: Any, stop: Any, body: Callable[[Any], None]) -> None:
        """Emits `body(x)` for those from number `start` to `stop`, with -inf behind them."""
        for place in emit.loop(start, stop, self.lanes):
            x = memory.load(self._logits, place, "float32", self.lanes)
            body(select(host.first_lanes(stop - place, self.lanes), x, self._row.lowest))

    def each(self, least: Any, body: Callable[[Any], None]) -> None:
        """See `heddle.kernels.sampling_cut.Row`."""
        self.vectors(0, self.count, body)

    def passed(self, least: Any, weight_at: WeightAt, target_of: Callable[[Any], Any]) -> Any:
        """See `heddle.kernels.sampling_cut.Row`."""
        return self._row.passed(least, weight_at, target_of)

    def in_part(self, part: Any, body: Callable[[Any], None]) -> None:
        """Emits `body(x)` for those of a part."""
        start, stop = (memory.load(self._starts, part + n, "int64") for n in (0, 1))
        self.vectors(start, stop, body)
