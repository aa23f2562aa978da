"""A histogram for the cuts of top-k and top-p. Vectors that have nothing to count cost little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, row_totals
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sampling import BINS

vector = dialect("vector")


def any_lane(mask: Any) -> Any:
    """Whether a lane is set."""
    bits = vector.bitcast(ir.VectorType.get([1], emit.integer(emit.lanes_of(mask))), mask)
    return compare("not_equal", vector.extract(bits, [], [0]), 0)


class Histogram:
    """See `heddle.kernels.sampling_cut.Histogram`; on the stack, made in the entry block."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._room = BINS + lanes
        self._counts = host.byte_buffer(4 * self._room)
        self._weights = host.byte_buffer(8 * self._room)
        self._bins, self._added = (host.byte_buffer(4 * lanes) for _ in range(2))

    def clear(self) -> None:
        """See `Histogram`."""
        for buffer, dtype in ((self._counts, "int32"), (self._weights, "int64")):
            zero = emit.constant(emit.memory_type(dtype), 0, self._lanes)
            for place in emit.loop(0, self._room, self._lanes):
                memory.store(zero, buffer, place, dtype)

    def add(self, bins: Any, weights: Callable[[], Any]) -> None:
        """See `Histogram`."""
        with emit.when(any_lane(compare("less", bins, BINS))):
            memory.store(bins, self._bins, 0, "int32")
            memory.store(weights(), self._added, 0, "int32")
            for lane in range(self._lanes):
                place, weight = (
                    convert.cast(memory.load(buffer, lane, "int32"), "int32", "int64")
                    for buffer in (self._bins, self._added)
                )
                count = memory.load(self._counts, place, "int32")
                memory.store(count + 1, self._counts, place, "int32")
                before = memory.load(self._weights, place, "int64")
                memory.store(before + weight, self._weights, place, "int64")

    def count(self, number: Any) -> Any:
        """See `Histogram`."""
        return convert.cast(memory.load(self._counts, number, "int32"), "int32", "int64")

    def total(self) -> Any:
        """See `Histogram`."""
        zero = emit.constant(emit.integer(64), 0, self._lanes)

        def add(place: Any, total: Any) -> list[Any]:
            return [total + memory.load(self._weights, place, "int64", self._lanes)]

        (total,) = emit.carry(0, BINS, self._lanes, [zero], add)
        return crosslane.across(total, row_totals.add)

    def walk(self, by: str, limit: Any, count: Any, weight: Any, bins: Any) -> list[Any]:
        """See `Histogram`."""

        def step(place: Any, number: Any, count: Any, weight: Any) -> list[Any]:
            more = count + self.count(place)
            heavier = weight + memory.load(self._weights, place, "int64")
            reached = compare("greater_equal", more if by == "count" else heavier, limit)
            stays = reached | compare("less", number, place)
            return [
                select(stays, number, place + 1),
                select(stays, count, more),
                select(stays, weight, heavier),
            ]

        return emit.carry(0, bins, 1, [emit.index(0), count, weight], step)
