"""The best elements of a long row, in order: a block finds up to `TAKE` of them in two passes.

Each thread has a best one of its own; among those, the last one that is wanted is a bound. What
reaches it is collected in shared memory and ordered there. Where that is too much, as where many
are equal, the bound is narrowed digit by digit first, by histograms of how many have each digit.

Elements are unsigned distances from the greatest possible one, so that less is better; of equal
ones the first comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _frame, _rows, _scan
from heddle.kernels.cuda.ranking import histogram
from heddle.kernels.emit import compare, select

TAKE = 128
"""Elements that are found at once. As many of the bests of 256 threads are a bound that some 180
elements reach, where their order is random."""

ROOM = 512
"""Elements that are collected at most."""

_DIGIT = 11  # Bits of a digit.
_OWN = (1 << _DIGIT) // _frame.THREADS  # Bins of a thread.
_PLACE_BITS = 33  # Of a column.
_ALL = -1  # Behind all others: the greatest distance, the end of all places.


@dataclass(frozen=True)
class Range:
    """Lesser distances than `distance`, and equal ones at places before `stop`."""

    distance: Any
    stop: Any

    def reaches(self, distance: Any, place: Any) -> Any:
        """Whether an element is in it."""
        nearer = compare("less", distance, self.distance, unsigned=True)
        tied = compare("equal", distance, self.distance)
        return nearer | (tied & compare("less", place, self.stop, unsigned=True))


class Search:
    """A block's shared memory for the search, and its steps; every thread of the block calls.

    Args:
        bits: Of a distance.
    """

    def __init__(self, bits: int) -> None:
        word, short = emit.integer(64), emit.integer(32)
        self._bits, self._word = bits, word
        self._bests = _block.SharedArray("bests", word, _frame.THREADS)
        self._found = _block.SharedArray("found", word, 4)
        self._count = histogram.Counters("count", short, 1)
        self._bins = histogram.Counters("bins", short, 1 << _DIGIT)
        self._distances = _block.SharedArray("distances", word, ROOM)
        self._places = _block.SharedArray("places", word, ROOM)
        self._scan = _scan.Scan("before", _frame.THREADS)

    def best(self, elements: Elements, take: Any, write: Callable[[Any, Any], None]) -> Range:
        """Writes the best `take` of `elements`: `write(number, place)`; returns the range of them.

        They are at least so many, and no more than `TAKE`.
        """
        whole = Range(self._bound(elements, take), emit.index(_ALL))
        count = self._collect(elements, whole)

        def narrowed() -> list[Any]:
            bound = self._narrow(elements, whole, take)
            return [self._collect(elements, bound)]

        fits = compare("less_equal", count, ROOM)
        (count,) = emit.either(fits, [self._word], lambda: [count], narrowed)
        return self._order(count, take, write)

    def _bound(self, elements: Elements, take: Any) -> Any:
        """The distance of number `take` of the threads' bests."""
        best, thread = elements.own_best(), _block.thread()
        _block.barrier()
        self._bests.store(best, thread)
        _block.barrier()

        def ahead(other: Any, rank: Any) -> list[Any]:
            theirs = self._bests.load(other)
            is_ahead = compare("less", theirs, best, unsigned=True)
            is_ahead = is_ahead | (compare("equal", theirs, best) & compare("less", other, thread))
            return [rank + select(is_ahead, emit.index(1), 0)]

        (rank,) = emit.carry(0, _frame.THREADS, 1, [emit.index(0)], ahead)
        with emit.when(compare("equal", rank, take - 1)):
            self._found.store(best, 0)
        _block.barrier()
        return self._found.load(0)

    def _collect(self, elements: Elements, bound: Range) -> Any:
        """Keeps what is in the range, in any order; returns how many, even if they do not fit."""
        one = emit.constant(emit.integer(32), 1)
        _block.barrier()
        with emit.when(compare("equal", _block.thread(), 0)):
            self._count.store(emit.constant(emit.integer(32), 0), 0)
        _block.barrier()

        def keep(distance: Any, place: Any) -> None:
            with emit.when(bound.reaches(distance, place)):
                slot = convert.cast(self._count.add(one, 0), "int32", "int64")
                with emit.when(compare("less", slot, ROOM)):
                    self._distances.store(distance, slot)
                    self._places.store(place, slot)

        elements.each(keep)
        _block.barrier()
        return convert.cast(self._count.load(0), "int32", "int64")

    def _narrow(self, elements: Elements, whole: Range, take: Any) -> Range:
        """A range of at least `take` elements, and no more than there is room for."""

        def by_distance(distance: Any, place: Any) -> tuple[Any, Any]:
            return distance, whole.reaches(distance, place)

        state = self._digits(elements, self._bits, by_distance, take, emit.index(0))
        first, width, before, count = state

        def by_place() -> list[Any]:
            def place_of(distance: Any, place: Any) -> tuple[Any, Any]:
                return place, compare("equal", distance, first)

            start, width, *_ = self._digits(elements, _PLACE_BITS, place_of, take, before)
            return [first, start + width + 1]

        fits = compare("less_equal", before + count, ROOM)
        types = [self._word] * 2
        return Range(*emit.either(fits, types, lambda: [first + width, emit.index(_ALL)], by_place))

    def _digits(
        self,
        elements: Elements,
        bits: int,
        number_of: Callable[[Any, Any], tuple[Any, Any]],
        take: Any,
        before: Any,
    ) -> Sequence[Any]:
        """The first number and the width of a range up to which `take` elements are, or more.

        Also how many are before the range, and in it: together no more than there is room for,
        unless the range is one number. `number_of` gives an element's number of so many `bits`, and
        whether it counts; `before` are those that come first anyway.
        """
        top = max(bits - _DIGIT, 0)
        rounds = -(-bits // _DIGIT)
        every = emit.index(-1 if bits == 64 else (1 << bits) - 1)

        def look(number: Any, *state: Any) -> Sequence[Any]:
            start, width, before, _, going = state
            shift = emit.maximum(top - number * _DIGIT, 0)

            def further() -> Sequence[Any]:
                def bin_of(distance: Any, place: Any) -> tuple[Any, Any]:
                    value, counts = number_of(distance, place)
                    value = value - start
                    counts = counts & compare("less_equal", value, width, unsigned=True)
                    return value >> shift, counts

                self._count_bins(elements, bin_of)
                bin_, earlier, count = self._walk(take, before)
                many = compare("greater", earlier + count, ROOM)
                more = many & compare("greater", shift, 0)
                going = select(more, emit.index(1), 0)
                one = emit.index(1)
                return [start + (bin_ << shift), (one << shift) - 1, earlier, count, going]

            return emit.either(
                compare("equal", going, 1), [self._word] * 5, further, lambda: list(state)
            )

        state = [emit.index(0), every, before, emit.index(0), emit.index(1)]
        return emit.carry(0, rounds, 1, state, look)[:4]

    def _count_bins(
        self, elements: Elements, bin_of: Callable[[Any, Any], tuple[Any, Any]]
    ) -> None:
        zero, one = (emit.constant(emit.integer(32), number) for number in range(2))
        _block.barrier()
        for i in range(_OWN):
            self._bins.store(zero, _block.thread() + i * _frame.THREADS)
        _block.barrier()

        def count(distance: Any, place: Any) -> None:
            number, counts = bin_of(distance, place)
            with emit.when(counts):
                self._bins.add(one, number)

        elements.each(count)
        _block.barrier()

    def _walk(self, take: Any, before: Any) -> Sequence[Any]:
        """The bin in which number `take` is, how many are before it, and in it."""
        first = _block.thread() * _OWN
        counts = [
            convert.cast(count, "int32", "int64")
            for count in _block.lanes(self._bins.load(first, _OWN))
        ]
        earlier = before + self._scan(sum(counts[1:], counts[0]))[0]
        for i, count in enumerate(counts):
            here = compare("less", earlier, take) & compare("greater_equal", earlier + count, take)
            with emit.when(here):
                for slot, value in enumerate((first + i, earlier, count)):
                    self._found.store(value, 1 + slot)
            earlier = earlier + count
        _block.barrier()
        return [self._found.load(1 + slot) for slot in range(3)]

    def _order(self, count: Any, take: Any, write: Callable[[Any, Any], None]) -> Range:
        """Each of the collected elements goes where as many are before it."""
        for own in emit.loop(_block.thread(), count, _frame.THREADS):
            distance, place = self._distances.load(own), self._places.load(own)
            mine = Range(distance, place)

            def ahead(other: Any, rank: Any, mine: Range = mine) -> list[Any]:
                theirs = self._distances.load(other), self._places.load(other)
                return [rank + select(mine.reaches(*theirs), emit.index(1), 0)]

            (rank,) = emit.carry(0, count, 1, [emit.index(0)], ahead)
            with emit.when(compare("less", rank, take)):
                write(rank, place)
            with emit.when(compare("equal", rank, take - 1)):
                self._found.store(distance, 1)
                self._found.store(place + 1, 2)
        _block.barrier()
        return Range(self._found.load(1), self._found.load(2))


@dataclass(frozen=True)
class Elements:
    """The elements of a row that are not taken: vectors of distances in `row`."""

    row: _rows.Row
    taken: Range

    def each(self, body: Callable[[Any, Any], None]) -> None:
        """Emits `body(distance, place)` for each element of this thread."""

        def vector(column: Any, distances: Any) -> None:
            for i, distance in enumerate(_block.lanes(distances)):
                place = column + i
                with emit.when(self.taken.reaches(distance, place) ^ True):
                    body(distance, place)

        self.row.each(vector)

    def own_best(self) -> Any:
        """The least distance of this thread's elements, the greatest there is if it has none."""

        def better(column: Any, distances: Any, best: Any) -> Any:
            for i, distance in enumerate(_block.lanes(distances)):
                taken = self.taken.reaches(distance, column + i)
                distance = select(taken, emit.index(_ALL), distance)
                best = emit.minimum(best, distance, unsigned=True)
            return best

        return self.row.over(emit.index(_ALL), better)
