"""The best element of each row: keys of a row, and where the first of its greatest ones is.

Several rows at a time (`sections`) are looked through by pieces first, as what their numbers are:
that takes one to three instructions for a vector, where keys and places take ten. Then keys are
made of the one piece that has the best element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from operator import or_
from typing import Any

from heddle.kernels import (
    bodies,
    convert,
    crosslane,
    emit,
    host,
    ordering,
    row_totals,
    rows,
    sections,
    sizes,
)
from heddle.kernels.cpu.reduce import neutral
from heddle.kernels.emit import compare, select

PIECE = 512
"""Columns of a piece."""


def emit_first(frame: host.Frame, search: Search) -> None:
    """Emits the loop over rows."""
    finish = rows.Finish(frame, 1)

    def several(numbers: Sequence[Any]) -> None:
        x_ats = [search.source.row(row) for row in numbers]
        for row, x_at, piece in zip(numbers, x_ats, search.pieces(x_ats), strict=True):
            finish.row(row)(emit.index(0), None, search.first(x_at, piece))

    for row in emit.loop(sections.rows_together(frame, several), frame.last):
        index = search.first(search.source.row(row, rows.ONCE))
        finish.row(row)(emit.index(0), None, index)


class Search:
    """Reads a row as keys, and finds the best one."""

    def __init__(self, frame: host.Frame) -> None:
        spec = frame.spec
        self.dtype = spec.operands[0].dtype
        self.kind = ordering.key_dtype(self.dtype)
        self.lanes = host.lanes_for(frame.machine, [self.dtype, self.kind], [spec.prologue])
        self.source = rows.Source(frame, self.lanes)
        self.reverse = spec.attr("smallest")
        self.worst = neutral("min" if self.reverse else "max", self.dtype)
        element = emit.register_type(self.kind)
        self.numbers = crosslane.numbers(element, self.lanes)
        top = 2 ** (emit.bits_of(element) - 1)
        self.lowest = emit.constant(element, -top, self.lanes)
        self.nowhere = emit.constant(element, top - 1, self.lanes)

    def key(self, x: Any) -> Any:
        """The keys of a row's elements."""
        return ordering.key(self.dtype, x, self.reverse)

    def better(self, x: Any, best: Any) -> Any:
        """The better one of two elements; of two floats either one where one of them is NaN."""
        combine = emit.minimum if self.reverse else emit.maximum
        return combine(x, best, unsigned=emit.is_unsigned(self.dtype))

    def best_of(self, values: Sequence[Any]) -> Any:
        """The best ones of the lanes of several vectors: NaN where one is."""
        best = reduce(self.better, values)
        if not emit.is_float(self.dtype):
            return best
        nan = [compare("not_equal", value, value) for value in values]
        return select(reduce(or_, nan), math.nan, best)

    def follows(self, x: Any, column: Any, before: Sequence[Any]) -> Any:
        """Which of the elements from `column` on come after the key and the place `before`."""
        key, place = self.key(x), self.places(column)
        later = compare("equal", key, before[0]) & compare("greater", place, before[1])
        return compare("less", key, before[0]) | later

    def reach(self, x: Any, bound: Any) -> Any:
        """Which elements' keys are no smaller than `bound`: all of them, and it may be some more.

        Numbers are compared as what they are, which takes less than making keys of them.
        """
        if not emit.is_float(self.dtype):
            return compare("greater_equal", self.key(x), bound)
        least = ordering.number(self.dtype, bound)
        worse = ("greater", -least) if self.reverse else ("less", least)
        return compare(worse[0], x, worse[1]) ^ True

    def places(self, column: Any) -> Any:
        """The places from `column` on."""
        here = convert.cast(emit.as_index(column), "int64", self.kind)
        return emit.splat(here, self.lanes) + self.numbers

    def pieces(self, x_ats: Sequence[rows.At]) -> list[Any]:
        """Where the first whole piece with the best element of all these starts, of each row."""
        worst = emit.constant(emit.register_type(self.dtype), self.worst, self.lanes)
        choose = bodies.minimum if self.reverse else bodies.maximum
        totals = row_totals.Totals((worst,) * len(x_ats), partial(choose, self.dtype))

        def further(start: Any, *state: Any) -> list[Any]:
            def at(column: Any, mask: Any) -> list[Any]:
                return [x_at(column, mask) for x_at in x_ats]

            chains = totals.blocks(start, start + PIECE, at, totals.start)
            keys, before = map(self.key, totals.together(chains)), state[: len(x_ats)]
            here = emit.splat(convert.cast(start, "int64", self.kind), self.lanes)
            found = []
            for key, best, place in zip(keys, before, state[len(x_ats) :], strict=True):
                wins = compare("greater", key, best)
                found.append((select(wins, key, best), select(wins, here, place)))
            return [each for kind in zip(*found, strict=True) for each in kind]

        start = [self.lowest] * len(x_ats) + [emit.like(self.lowest, 0)] * len(x_ats)
        length = self.source.length
        state = emit.carry(0, length - sizes.mod(length, PIECE), PIECE, start, further)
        return list(map(self.place_of_best, state[: len(x_ats)], state[len(x_ats) :]))

    def place_of_best(self, key: Any, place: Any) -> Any:
        """The first of the places of the lanes that have the greatest key, in int64."""
        top = crosslane.across(key, emit.maximum)
        place = select(compare("equal", key, top), place, self.nowhere)
        return convert.cast(crosslane.across(place, emit.minimum), self.kind, "int64")

    def first(self, x_at: rows.At, piece: Any = None) -> Any:
        """The index of the best element of a row, in int64, in a few independent chains.

        Where the `piece` that has the best one of all whole pieces is known, by its start, it and
        what is behind the last one are read.
        """
        length, block = self.source.length, row_totals.CHAINS * self.lanes
        blocks = length - sizes.mod(length, block if piece is None else PIECE)
        begin, end = 0, blocks
        if piece is not None:
            begin, end = piece, piece + sizes.least(blocks, PIECE)
        # A lane that sees nothing better than the least key has the first place that it may have.
        start = [self.lowest, self.numbers] * row_totals.CHAINS

        def further(i: Any, *state: Any) -> list[Any]:
            return [
                value
                for n in range(row_totals.CHAINS)
                for value in better(i + n * self.lanes, None, *state[2 * n : 2 * n + 2])
            ]

        def better(column: Any, mask: Any, key: Any, place: Any) -> list[Any]:
            found = self.key(x_at(column, mask))
            wins = compare("greater", found, key)
            if mask is not None:
                wins = wins & mask
            return [select(wins, found, key), select(wins, self.places(column), place)]

        chains = emit.carry(begin, end, block, start, further)
        key, place = chains[:2]
        for n in range(1, row_totals.CHAINS):
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
        return self.place_of_best(key, place)
