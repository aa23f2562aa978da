"""Static memory planning over symbolic sizes.

Values that are never alive together share a slot, and several small ones lie in a slot side by side
while its large one is not alive, also between others. A slot is as large as what reaches furthest
in it, which for symbolic sizes is a `max` expression, and slots follow one another. Values are
placed largest first, each into the slot that grows least: after "greedy by size" of Pisarchyk and
Lee, Efficient Memory Management for Deep Neural Net Inference (2020).

Sizes stay short however many values there are: a value lies behind another one, whose end is known
to be the furthest of those that it must not meet, never behind a `max`, and few slots end with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.graph.compiler.sizes import Ranges, align, covers, furthest, maximum, samples
from heddle.graph.dim import Dim
from heddle.kernels.spec import Expr

MOST_TOPS, MOST_MIXED = 4, 16
"""Ends of a slot of which none is known to be the furthest; slots with several of them."""

MOST_SEARCHED = 32
"""Slots that are looked through for room between values, and values that lie in one of them."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Lifetime:
    """A value of `size` bytes that must be kept from step `first` to step `last`, both included."""

    size: Expr
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """Where each value starts, in bytes, and how many bytes there are in all."""

    offsets: tuple[Expr, ...]
    total: Expr


def plan(values: Sequence[Lifetime], ranges: Ranges) -> Layout:
    """Places `values`: those alive at one step never overlap, for any sizes in `ranges`."""
    known = {value.size: Dim.from_expr(align(value.size)) for value in values}
    points = samples(ranges)
    weights = {size: np.array([float(d.evaluate(p)) for p in points]) for size, d in known.items()}
    slots = _Slots(len(values), len(points), ranges)

    def largest_first(number: int) -> tuple[Any, ...]:
        return (*weights[values[number].size].tolist(), -number)

    for number in sorted(range(len(values)), key=largest_first, reverse=True):
        value = values[number]
        slots.place(number, value, known[value.size], weights[value.size])
    return slots.layout()


class _Slots:
    """The slots, and the values that are placed: rows of arrays, a column for each sample."""

    def __init__(self, count: int, points: int, ranges: Ranges) -> None:
        self._ranges = ranges
        self._placed = 0
        self._first, self._last, self._slot, self._number = np.zeros((4, count), np.int64)
        self._begins, self._ends = np.zeros((2, count, points))
        self._start_of: list[Dim] = []
        self._end_of: list[Dim] = []
        self._tops: list[list[Dim]] = []  # of each slot: the ends that no other one covers
        self._sizes = np.zeros((0, points))

    def place(self, number: int, value: Lifetime, size: Dim, weight: Array) -> None:
        """Puts a value of `size` into the slot that grows least, or into one of its own."""
        placed = slice(self._placed)
        meets = (self._first[placed] <= value.last) & (self._last[placed] >= value.first)
        together = np.flatnonzero(meets)
        for place in self._places(together, size, weight):
            slot, start, begin = place
            if (tops := self._grown(slot, start + size)) is not None:
                self._tops[slot] = tops
                break
        else:
            slot, start, begin = len(self._tops), Dim(0), np.zeros_like(weight)
            self._tops.append([size])
            self._sizes = np.vstack([self._sizes, begin])
        row, self._placed = self._placed, self._placed + 1
        self._first[row], self._last[row] = value.first, value.last
        self._slot[row], self._number[row] = slot, number
        self._begins[row], self._ends[row] = begin, begin + weight
        self._sizes[slot] = np.maximum(self._sizes[slot], self._ends[row])
        self._start_of.append(start)
        self._end_of.append(start + size)

    def layout(self) -> Layout:
        """Slot behind slot."""
        begins = []
        total = Dim(0)
        for tops in self._tops:
            begins.append(total)
            total = total + maximum(tops, self._ranges)
        offsets: list[Expr] = [0] * self._placed
        for number, slot, start in zip(self._number, self._slot, self._start_of, strict=True):
            offsets[number] = (begins[slot] + start).expr
        return Layout(tuple(offsets), total.expr)

    def _places(
        self, together: Array, size: Dim, weight: Array
    ) -> Iterator[tuple[int, Dim, Array]]:
        """Slots, and where in them a value may start that is alive with rows `together`.

        First behind all of those where a slot need not grow, then between them, then where it
        grows by less than the value needs.
        """
        begins = np.zeros_like(self._sizes)
        np.maximum.at(begins, self._slot[together], self._ends[together])
        ends = begins + weight
        growth = np.maximum(ends - self._sizes, 0).sum(axis=1)
        idle = np.maximum(self._sizes - ends, 0).sum(axis=1)
        order = np.lexsort((idle, growth))
        still = int(np.count_nonzero(growth == 0))
        for slot in order[:still]:
            start = self._behind(together[self._slot[together] == slot])
            if start is not None:
                yield int(slot), start, begins[slot]
        wide = order[still:][(self._sizes[order[still:]] >= weight).all(axis=1)]
        for slot in wide[:MOST_SEARCHED]:
            gap = self._between(together[self._slot[together] == slot], size, weight)
            if gap is not None:
                yield int(slot), *gap
        for slot in order[still:]:
            start = self._behind(together[self._slot[together] == slot])
            if start is not None and growth[slot] < weight.sum():
                yield int(slot), start, begins[slot]

    def _behind(self, rows: Array) -> Dim | None:
        """The end among those of `rows` that is the furthest for all sizes, if one is."""
        return furthest([self._end_of[row] for row in rows], self._ranges)

    def _between(self, rows: Array, size: Dim, weight: Array) -> tuple[Dim, Array] | None:
        """Where `size` bytes lie before some of `rows` and behind the others, for all sizes."""
        if len(rows) > MOST_SEARCHED:
            return None
        places = [(Dim(0), np.zeros_like(weight))]
        places += [(self._end_of[row], self._ends[row]) for row in rows]
        for start, begin in sorted(places, key=lambda place: place[1].tolist()):
            before: Array = np.all(self._begins[rows] >= begin + weight, axis=1)
            if not np.all(before | np.all(self._ends[rows] <= begin, axis=1)):
                continue
            end = start + size
            if all(
                covers(self._start_of[row], end, self._ranges)
                if is_before
                else covers(start, self._end_of[row], self._ranges)
                for row, is_before in zip(rows, before, strict=True)
            ):
                return start, begin
        return None

    def _grown(self, slot: int, end: Dim) -> list[Dim] | None:
        """The tops of a slot in which something ends at `end`; None where they are too many."""
        tops = self._tops[slot]
        if any(covers(top, end, self._ranges) for top in tops):
            return tops
        tops = [top for top in tops if not covers(end, top, self._ranges)] + [end]
        mixed = len(tops) > 1 and len(self._tops[slot]) == 1
        full = mixed and sum(len(other) > 1 for other in self._tops) >= MOST_MIXED
        return None if full or len(tops) > MOST_TOPS else tops
