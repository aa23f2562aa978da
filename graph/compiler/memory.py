"""Static memory planning over symbolic sizes.

Values that are never alive together share a slot, and several small ones lie in a slot side by side
while its large one is not alive. A slot is as large as what reaches furthest in it, which for
symbolic sizes is a `max` expression, and slots follow one another. Values are placed largest first,
each into the slot that grows least: after "greedy by size" of Pisarchyk and Lee, Efficient Memory
Management for Deep Neural Net Inference (2020).

Sizes stay short however many values there are: a value lies behind another one, whose end is known
to be the furthest, never behind a `max`, and few slots end with one.
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
        self._ends = np.zeros((count, points))
        self._starts: list[Dim] = []
        self._end_of: list[Dim] = []
        self._tops: list[list[Dim]] = []  # of each slot: the ends that no other one covers
        self._sizes = np.zeros((0, points))

    def place(self, number: int, value: Lifetime, size: Dim, weight: Array) -> None:
        """Puts a value of `size` into the slot that grows least, or into one of its own."""
        placed = slice(self._placed)
        meets = (self._first[placed] <= value.last) & (self._last[placed] >= value.first)
        together = np.flatnonzero(meets)
        starts = np.zeros_like(self._sizes)
        np.maximum.at(starts, self._slot[together], self._ends[together])
        for slot in self._fitting(starts + weight, weight.sum()):
            beside = together[self._slot[together] == slot]
            start = self._behind(beside)
            tops = None if start is None else self._grown(slot, start + size)
            if start is not None and tops is not None:
                break
        else:
            slot, start, tops = len(self._tops), Dim(0), [size]
            self._tops.append([])
            self._sizes = np.vstack([self._sizes, np.zeros_like(weight)])
            starts = np.zeros_like(self._sizes)
        self._tops[slot] = tops
        end = starts[slot] + weight
        self._sizes[slot] = np.maximum(self._sizes[slot], end)
        row, self._placed = self._placed, self._placed + 1
        self._first[row], self._last[row] = value.first, value.last
        self._slot[row], self._number[row], self._ends[row] = slot, number, end
        self._starts.append(start)
        self._end_of.append(start + size)

    def layout(self) -> Layout:
        """Slot behind slot."""
        begins = []
        total = Dim(0)
        for tops in self._tops:
            begins.append(total)
            total = total + maximum(tops, self._ranges)
        offsets: list[Expr] = [0] * self._placed
        for number, slot, start in zip(self._number, self._slot, self._starts, strict=True):
            offsets[number] = (begins[slot] + start).expr
        return Layout(tuple(offsets), total.expr)

    def _fitting(self, ends: Array, weight: float) -> Iterator[int]:
        """The slots that grow by less than a value needs, those that grow least first.

        Of those alike, where least lies idle.
        """
        growth = np.maximum(ends - self._sizes, 0).sum(axis=1)
        idle = np.maximum(self._sizes - ends, 0).sum(axis=1)
        order = np.lexsort((idle, growth))
        return (int(slot) for slot in order if growth[slot] < weight or weight == 0)

    def _behind(self, rows: Array) -> Dim | None:
        """The end among those of `rows` that is the furthest for all sizes, if one is."""
        return furthest([self._end_of[row] for row in rows], self._ranges)

    def _grown(self, slot: int, end: Dim) -> list[Dim] | None:
        """The tops of a slot in which something ends at `end`; None where they are too many."""
        tops = self._tops[slot]
        if any(covers(top, end, self._ranges) for top in tops):
            return tops
        tops = [top for top in tops if not covers(end, top, self._ranges)] + [end]
        mixed = len(tops) > 1 and len(self._tops[slot]) == 1
        full = mixed and sum(len(other) > 1 for other in self._tops) >= MOST_MIXED
        return None if full or len(tops) > MOST_TOPS else tops
