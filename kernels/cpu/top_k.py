"""Where the k largest (or smallest) elements of each row are, in order; the first of equal ones.

A task is one row. Where k is 1 it is read straight through. Else the best elements of groups of
those of a piece of it give a bound that k elements reach; what reaches the bound is listed, and a
full list is cut to its best k, which raises the bound. A piece has a bound of its own if many of
its turns reach that of the ones before. Where k is large, `BATCH` are found in a reading. NaN is
the best either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
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
from heddle.kernels.cpu.ranking.best import Ranking, reached
from heddle.kernels.cpu.ranking.first import Search, emit_first
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Operand, Spec

arith = dialect("arith")

BATCH = 1024
"""Elements that are found in one reading of the row, at most."""

GROUPS = 4
"""For each of them so many groups of elements, and as much room in the list."""

PIECE = 2**15
"""Bytes that are read a second time, from the first cache."""

TURN = 4
"""Vectors that are looked at together: of them the best ones are kept."""


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
        self.groups = sizes.ceildiv(GROUPS * self.batch, self.lanes)
        self.turn = TURN * self.lanes
        room = self.lanes << (max(self.groups, 4 * TURN) - 1).bit_length()
        packs = frame.machine.vector_bytes == 64
        self.list = Ranking(self.kind, self.lanes, room, packs, self.batch)
        self.least = search.key(emit.constant(emit.register_type(search.dtype), search.worst))
        self.held = "float32" if search.dtype in emit.NARROW else search.dtype
        size = max(emit.ITEM_SIZE[dtype] for dtype in (self.kind, *map(_dtype, frame.spec.inputs)))
        self.piece = PIECE // size
        turns = self.piece // self.turn
        # So many turns with something to list tell that the row rises.
        self.many = min(2 * self.batch, turns * 3 // 4)
        self.hits = host.byte_buffer(8 * (turns + 1))
        self.peaks, self.tops = (
            host.byte_buffer(emit.ITEM_SIZE[self.kind] * self.lanes * count)
            for count in (turns, self.groups)
        )

    def take(self, row: Any) -> None:
        """Writes where the best ones of `row` are."""
        # While a row is searched the next one comes from memory.
        distance = sizes.least(self.length, self.piece)
        x_at = self.search.source.row(row, [memory.Ask(1, elements=distance)])
        self.again = self.search.source.row(row)
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

        def look(start: Any, count: Any, bound: Any) -> list[Any]:
            stop = sizes.least(start + self.piece, length)
            (hits,) = emit.either(
                compare("greater", start, 0),
                [count.type],
                lambda: [self._hits(start, stop, self._reading(x_at, start, bound))],
                lambda: [emit.index(self.piece)],
            )
            bound, hits = emit.either(
                compare("greater", hits, self.many),
                [bound.type, count.type],
                lambda: self._bounded(x_at, start, stop, wanted, bound),
                lambda: [bound, hits],
            )
            return self._listed(start, stop, wanted, hits, count, bound)

        count, _ = emit.carry(0, length, self.piece, [emit.index(0), self.least], look)
        # Many more than wanted take longer to sort than to cut.
        (count,) = emit.either(
            compare("greater", count, self.list.sorted_at_once),
            [count.type],
            lambda: self.list.cut(count, wanted)[:1],
            lambda: [count],
        )
        self.list.sort(count)

    def _bounded(self, x_at: rows.At, start: Any, stop: Any, wanted: Any, bound: Any) -> list[Any]:
        """A key that `wanted` elements reach or `bound`, and how many turns have such as reach it.

        The greatest ones of each turn are kept: with them no turn is read again in vain.
        """
        search, lanes = self.search, self.lanes
        turns = sizes.floordiv(stop - start, self.turn)
        for turn in emit.loop(0, turns):
            columns = self._columns(start + turn * self.turn)
            values = [x_at(column, None) for column in columns]
            if self.before:
                values = [
                    select(search.follows(x, column, self.before), x, search.worst)
                    for x, column in zip(values, columns, strict=True)
                ]
            memory.store(search.best_of(values), self.peaks, turn * lanes, self.held)

        def peak(turn: Any) -> Any:
            return memory.load(self.peaks, turn * lanes, self.held, lanes)

        groups = sizes.least(turns, self.groups)

        def enough() -> list[Any]:
            for group in emit.loop(0, groups):

                def better(turn: Any, best: Any) -> list[Any]:
                    return [search.better(peak(turn), best)]

                (best,) = emit.carry(group + groups, turns, groups, [peak(group)], better)
                memory.store(search.key(best), self.tops, group * lanes, self.kind)
            found = reached(self.tops, self.kind, lanes, groups, wanted)[0]
            return [emit.maximum(bound, found)]

        plenty = compare("greater_equal", groups * lanes, wanted)
        (bound,) = emit.either(plenty, [bound.type], enough, lambda: [bound])
        return [bound, self._hits(start, stop, lambda turn: search.reach(peak(turn), bound))]

    def _reading(self, x_at: rows.At, start: Any, bound: Any) -> Callable[[Any], Any]:
        """Tells by reading a turn whether lanes of it have an element that reaches the bound."""

        def reaching(turn: Any) -> Any:
            columns = self._columns(start + turn * self.turn)
            return reduce(or_, [self._reaching(x_at(c, None), c, bound) for c in columns])

        return reaching

    def _columns(self, start: Any) -> list[Any]:
        """Where the vectors of a turn are."""
        return [start + n * self.lanes for n in range(TURN)]

    def _reaching(self, x: Any, column: Any, bound: Any) -> Any:
        """Which of the elements from `column` on are to be listed."""
        here = self.search.reach(x, bound)
        return here & self.search.follows(x, column, self.before) if self.before else here

    def _hits(self, start: Any, stop: Any, reaching: Callable[[Any], Any]) -> Any:
        """Notes the turns that have something to list, without a branch; how many those are."""
        turns = sizes.floordiv(stop - start, self.turn)

        def note(turn: Any, hits: Any) -> list[Any]:
            memory.store(turn, self.hits, hits, "int64")
            return [hits + arith.extui(emit.integer(64), any_lane(reaching(turn)))]

        (hits,) = emit.carry(0, turns, 1, [emit.index(0)], note)
        # What is left of the row is no whole turn.
        memory.store(emit.as_index(turns), self.hits, hits, "int64")
        left = compare("less", turns * self.turn, stop - start)
        return hits + arith.extui(emit.integer(64), left)

    def _listed(
        self, start: Any, stop: Any, wanted: Any, hits: Any, count: Any, bound: Any
    ) -> list[Any]:
        """Lists what reaches the bound; returns how many there are now, and the last bound."""

        def look(edge: bool, first: Any, count: Any, bound: Any) -> list[Any]:
            columns = self._columns(first)
            left = [emit.maximum(stop - column, 0) for column in columns]
            masks = [host.first_lanes(n, self.lanes) if edge else None for n in left]
            values = [self.again(*each) for each in zip(columns, masks, strict=True)]
            here = [
                self._reaching(x, column, bound) for x, column in zip(values, columns, strict=True)
            ]
            if edge:
                here = [some & mask for some, mask in zip(here, masks, strict=True)]
            keys = [self.search.key(x) for x in values]
            places = [self.search.places(column) for column in columns]
            return [self.list.put(count, keys, places, here)]

        def step(number: Any, count: Any, bound: Any) -> list[Any]:
            first = start + memory.load(self.hits, number, "int64") * self.turn
            (found,) = emit.either(
                compare("less_equal", first + self.turn, stop),
                [count.type],
                lambda: look(False, first, count, bound),
                lambda: look(True, first, count, bound),
            )
            return emit.either(
                compare("greater", found, self.list.room - self.turn),
                [found.type, bound.type],
                lambda: self.list.cut(found, wanted),
                lambda: [found, bound],
            )

        return emit.carry(0, hits, 1, [count, bound], step)

    def _write(self, out_at: Callable[..., None], start: Size, count: Size) -> None:
        """Writes the first `count` sorted ones to the result from `start` on."""
        for i, mask in host.vectors(0, count, self.finish.lanes):
            out_at(i + start, mask, self.list.indices(i, self.finish.lanes))


def _dtype(operand: Operand) -> str:
    return operand.dtype


KERNEL = Kernel("top_k", "cpu", emit_top_k, launch, partial(bodies.of_numbers, what="order"))
