"""A histogram for the cuts of top-k and top-p, in shared memory, by atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._scan import Scan
from heddle.kernels.emit import compare
from heddle.kernels.mlir import dialect
from heddle.kernels.sampling import BINS

llvm = dialect("llvm")

_OWN = BINS // _frame.THREADS
"""Bins of a thread."""


class Counters(_block.SharedArray):
    """Integers that threads add to in any order."""

    def add(self, value: Any, place: Any) -> Any:
        """Adds to the element at `place`; returns what was there."""
        add, relaxed = llvm.AtomicBinOp.add, llvm.AtomicOrdering.monotonic
        return llvm.atomicrmw(add, self._at(place), value, relaxed)


class Histogram:
    """See `heddle.kernels.sampling_cut.Histogram`; every thread of the block calls.

    Args:
        name: What its shared arrays are named by.
        scan: Sums over the block.
    """

    def __init__(self, name: str, scan: Scan) -> None:
        self._scan, word = scan, emit.integer(64)
        self._counts = Counters(f"{name}_counts", emit.integer(32), BINS)
        self._weights = Counters(f"{name}_weights", word, BINS)
        self._reached = _block.SharedArray(f"{name}_reached", word, 3)

    def clear(self) -> None:
        """See `Histogram`."""
        _block.barrier()
        for own in range(_OWN):
            place = _block.thread() + own * _frame.THREADS
            self._counts.store(emit.constant(emit.integer(32), 0), place)
            self._weights.store(emit.index(0), place)
        _block.barrier()

    def add(self, bins: Any, weights: Callable[[], Any]) -> None:
        """See `Histogram`."""
        with emit.when(compare("less", bins, BINS)):
            place = convert.cast(bins, "int32", "int64")
            self._counts.add(emit.constant(emit.integer(32), 1), place)
            self._weights.add(convert.cast(weights(), "int32", "int64"), place)

    def count(self, number: Any) -> Any:
        """See `Histogram`."""
        return convert.cast(self._counts.load(number), "int32", "int64")

    def total(self) -> Any:
        """See `Histogram`."""
        _block.barrier()
        own = _block.lanes(self._weights.load(_block.thread() * _OWN, _OWN))
        return self._scan(sum(own[1:], own[0]))[1]

    def walk(self, by: str, limit: Any, count: Any, weight: Any, bins: Any) -> list[Any]:
        """See `Histogram`."""
        _block.barrier()
        first = _block.thread() * _OWN
        counts = [
            convert.cast(count, "int32", "int64")
            for count in _block.lanes(self._counts.load(first, _OWN))
        ]
        weights = _block.lanes(self._weights.load(first, _OWN))
        counted, every = self._scan(sum(counts[1:], counts[0]))
        weighed, whole = self._scan(sum(weights[1:], weights[0]))
        with emit.when(compare("equal", _block.thread(), 0)):
            for place, value in enumerate((emit.as_index(bins), count + every, weight + whole)):
                self._reached.store(value, place)
        _block.barrier()
        count, weight = count + counted, weight + weighed
        for i in range(_OWN):
            more, heavier = count + counts[i], weight + weights[i]
            before, after = (count, more) if by == "count" else (weight, heavier)
            here = compare("less", before, limit) & compare("greater_equal", after, limit)
            with emit.when(here):
                for place, value in enumerate((first + i, count, weight)):
                    self._reached.store(value, place)
            count, weight = more, heavier
        _block.barrier()
        return [self._reached.load(place) for place in range(3)]
