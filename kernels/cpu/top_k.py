"""Where the k largest (or smallest) elements of each row are, in order; the first of equal ones.

A task is one row. Where k is 1 it is read straight through. Else the best elements of stretches of
a piece of it give a bound that k elements reach; what reaches the bound is listed, and a full list
is cut to its best k, which raises the bound. A piece has a bound of its own if that rose in the one
before. Where k is large, `BATCH` are found in a reading. NaN is the best either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from heddle.kernels import (
    bodies,
    emit,
    host,
    memory,
    rows,
    sizes,
)
from heddle.kernels.cpu._first import Search, emit_first
from heddle.kernels.cpu._histogram import any_lane
from heddle.kernels.cpu._ranking import Ranking, reached
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec

BATCH = 1024
"""Elements that are found in one reading of the row, at most."""

STRETCHES = 4
"""For each of them so many stretches, and as much room in the list."""

PIECE = 2**15
"""Bytes that are read a second time, from the first cache."""

TURN = 4
"""Vectors that are looked at together."""


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 8)


def emit_top_k(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows."""
    frame = host.frame(spec, machine)
    search = Search(frame)
    if spec.result.shape[-1] == 1:
        emit_first(frame, search)
        return
    best = _Best(frame, search)
    for row in emit.loop(frame.first, frame.last):
        best.take(row)


class _Best:
    """Finds the best k of a row."""

    def __init__(self, frame: host.Frame, search: Search) -> None:
        self.search, self.length = search, search.source.length
        self.lanes, self.kind = search.lanes, search.kind
        wide = host.lanes_for(frame.machine, ["int64"], [frame.spec.epilogue])
        self.finish = rows.Finish(frame, wide)
        self.k = self.finish.length
        self.batch = min(self.k, BATCH)
        self.stretches = sizes.ceildiv(STRETCHES * self.batch, self.lanes)
        room = self.lanes << (max(self.stretches, 4 * TURN) - 1).bit_length()
        self.list = Ranking(self.kind, self.lanes, room)
        self.least = search.key(emit.constant(emit.register_type(search.dtype), search.worst))
        self.tops = host.byte_buffer(emit.ITEM_SIZE[self.kind] * self.lanes * self.stretches)
        size = max(emit.ITEM_SIZE[operand.dtype] for operand in frame.spec.inputs)
        self.piece = PIECE // size

    def take(self, row: Any) -> None:
        """Writes where the best ones of `row` are."""
        # While a row is searched the next one comes from memory.
        distance = sizes.least(self.length, self.piece)
        x_at = self.search.source.row(row, ahead=True, distance=distance)
        out_at = self.finish.row(row)
        if self.k == self.batch:
            self._find(x_at, (), emit.index(self.k))
            self._write(out_at, 0, self.k)
            return

        def further(start: Any, *before: Any) -> list[Any]:
            wanted = emit.minimum(emit.index(self.k) - start, self.batch)
            self._find(x_at, before, wanted)
            self._write(out_at, start, wanted)
            return self.list.element(wanted - 1)

        before = [emit.like(self.least, self.list.limit), emit.like(self.least, -1)]
        emit.carry(0, self.k, self.batch, before, further)

    def _find(self, x_at: rows.At, before: Sequence[Any], wanted: Any) -> None:
        """Lists the best ones in their order, of those that come after `before`, if it is given."""
        self.before = before
        length = self.length

        def look(start: Any, count: Any, bound: Any, rises: Any) -> list[Any]:
            stop = sizes.least(start + self.piece, length)
            (found,) = emit.either(
                rises,
                [bound.type],
                lambda: [self._bound(x_at, start, stop, wanted)],
                lambda: [bound],
            )
            bound = emit.maximum(bound, found)
            count, raised = self._listed(x_at, start, stop, wanted, count, bound)
            return [count, raised, compare("greater", raised, bound)]

        first = [emit.index(0), self.least, emit.constant(emit.integer(1), 1)]
        count, *_ = emit.carry(0, length, self.piece, first, look)
        # A few more than wanted would be sorted with twice as many.
        (count,) = emit.either(
            compare("greater", count, 1 << (self.batch - 1).bit_length()),
            [count.type],
            lambda: self.list.cut(count, wanted)[:1],
            lambda: [count],
        )
        self.list.sort(count)

    def _bound(self, x_at: rows.At, start: Any, stop: Any, wanted: Any) -> Any:
        """A key that `wanted` elements reach: the best ones of so many stretches of the piece."""
        search, lanes, before = self.search, self.lanes, self.before
        vectors = sizes.floordiv(stop - start, lanes)
        stretches = sizes.least(vectors, self.stretches)
        size = sizes.floordiv(vectors, sizes.greatest(stretches, 1))

        def enough() -> list[Any]:
            for stretch in emit.loop(0, stretches):
                first = start + stretch * size * lanes

                def at(i: Any, first: Any = first) -> Any:
                    column = first + i * lanes
                    x = x_at(column, None)
                    return (
                        select(search.follows(x, column, before), x, search.worst) if before else x
                    )

                def better(i: Any, best: Any, at: Callable[[Any], Any] = at) -> list[Any]:
                    return [search.better(at(i), best)]

                (best,) = emit.carry(1, size, 1, [at(emit.index(0))], better)
                memory.store(search.key(best), self.tops, stretch * lanes, self.kind)
            return reached(self.tops, self.kind, lanes, stretches, wanted)[:1]

        plenty = compare("greater_equal", stretches * lanes, wanted)
        return emit.either(plenty, [self.least.type], enough, lambda: [self.least])[0]

    def _listed(
        self, x_at: rows.At, start: Any, stop: Any, wanted: Any, count: Any, bound: Any
    ) -> list[Any]:
        """Lists what reaches the bound; returns how many there are now, and the last bound."""
        turn, search = TURN * self.lanes, self.search

        def look(edge: bool, start: Any, count: Any, bound: Any) -> list[Any]:
            columns = [start + n * self.lanes for n in range(TURN)]
            left = [emit.maximum(stop - column, 0) for column in columns]
            masks = [host.first_lanes(n, self.lanes) if edge else None for n in left]
            values = [x_at(*each) for each in zip(columns, masks, strict=True)]
            here = [search.reach(x, bound) for x in values]
            if edge:
                here = [some & mask for some, mask in zip(here, masks, strict=True)]
            if self.before:
                here = [
                    some & search.follows(x, column, self.before)
                    for some, x, column in zip(here, values, columns, strict=True)
                ]

            def put() -> list[Any]:
                found = count
                for each in zip(values, columns, here, strict=True):
                    found = self._put(found, *each)
                return [found]

            return emit.either(any_lane(reduce(or_, here)), [count.type], put, lambda: [count])

        def step(start: Any, count: Any, bound: Any) -> list[Any]:
            (found,) = emit.either(
                compare("less_equal", start + turn, stop),
                [count.type],
                lambda: look(False, start, count, bound),
                lambda: look(True, start, count, bound),
            )
            return emit.either(
                compare("greater", found, self.list.room - turn),
                [found.type, bound.type],
                lambda: self.list.cut(found, wanted),
                lambda: [found, bound],
            )

        return emit.carry(start, stop, turn, [count, bound], step)

    def _put(self, count: Any, x: Any, column: Any, here: Any) -> Any:
        """Lists the elements of a vector that are `here`; returns how many there are now."""
        search = self.search

        def put() -> list[Any]:
            return [self.list.put(count, search.key(x), search.places(column), here)]

        # Without AVX-512 packing lanes is a branch and a store for each of them.
        if search.source.frame.machine.vector_bytes == 64:
            return put()[0]
        return emit.either(any_lane(here), [count.type], put, lambda: [count])[0]

    def _write(self, out_at: Callable[..., None], start: Size, count: Size) -> None:
        """Writes the first `count` sorted ones to the result from `start` on."""
        for i, mask in host.vectors(0, count, self.finish.lanes):
            out_at(i + start, mask, self.list.indices(i, self.finish.lanes))


def supports(spec: Spec) -> str | None:
    """Numbers."""
    if spec.operands[0].dtype == "bool":
        return "no order of bool"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("top_k", "cpu", emit_top_k, launch, supports)
