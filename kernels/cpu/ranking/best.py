"""The best elements of a row, as a list on the stack that is cut back to so many, and sorted.

An element is its key (`kernels/ordering.py`) and its place in the row, integers of one type.
Greater keys are better, and of equal ones the first; the list is in the order of places.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.ranking.sorting import Sorter
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect, ir

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

MOST = 4
"""Vectors whose elements are appended, or ranked, together."""

RANKED = 256
"""So many elements or fewer are sorted by counting those that are greater."""


def counted(vectors: Any, lanes: int, dtype: str, mask_at: Callable[[Any], Any]) -> Any:
    """How many lanes are set in the masks of so many vectors, an i64; lanes count in `dtype`."""
    zero = emit.constant(emit.register_type(dtype), 0, lanes)

    def add(vector: Any, count: Any) -> list[Any]:
        return [count + select(mask_at(vector), emit.like(zero, 1), zero)]

    (counts,) = emit.carry(0, vectors, 1, [zero], add)
    return convert.cast(crosslane.across(counts, operator.add), dtype, "int64")


def lanes_set(mask: Any) -> Any:
    """How many lanes are set, an i64."""
    return arith.extui(emit.integer(64), llvm.intr_ctpop(mask_bits(mask)))


def mask_bits(mask: Any) -> Any:
    """A bit for each lane, an integer of so many."""
    bits = vector.bitcast(ir.VectorType.get([1], emit.integer(emit.lanes_of(mask))), mask)
    return vector.extract(bits, [], [0])


def packed(value: Any, mask: Any) -> Any:
    """The lanes of an integer vector that are set in `mask`, side by side from the first lane."""
    name = "llvm.experimental.vector.compress"
    return llvm.call_intrinsic(value.type, name, [value, mask, emit.like(value, 0)], [], [])


def greatest(low: Any, high: Any, wanted: Any, count: Callable[[Any], Any]) -> list[Any]:
    """The greatest number from `low` to `high` that `count` gives no fewer than `wanted` for.

    `count` falls, and is enough at `low`. Returns the number and its count; the first number found
    that has exactly so many, if there is one.
    """

    def halve(_: Any, low: Any, high: Any, found: Any) -> list[Any]:
        def further() -> list[Any]:
            # Of signed numbers, whose distance may be too large for one.
            apart = high - low
            middle = low + (apart >> 1) + (apart & 1)
            here = count(middle)
            enough = compare("greater_equal", here, wanted)
            return [
                select(enough, middle, low),
                select(enough, high, middle - 1),
                select(enough, here, found),
            ]

        types = [value.type for value in (low, high, found)]
        going = compare("less", low, high) & compare("not_equal", found, wanted)
        return emit.either(going, types, further, lambda: [low, high, found])

    bits = emit.bits_of(low.type)
    number, _, found = emit.carry(0, bits, 1, [low, high, count(low)], halve)
    return [number, found]


def reached(buffer: Any, dtype: str, lanes: int, vectors: Any, wanted: Any) -> list[Any]:
    """A number that at least `wanted` of those in the first vectors reach, and how many that is.

    Where no other is equal to the last of those, it is as many as wanted.
    """

    def load(vector: Any) -> Any:
        return memory.load(buffer, vector * lanes, dtype, lanes)

    def widen(vector: Any, low: Any, high: Any) -> list[Any]:
        return [emit.minimum(low, load(vector)), emit.maximum(high, load(vector))]

    def count(least: Any) -> Any:
        fewer = counted(vectors, lanes, dtype, lambda vector: compare("less", load(vector), least))
        return vectors * lanes - fewer

    low, high = emit.carry(1, vectors, 1, [load(emit.index(0))] * 2, widen)
    low, high = crosslane.across(low, emit.minimum), crosslane.across(high, emit.maximum)
    return greatest(low, high, wanted, count)


class Ranking:
    """Up to `room` elements, whose keys and places are of `dtype`; about `kept` of them stay.

    Where the machine `packs` lanes, whole vectors are; else elements are moved one by one.
    """

    def __init__(self, dtype: str, lanes: int, room: int, packs: bool, kept: int) -> None:
        self.dtype, self.lanes, self.room, self._packs = dtype, lanes, room, packs
        self.keys, self.places = (
            host.byte_buffer(emit.ITEM_SIZE[dtype] * (room + lanes)) for _ in range(2)
        )
        self._both = (self.keys, self.places)
        element = emit.register_type(dtype)
        self.limit = 2 ** (emit.bits_of(element) - 1) - 1
        self.least = emit.constant(element, -self.limit - 1)
        self._ranks = not packs and kept <= RANKED
        # Sorted are numbers of 64 bits.
        self._wide = lanes * emit.ITEM_SIZE[dtype] // 8
        self._records = [self.keys, self.places]
        if dtype != "int64" or self._ranks:
            self._records = [host.byte_buffer(8 * room)]
        if self._ranks:
            self._ranked, self._taken = (
                host.byte_buffer(emit.ITEM_SIZE[dtype] * room) for _ in range(2)
            )
        self._sorter = Sorter(self._records, "int64", self._wide)
        self._turn = host.byte_buffer(emit.ITEM_SIZE[dtype] * lanes * MOST)
        self.sorted_at_once = 2 * kept if self._ranks else sizes.power_of_two(kept)

    def put(
        self, count: Any, keys: Sequence[Any], places: Sequence[Any], heres: Sequence[Any]
    ) -> Any:
        """Appends the lanes that are `here` to the first `count`; returns how many there are.

        Their keys and places are those of `MOST` vectors at most.
        """
        if self._packs:
            for key, place, here in zip(keys, places, heres, strict=True):
                self._store(count, packed(key, here), packed(place, here))
                count = count + lanes_set(here)
            return count
        word = emit.integer(64)
        bits = emit.constant(word, 0)
        for n, (key, here) in enumerate(zip(keys, heres, strict=True)):
            memory.store(key, self._turn, n * self.lanes, self.dtype)
            bits = bits | (arith.extui(word, mask_bits(here)) << (n * self.lanes))
        first = vector.extract(places[0], [], [0])

        def move(number: Any, bits: Any) -> list[Any]:
            lane = llvm.intr_cttz(bits, is_zero_poison=True)
            key = memory.load(self._turn, lane, self.dtype)
            place = first + convert.cast(lane, "int64", self.dtype)
            self._store(count + number, key, place)
            return [bits & (bits - 1)]

        moved = llvm.intr_ctpop(bits)
        emit.carry(0, moved, 1, [bits], move)
        return count + moved

    def end(self, count: Any) -> None:
        """Lets the lanes behind the last element be worse than all others."""
        self._store(count, *(emit.splat(x, self.lanes) for x in self._worst()))

    def cut(self, count: Any, wanted: Any) -> list[Any]:
        """Keeps the best `wanted` of `count` elements, in their order.

        Returns how many those are, and the least key of a later element that could be among them.
        """
        self.end(count)
        vectors = sizes.ceildiv(count, self.lanes)
        key, found = reached(self.keys, self.dtype, self.lanes, vectors, wanted)

        def tied(last: Any, vector: Any) -> Any:
            # From the greatest to the smallest: of equal ones the first stay.
            here, place = self._load(vector)
            return compare("equal", here, key) & compare("greater_equal", place ^ -1, last)

        def count_tied(last: Any) -> Any:
            return counted(vectors, self.lanes, self.dtype, partial(tied, last))

        def some() -> list[Any]:
            # More than wanted reach the key: it is that of the last ones that stay.
            kept = wanted - (found - count_tied(self.least))
            highest = emit.constant(self.least.type, -1)
            return greatest(self.least, highest, kept, count_tied)[:1]

        (last,) = emit.either(
            compare("greater", found, wanted), [self.least.type], some, lambda: [self.least]
        )

        def keep(vector: Any, kept: Any) -> list[Any]:
            here, place = self._load(vector)
            stays = compare("greater", here, key) | tied(last, vector)
            if self._packs:
                return [self.put(kept, [here], [place], [stays])]

            def move(_: Any, kept: Any, bits: Any) -> list[Any]:
                lane = vector * self.lanes + llvm.intr_cttz(bits, is_zero_poison=True)
                self._store(kept, *(memory.load(b, lane, self.dtype) for b in self._both))
                return [kept + 1, bits & (bits - 1)]

            bits = arith.extui(emit.integer(64), mask_bits(stays))
            return emit.carry(0, llvm.intr_ctpop(bits), 1, [kept, bits], move)[:1]

        (kept,) = emit.carry(0, vectors, 1, [emit.index(0)], keep)
        return [kept, emit.minimum(key, emit.like(key, self.limit - 1)) + 1]

    def _load(self, vector: Any) -> list[Any]:
        place = vector * self.lanes
        return [memory.load(b, place, self.dtype, self.lanes) for b in self._both]

    def _store(self, place: Any, key: Any, index: Any) -> None:
        for buffer, value in zip(self._both, (key, index), strict=True):
            memory.store(value, buffer, place, self.dtype)

    def sort(self, count: Any) -> None:
        """Puts the first `count` elements in order, the best first, where `indices` finds them."""
        if self._ranks:
            self._rank(count)
            return
        sorter, lanes = self._sorter, self._wide
        self.end(count)
        vectors = emit.maximum(sizes.ceildiv(count, lanes), 1)
        doublings = emit.index(64) - llvm.intr_ctlz(vectors - 1, is_zero_poison=False)
        for i in emit.loop(0, vectors):
            key, place = (memory.load(b, i * lanes, self.dtype, lanes) for b in self._both)
            sorter.store(i, self._record(key, place))
        for i in emit.loop(vectors, emit.index(1) << doublings):
            sorter.store(i, self._record(*(emit.splat(x, lanes) for x in self._worst())))
        sorter.sort(doublings)

    def _rank(self, count: Any) -> None:
        """Writes each element's place where as many as are greater, or equal and before it, end.

        Several vectors are compared with each element at once; equal elements have one rank, and
        follow each other from there.
        """
        block = MOST * self.lanes
        zero = emit.constant(self.least.type, 0, self.lanes)
        for start in emit.loop(0, count, block):
            columns = [start + n * self.lanes for n in range(MOST)]
            own = [memory.load(self.keys, c, self.dtype, self.lanes) for c in columns]

            def add(other: Any, *ranks: Any, own: Sequence[Any] = own) -> list[Any]:
                key = emit.splat(memory.load(self.keys, other, self.dtype), self.lanes)
                more = [compare("greater", key, each) for each in own]
                return [
                    rank + select(m, emit.like(zero, 1), zero)
                    for rank, m in zip(ranks, more, strict=True)
                ]

            for column, rank in zip(
                columns, emit.carry(0, count, 1, [zero] * MOST, add), strict=True
            ):
                memory.store(rank, self._ranked, column, self.dtype)
                memory.store(zero, self._taken, column, self.dtype)
        for number in emit.loop(0, count):
            rank = convert.cast(memory.load(self._ranked, number, self.dtype), self.dtype, "int64")
            taken = memory.load(self._taken, rank, self.dtype)
            memory.store(taken + 1, self._taken, rank, self.dtype)
            place = memory.load(self.places, number, self.dtype)
            at = rank + convert.cast(taken, self.dtype, "int64")
            memory.store(
                convert.cast(place, self.dtype, "int64") ^ -1, self._records[0], at, "int64"
            )

    def _worst(self) -> tuple[Any, Any]:
        return self.least, emit.like(self.least, self.limit)

    def _record(self, key: Any, place: Any) -> list[Any]:
        """What orders elements: in one number where there is room."""
        before = place ^ -1
        if self.dtype == "int64":
            return [key, before]
        key, before = (convert.cast(x, "int32", "int64") for x in (key, before))
        return [(key << 32) | (before & (2**32 - 1))]

    def indices(self, number: Any, lanes: int) -> Any:
        """Where so many of the sorted elements are, from `number` on, in int64."""
        before = memory.load(self._records[-1], number, "int64", lanes) ^ -1
        return before if self.dtype == "int64" or self._ranks else before & (2**32 - 1)

    def element(self, number: Any) -> list[Any]:
        """Key and place of the sorted element `number`."""
        record = [memory.load(buffer, number, "int64") for buffer in self._records]
        if self.dtype == "int64":
            return [record[0], record[1] ^ -1]
        word = emit.integer(32)
        return [arith.trunci(word, record[0] >> 32), arith.trunci(word, record[0]) ^ -1]
