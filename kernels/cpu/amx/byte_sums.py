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

UPPER = 4
"""By how many powers of two weights of 4 bits are too large: each is the upper half of a byte."""

PANELS, APART = 64, 2 << 20
"""Panels that are multiplied before their results are written, at most, and bytes of their weights.

Each time costs about 3 us beside weights that come from memory, however much is written.
"""


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
    """The totals of up to so many `panels`, and room for the sums of a span.

    Made in the entry block. Steps along k are counted through all panels.
    """

    def __init__(self, frame: host.Frame, cut: Cut, digits: Digits, rows: int, step: int) -> None:
        """The weights of a step are `step` bytes."""
        self._scales, self._dtype = frame.inputs[2], frame.spec.operands[2].dtype
        self._cut, self._digits = cut, digits
        self._ahead = max(1, groups.SCALES // (cut.group * step)) * PANEL
        self._room = host.byte_buffer(HALVES * TILE * -(-rows // ROWS))
        self._size = rows * PANEL_ROW
        self.panels = max(1, min(PANELS, APART // (cut.steps * step)))
        self._totals = host.byte_buffer(self.panels * self._size)

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

        def take_turn(
            first: Size, waiting: Sequence[Any], adding: Callable[[int], Acts]
        ) -> Sequence[Any]:
            """Multiplies two spans; returns the tiles of the second one, which wait to be stored.

            `adding` gives what is done beside each of them.
            """
            earlier = multiply(first, adding(0))
            self._store(waiting, height)
            later = multiply(first + cut.along, adding(1))
            self._store(earlier, height)
            return later

        def add_digits(start: Size, *waiting: Any) -> Sequence[Any]:
            def add_turn(first: Size, *before: Any) -> list[Any]:
                waiting, sums = before[:HALVES], list(before[HALVES:])
                adding = partial(self._adding, height, first - cut.turn, sums)
                # Beside the last sums there is nothing left to multiply: it is done once more.
                later = take_turn(sizes.least(first, end - cut.turn), waiting, adding)
                return [*later, *sums]

            before = [*waiting, *[zero] * (HALVES * height)]
            turns = (start + cut.turn, start + cut.digits + cut.turn, cut.turn)
            once = cut.digits == cut.turn
            found = add_turn(turns[0], *before) if once else emit.carry(*turns, before, add_turn)
            to_totals = self._to_totals(begin, start)
            for row in range(height):
                to_totals(row, found[HALVES * (row + 1) : HALVES * (row + 2)])
            return found[:HALVES]

        none = [tiles.zero(DIGITS * height) for _ in range(HALVES)]
        emit.carry(begin, end, cut.digits, take_turn(begin, none, lambda _: ()), add_digits)

    def _adding(self, height: int, start: Size, sums: list[Any], number: int) -> Acts:
        """What adds a stored span of the turn from a step on, row by row, to `sums`."""
        scales = self.scales_at(start + number * self._cut.along)

        def add(row: int) -> None:
            for half, scale in enumerate(scales):
                at, found = row * HALVES + half, self._stored(row, half)
                # LLVM would do all of it behind the products, where registers do not suffice.
                sums[at] = emit.pinned(emit.fma(found, scale, sums[at]))

        return [partial(add, row) for row in range(height)]

    def _in_memory(self, height: int, begin: Size, end: Size, multiply: Multiply) -> None:
        """Of more rows: their tiles take all registers but those that are multiplied.

        So what is stored at once is scaled one span later.
        """
        along = self._cut.along

        def adding(start: Size) -> Acts:
            scales = self.scales_at(start)
            to_totals = self._to_totals(begin, start)

            def add(row: int) -> None:
                found = (self._stored(row, half) for half in range(HALVES))
                to_totals(row, [value * scale for value, scale in zip(found, scales, strict=True)])

            return [partial(add, row) for row in range(height)]

        for start in emit.loop(begin, end, along):
            # Before the first span there is none: its totals are written anew by the next.
            before = sizes.greatest(start - along, begin)
            self._store(multiply(start, adding(before)), height)
        for act in adding(end - along):
            act()

    def _store(self, found: Sequence[Any], height: int) -> None:
        """Stores a span's sums, where others were that have been added up."""
        for place, total in enumerate(found):
            at = bytes_at(self._room, place * TILE)
            tiles.store(total, at, TILE_ROW, rows=DIGITS * min(height, ROWS))

    def _stored(self, row: int, half: int) -> Any:
        """A row's sums that were stored, half a panel's."""
        block, inside = divmod(row, ROWS)
        first = (block * HALVES + half) * TILE_ROWS + inside * DIGITS
        low, high = (
            memory.load(self._room, (first + d) * TILE_ROWS, "int32", TILE_ROWS)
            for d in range(DIGITS)
        )
        return joined(low, high)

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
