"""Where the k largest (or smallest) elements of each row are, in order; the first of equal ones.

A task is one row. It is cut into at most `MOST_CHUNKS` chunks whose best elements are kept on the
stack; each step takes the best of those and looks through its chunk alone for the one that follows.
k is the last size of the result; where it is 1 a row is read straight through. NaN is the best
either way.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, host, memory, ordering, rows, sizes
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

MOST_CHUNKS = 128
"""So many that their best are few vectors, so few that chunks are many."""

SHORTEST = 8
"""Vectors of a chunk."""

_NONE = 2**63 - 1  # the index of what a chunk no longer has


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 8)


def emit_top_k(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows."""
    frame = host.frame(spec, machine)
    search = _Search(frame)
    finish = rows.Finish(frame, 1)
    length = search.source.length
    if finish.length == 1:
        for row in emit.loop(frame.first, frame.last):
            index = search.first(search.source.row(row, ahead=True))
            finish.row(row)(emit.index(0), None, index)
        return
    best = _Best(machine)
    size = sizes.greatest(sizes.ceildiv(length, MOST_CHUNKS), SHORTEST * search.lanes)
    size = sizes.ceildiv(size, search.lanes) * search.lanes

    def take(row: Any) -> None:
        x_at, out_at = search.source.row(row), finish.row(row)

        def chunk(number: Any, before: Any = None) -> None:
            start = number * size
            stop = sizes.least(start + size, length)
            best.put(number, *search.find(x_at, start, stop, before))

        best.clear()
        for number in emit.loop(0, sizes.ceildiv(length, size)):
            chunk(number)
        for place in emit.loop(0, finish.length):
            key, index = best.get()
            out_at(place, None, index)
            chunk(sizes.floordiv(index, size), (key, index))

    for row in emit.loop(frame.first, frame.last):
        take(row)


class _Search:
    """Finds the best element of a part of a row."""

    def __init__(self, frame: host.Frame) -> None:
        spec = frame.spec
        self.dtype = spec.operands[0].dtype
        self.kind = ordering.key_dtype(self.dtype)
        self.lanes = host.lanes_for(frame.machine, [self.dtype, self.kind], [spec.prologue])
        self.source = rows.Source(frame, self.lanes)
        self.reverse = spec.attr("smallest")
        element = emit.register_type(self.kind)
        self.numbers = crosslane.numbers(element, self.lanes)
        top = 2 ** (emit.bits_of(element) - 1)
        self.lowest = emit.constant(element, -top, self.lanes)
        self.nowhere = emit.constant(element, top - 1, self.lanes)

    def first(self, x_at: rows.At) -> Any:
        """The index of the best element of a row, in int64, in a few independent chains."""
        length, block = self.source.length, rows.CHAINS * self.lanes
        blocks = length - sizes.mod(length, block)
        # A lane that sees nothing better than the least key has the first place that it may have.
        start = [self.lowest, self.numbers] * rows.CHAINS

        def further(i: Any, *state: Any) -> list[Any]:
            return [
                value
                for n in range(rows.CHAINS)
                for value in better(i + n * self.lanes, None, *state[2 * n : 2 * n + 2])
            ]

        def better(column: Any, mask: Any, key: Any, place: Any) -> list[Any]:
            found = ordering.key(self.dtype, x_at(column, mask), self.reverse)
            here = convert.cast(emit.as_index(column), "int64", self.kind)
            wins = compare("greater", found, key)
            if mask is not None:
                wins = wins & mask
            here = emit.splat(here, self.lanes) + self.numbers
            return [select(wins, found, key), select(wins, here, place)]

        chains = emit.carry(0, blocks, block, start, further)
        key, place = chains[:2]
        for n in range(1, rows.CHAINS):
            other, there = chains[2 * n : 2 * n + 2]
            wins = compare("greater", other, key)
            wins = wins | (compare("equal", other, key) & compare("less", there, place))
            key, place = select(wins, other, key), select(wins, there, place)
        whole = length - sizes.mod(length, self.lanes)
        key, place = emit.carry(
            blocks, whole, self.lanes, [key, place], lambda i, *best: better(i, None, *best)
        )
        rest = host.first_lanes(length - whole, self.lanes)
        key, place = better(emit.as_index(whole), rest, key, place)
        top = crosslane.across(key, emit.maximum)
        place = select(compare("equal", key, top), place, self.nowhere)
        return convert.cast(crosslane.across(place, emit.minimum), self.kind, "int64")

    def find(self, x_at: rows.At, start: Any, stop: Any, before: Any) -> tuple[Any, Any]:
        """Key and index, in int64, of the best element from `start` to `stop`.

        Only what comes after `before` counts, a key and index in that order.
        """
        count = stop - start
        whole = count - sizes.mod(count, self.lanes)
        after = self._follows(start, before) if before else None

        def better(column: Any, mask: Any, key: Any, place: Any) -> list[Any]:
            found = ordering.key(self.dtype, x_at(start + column, mask), self.reverse)
            here = convert.cast(emit.as_index(column), "int64", self.kind)
            here = emit.splat(here, self.lanes) + self.numbers
            wins = compare("greater_equal", found, key)
            if after:
                wins = wins & after(found, here)
            if mask is not None:
                wins = wins & mask
            return [select(wins, found, key), select(wins, here, place)]

        # From the end: of equal ones the first is seen last, and stays.
        rest = host.first_lanes(count - whole, self.lanes)
        best = better(whole, rest, self.lowest, self.nowhere)
        key, place = emit.carry(
            0, whole, self.lanes, best,
            lambda i, *best: better(whole - self.lanes - i, None, *best),
        )  # fmt: skip
        top = crosslane.across(key, emit.maximum)
        first = select(compare("equal", key, top), place, self.nowhere)
        first = crosslane.across(first, emit.minimum)
        limit = 2 ** (8 * emit.ITEM_SIZE[self.kind] - 1) - 1
        index = convert.cast(first, self.kind, "int64") + start
        index = select(compare("equal", first, limit), emit.index(_NONE), index)
        return convert.cast(top, self.kind, "int64"), index

    def _follows(self, start: Any, before: Any) -> Any:
        key = emit.splat(convert.cast(before[0], "int64", self.kind), self.lanes)
        place = emit.splat(convert.cast(before[1] - start, "int64", self.kind), self.lanes)

        def after(found: Any, here: Any) -> Any:
            later = compare("equal", found, key) & compare("greater", here, place)
            return compare("less", found, key) | later

        return after


class _Best:
    """The best key of each chunk and its index, on the stack."""

    def __init__(self, machine: Machine) -> None:
        self.lanes = machine.vector_bytes // 8
        self.keys, self.indices = (host.byte_buffer(8 * MOST_CHUNKS) for _ in range(2))

    def clear(self) -> None:
        """No chunk has anything."""
        for buffer, number in ((self.keys, -(2**63)), (self.indices, _NONE)):
            value = emit.constant(emit.integer(64), number, self.lanes)
            for place in range(0, MOST_CHUNKS, self.lanes):
                memory.store(value, buffer, place, "int64")

    def put(self, chunk: Any, key: Any, index: Any) -> None:
        """What chunk number `chunk` has."""
        memory.store(key, self.keys, chunk, "int64")
        memory.store(index, self.indices, chunk, "int64")

    def get(self) -> tuple[Any, Any]:
        """The best of all."""

        def better(i: Any, key: Any, index: Any) -> list[Any]:
            found, here = (
                memory.load(b, i, "int64", self.lanes) for b in (self.keys, self.indices)
            )
            wins = compare("greater", found, key)
            wins = wins | (compare("equal", found, key) & compare("less", here, index))
            return [select(wins, found, key), select(wins, here, index)]

        first = [memory.load(b, 0, "int64", self.lanes) for b in (self.keys, self.indices)]
        key, index = emit.carry(self.lanes, MOST_CHUNKS, self.lanes, first, better)
        top = crosslane.across(key, emit.maximum)
        place = select(compare("equal", key, top), index, _NONE)
        return top, crosslane.across(place, emit.minimum)


def supports(spec: Spec) -> str | None:
    """Numbers."""
    if spec.operands[0].dtype == "bool":
        return "no order of bool"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("top_k", "cpu", emit_top_k, launch, supports)
