"""Batcher's bitonic sort (1968) of records on the stack, the greatest first.

A record is a number, or several that are compared one after another; each has a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import crosslane, emit, memory
from heddle.kernels.emit import compare, select

Records = Sequence[Any]
"""Vectors of the numbers of as many records as there are lanes."""


class Sorter:
    """Sorts the records in `buffers`, whose numbers are of `dtype`, by vectors of `lanes`."""

    def __init__(self, buffers: Sequence[Any], dtype: str, lanes: int) -> None:
        self._buffers, self._dtype, self._lanes = buffers, dtype, lanes

    def load(self, vector: Any) -> list[Any]:
        """The records of a vector."""
        where = vector * self._lanes
        return [memory.load(each, where, self._dtype, self._lanes) for each in self._buffers]

    def store(self, vector: Any, records: Records) -> None:
        """Sets the records of a vector."""
        for buffer, value in zip(self._buffers, records, strict=True):
            memory.store(value, buffer, vector * self._lanes, self._dtype)

    def sort(self, doublings: Any) -> None:
        """Sorts two to the power of `doublings` vectors: sorted runs of twice the length each time.

        The first step of a merge meets the mirror image of the second run, so that all runs fall.
        """
        vectors = emit.index(1) << doublings
        for i in emit.loop(0, vectors):
            records: Records = self.load(i)
            size = 2
            while size <= self._lanes:
                records = self._halves(self._inside(records, size - 1), size // 4)
                size *= 2
            self.store(i, records)
        for doubling in emit.loop(0, doublings):
            self._merge(vectors, doubling)

    def _merge(self, vectors: Any, doubling: Any) -> None:
        """Merges neighbouring runs of two to the power of `doubling` vectors."""
        run = emit.index(1) << doubling
        for i in emit.loop(0, vectors >> 1):
            within = i & (run - 1)
            start = (i - within) << 1
            low, high = start + within, start + run * 2 - 1 - within
            greater, less = self._apart(self.load(low), self._mirrored(self.load(high)))
            self.store(low, greater)
            self.store(high, self._mirrored(less))
        for step in emit.loop(1, doubling + 1):
            distance = run >> step
            for i in emit.loop(0, vectors >> 1):
                within = i & (distance - 1)
                low = ((i - within) << 1) + within
                greater, less = self._apart(self.load(low), self.load(low + distance))
                self.store(low, greater)
                self.store(low + distance, less)
        for i in emit.loop(0, vectors):
            self.store(i, self._halves(self.load(i), self._lanes // 2))

    def _mirrored(self, records: Records) -> list[Any]:
        backwards = range(self._lanes - 1, -1, -1)
        return [crosslane.shuffle(x, x, backwards) for x in records]

    def _halves(self, records: Records, distance: int) -> Records:
        """The last steps of a merge, inside of a vector."""
        while distance:
            records = self._inside(records, distance)
            distance //= 2
        return records

    def _inside(self, records: Records, bits: int) -> Records:
        """Puts each lane and the one whose number differs in `bits` in order."""
        lanes = range(self._lanes)
        others = [crosslane.shuffle(x, x, [lane ^ bits for lane in lanes]) for x in records]
        order = [lane if lane < lane ^ bits else self._lanes + lane for lane in lanes]
        greater, less = self._apart(records, others)
        return [crosslane.shuffle(a, b, order) for a, b in zip(greater, less, strict=True)]

    def _apart(self, a: Records, b: Records) -> tuple[list[Any], list[Any]]:
        """The greater and the less one of each two records."""
        wins = compare("greater", a[-1], b[-1])
        for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
            wins = compare("greater", x, y) | (compare("equal", x, y) & wins)
        pairs = list(zip(a, b, strict=True))
        return [select(wins, x, y) for x, y in pairs], [select(wins, y, x) for x, y in pairs]
