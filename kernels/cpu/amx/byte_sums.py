"""The sums of a panel by a few rows as bytes, from AMX tiles to totals.

A row has two rows of a tile, of its lower and its upper bytes, whose sums become one number when a
group's span along k ends; times the group's scales it is added up in registers, while the rows'
numbers are multiples of the same one (see `digits`). Spans take turns: a tile that is stored while
it is still being computed would hold up the products behind it. So its sums are stored behind the
products of the next span, and scaled beside those of the one after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx import groups, tiles
from heddle.kernels.cpu.amx.digits import DIGITS, ROWS, Digits, joined
from heddle.kernels.cpu.amx.sides import PANEL_ROW, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.sizes import Size

HALVES = 2
"""Tiles of a panel's columns."""

ROOM = HALVES * TILE
"""Bytes of a block's sums of a span."""

PANELS = 8
"""Panels that are multiplied before their results are written, at most."""


@dataclass(frozen=True)
class Cut:
    """How k is cut, in steps along it: into groups, spans of sums and spans of digits."""

    steps: int
    group: int
    along: int
    digits: int

    @property
    def turn(self) -> int:
        """Both spans of sums that take turns."""
        return 2 * self.along


Acts = Sequence[Callable[[], None]]
"""Parts of some work, each of which emits its code."""

Multiply = Callable[[Size, Acts], Sequence[Any]]
"""Emits the tiles of sums of the span from a step on, and beside its products what it is given."""


class ByteSums:
    """The totals of a few panels, and room for sums of two spans; made in the entry block.

    Steps along k are counted through all panels.
    """

    def __init__(self, frame: host.Frame, cut: Cut, digits: Digits, rows: int, ahead: int) -> None:
        self._scales, self._dtype = frame.inputs[2], frame.spec.operands[2].dtype
        self._cut, self._digits, self._ahead = cut, digits, ahead
        self._room = host.byte_buffer(2 * ROOM * -(-rows // ROWS))
        self._size = rows * PANEL_ROW
        self._totals = host.byte_buffer(PANELS * self._size)

    def totals(self, number: Size) -> Any:
        """Those of a panel, in rows of 32: counted from the first that is added up."""
        return bytes_at(self._totals, number * self._size)

    def add_up(self, height: int, begin: Size, end: Size, multiply: Multiply) -> None:
        """Emits the totals of so many rows by the panels of the steps from `begin` to `end - 1`."""
        add = self._in_registers if height <= ROWS else self._in_memory
        add(height, begin, end, multiply)

    def scales_at(self, start: Size) -> list[Any]:
        """The scales of the span from step `start` on; asks for later ones."""
        place = start // self._cut.group * PANEL
        groups.ask(self._scales, place + self._ahead, self._dtype)
        halves = (place + half * TILE_ROWS for half in range(HALVES))
        return [memory.load(self._scales, at, self._dtype, TILE_ROWS) for at in halves]

    def _in_registers(self, height: int, begin: Size, end: Size, multiply: Multiply) -> None:
        cut, zero = self._cut, emit.constant(emit.register_type("float32"), 0, TILE_ROWS)

        def adding(start: Size, number: int, sums: list[Any]) -> Acts:
            """What adds those of a span that are stored, row by row, to `sums`."""
            scales = self.scales_at(start + number * cut.along)

            def add(row: int) -> None:
                for half, scale in enumerate(scales):
                    at, found = row * HALVES + half, self._stored(number, 1, row, half)
                    # LLVM would do all of it behind the products, where registers do not suffice.
                    sums[at] = emit.pinned(emit.fma(found, scale, sums[at]))

            return [partial(add, row) for row in range(height)]

        def add_turn(first: Size, *before: Any) -> list[Any]:
            waiting, sums = before[:HALVES], list(before[HALVES:])
            # In the first turn there are none before: what is added up then is dropped.
            start = sizes.greatest(first - cut.turn, begin)
            earlier = multiply(first, adding(start, 0, sums))
            self._store(waiting, 1, height)
            later = multiply(first + cut.along, adding(start, 1, sums))
            self._store(earlier, 0, height)
            return [*later, *self._added(begin, first, sums)]

        none = [tiles.zero(DIGITS * height) for _ in range(HALVES)]
        before = [*none, *[zero] * (HALVES * height)]
        last = emit.carry(begin, end, cut.turn, before, add_turn)
        self._store(last[:HALVES], 1, height)
        sums = last[HALVES:]
        for number in range(2):
            for act in adding(end - cut.turn, number, sums):
                act()
        self._add(begin, end, sums)

    def _in_memory(self, height: int, begin: Size, end: Size, multiply: Multiply) -> None:
        """Of more rows: their tiles take all registers but those that are multiplied.

        So what is stored at once is scaled one span later.
        """
        cut, blocks = self._cut, -(-height // ROWS)

        def adding(start: Size, number: int) -> Acts:
            scales = self.scales_at(start)
            to_totals = self._to_totals(begin, start)

            def add(row: int) -> None:
                found = (self._stored(number, blocks, row, half) for half in range(HALVES))
                to_totals(row, [value * scale for value, scale in zip(found, scales, strict=True)])

            return [partial(add, row) for row in range(height)]

        for first in emit.loop(begin, end, cut.turn):
            for number in range(2):
                start = first + number * cut.along
                # Before the first span there is none: its totals are written anew by the next.
                before = sizes.greatest(start - cut.along, begin)
                found = multiply(start, adding(before, 1 - number))
                self._store(found, number, height)
        for act in adding(end - cut.along, 1):
            act()

    def _store(self, found: Sequence[Any], number: int, height: int) -> None:
        """Stores the sums of the first or the second span of a turn."""
        blocks = len(found) // HALVES
        for place, total in enumerate(found):
            at = bytes_at(self._room, number * blocks * ROOM + place * TILE)
            tiles.store(total, at, TILE_ROW, rows=DIGITS * min(height, ROWS))

    def _stored(self, number: int, blocks: int, row: int, half: int) -> Any:
        """A row's sums that were stored, half a panel's; rows lie in so many blocks."""
        block, inside = divmod(row, ROWS)
        first = (number * blocks + block) * HALVES * TILE_ROWS + half * TILE_ROWS + inside * DIGITS
        low, high = (
            memory.load(self._room, (first + d) * TILE_ROWS, "int32", TILE_ROWS)
            for d in range(DIGITS)
        )
        return joined(low, high)

    def _added(self, begin: Size, first: Size, sums: list[Any]) -> list[Any]:
        """Adds sums to the totals where those of a span of digits end before step `first`.

        Returns those that go on: zeros there.
        """

        def added() -> list[Any]:
            with emit.when(emit.compare("greater", first, begin)):
                self._add(begin, first, sums)
            return [emit.constant(emit.register_type("float32"), 0, TILE_ROWS)] * len(sums)

        if self._cut.digits == self._cut.turn:
            return added()
        ends = emit.compare("equal", first % self._cut.digits, 0)
        return emit.either(ends, [value.type for value in sums], added, lambda: sums)

    def _add(self, begin: Size, end: Size, sums: Sequence[Any]) -> None:
        """Adds sums to the totals: those of the span of digits that ends before step `end`."""
        to_totals = self._to_totals(begin, end - self._cut.digits)
        for row in range(len(sums) // HALVES):
            to_totals(row, sums[row * HALVES : (row + 1) * HALVES])

    def _to_totals(self, begin: Size, start: Size) -> Callable[[int, Sequence[Any]], None]:
        """What adds sums of a row to the totals: those of steps from `start` on.

        With the first steps of a panel its totals begin, whatever lies in memory.
        """
        cut = self._cut
        inside = start % cut.steps
        totals = self.totals((start - begin) // cut.steps)
        some = emit.compare("greater", inside, 0)
        mask = host.first_lanes(emit.select(some, emit.index(TILE_ROWS), 0), TILE_ROWS)

        def add(row: int, sums: Sequence[Any]) -> None:
            of_row = self._digits.scale(row, inside // cut.digits)
            for half, value in enumerate(sums):
                at = row * PANEL + half * TILE_ROWS
                total = memory.load(totals, at, "float32", TILE_ROWS, mask)
                total = emit.fma(value, of_row, total)
                memory.store(total, totals, at, "float32", alignment=TILE_ROW)

        return add
