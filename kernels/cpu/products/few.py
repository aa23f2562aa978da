"""Products of too few rows to be staged, with AVX2: by four panels at once, in short stretches.

A core that reads from one place gets two thirds of what it gets from four. So some steps along k
of each panel of a unit are multiplied before the next ones, half a panel at a time, and what comes
next of all four is asked for meanwhile; the sums wait on the stack. One row, whose sums by two
panels fit in registers, goes through both of them at once, and is fastest where it asks for
nothing. Either way a sum takes its products in the order of k: a row's bits do not depend on the
other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.cpu.products.blocks import PANEL, Rows, heights
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.cpu.products.sides import WORD, Column, Sides
from heddle.kernels.cpu.products.tile import Step, rows_of
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, product

UNIT = 4
"""Panels that are multiplied together; for one row two."""

STRETCH = 32
"""Steps along k before the next panel, half as many where each has two parts: of a row two lines,
of a unit 16 KiB."""

MOST = {"float32": 6, "bfloat16": 6, "uint8": 5}
"""Rows that are few, at most, by the dtype of a; more are faster in longer chunks."""

LARGE = 2 << 20
"""Bytes of b from which on it may come from memory, where two tiles of float32 are few rows too."""


def most(spec: Spec, machine: Machine) -> int:
    """Rows that are few, at most; where they are not multiplied here, those of a tile."""
    a, b = spec.operands[:2]
    if machine.vector_bytes == 64:
        return rows_of(machine)
    nbytes = product((*b.shape, emit.ITEM_SIZE[b.dtype]))
    large = a.dtype == "float32" and isinstance(nbytes, int) and nbytes >= LARGE
    return 2 * MOST[a.dtype] if large else MOST[a.dtype]


def fits(tasks: Tasks) -> bool:
    """Whether there may be rows that are multiplied here."""
    machine, spec = tasks.frame.machine, tasks.frame.spec
    if machine.vector_bytes == 64 or spec.operands[0].dtype not in MOST:
        return False
    return any(height <= most(spec, machine) for height in tasks.heights)


@dataclass(frozen=True)
class _Unit:
    """Rows by `count` panels from number `panel` of theirs on, in tiles of `each` rows at most."""

    rows: Rows
    panel: Size
    count: Size
    each: Size = 1


class Few:
    """The sums of a few rows by units of panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks, step: Step) -> None:
        frame = tasks.frame
        self._tasks, self._step, self._lanes = tasks, step, tasks.lanes
        self._most = min(most(frame.spec, frame.machine), tasks.most)
        self._high = min(rows_of(frame.machine), self._most)
        few = [height for height in tasks.heights if height <= self._most]
        self._heights = heights(self._high, few)
        self._stretch = STRETCH // step.parts
        self._sides = Sides(tasks, step, self._stretch, self._most)
        self._sums = host.byte_buffer(UNIT * self._most * PANEL * WORD, shared="sums")
        self._zero = emit.constant(emit.register_type(step.sums), 0, self._lanes)

    def compute(self, rows: Rows, first: Size, last: Size) -> Size:
        """Emits the results of rows that are few; returns the first panel that is left."""
        height, left = emit.as_index(rows.height), sizes.greatest(last - first, 0)
        few = emit.compare("less_equal", height, self._most) & emit.compare("greater", height, 0)
        end = first + emit.select(few, emit.as_index(left), 0)
        one = emit.compare("equal", height, 1)
        units = first + emit.select(one, emit.as_index(left) // 2 * 2, 0)
        for panel in emit.loop(first, units, 2):
            self._multiply_one(_Unit(rows, panel, 2))
        two = emit.compare("greater", height, self._high)
        each = emit.select(two, sizes.ceildiv(height, 2), height)
        for panel in emit.loop(units, end, UNIT):
            self._multiply(_Unit(rows, panel, sizes.least(end - panel, UNIT), each))
        return end

    def _multiply_one(self, unit: _Unit) -> None:
        """Emits the results of one row by two panels."""
        steps = self._sides.steps
        base = self._sides.place(unit.rows, unit.panel, 0)
        columns = [(i, column) for i in range(2) for column in range(0, PANEL, self._lanes)]

        def add(start: Any, *before: Any) -> list[Any]:
            stop = sizes.least(start + self._stretch, steps)
            self._sides.stage(unit.rows, start, stop)
            here = base + start * self._sides.bytes
            return self._sides.add(before, 0, here, columns, stop - start)

        self._ask_results(unit)
        sums = emit.carry(0, steps, self._stretch, [self._zero] * len(columns), add)
        for place, value in zip(self._places(0, 1, columns), sums, strict=True):
            memory.store(value, self._sums, place, self._step.sums)
        self._write(unit)

    def _multiply(self, unit: _Unit) -> None:
        """Emits the results of rows by a unit, stretch by stretch."""
        self._ask_results(unit)
        steps = self._sides.steps
        # Without steps the result is zero.
        for start in emit.loop(0, sizes.greatest(steps, 1), self._stretch):
            stop = sizes.least(start + self._stretch, steps)
            self._sides.stage(unit.rows, start, stop)
            goes_on = emit.compare("less", emit.as_index(stop), steps)
            behind = emit.select(goes_on, stop * self._sides.bytes, UNIT * self._sides.apart)
            following = self._sides.place(unit.rows, unit.panel, 0) + behind
            for i in emit.loop(0, unit.count):
                block = self._tasks.block(unit.rows, unit.panel + i)
                for part in range(0, PANEL, 2 * self._lanes):
                    with self._tasks.reached(block, part):
                        ask = self._asks(following, i * PANEL + part)
                        columns = [(i, part), (i, part + self._lanes)]
                        self._add_tiles(unit, columns, start, stop, ask)
        self._write(unit)

    def _add_tiles(
        self, unit: _Unit, columns: list[Column], start: Size, stop: Size, ask: Ask
    ) -> None:
        """Adds a stretch to the sums of some columns; the first tile asks for memory."""
        base = self._sides.place(unit.rows, unit.panel, start)
        # The sums before the first stretch are zero, whatever lies in memory.
        begun = emit.compare("greater", emit.as_index(start), 0)
        mask = host.first_lanes(emit.select(begun, emit.index(self._lanes), 0), self._lanes)
        dtype = self._step.sums
        for top in emit.loop(0, unit.rows.height, unit.each):
            rows = sizes.least(unit.rows.height - top, unit.each)

            def ask_first(step: Any, top: Any = top) -> None:
                with emit.when(emit.compare("equal", top, 0)):
                    ask(step)

            for height in self._heights:
                with emit.when(emit.compare("equal", rows, height)):
                    places = self._places(top, height, columns)
                    sums = [memory.load(self._sums, at, dtype, self._lanes, mask) for at in places]
                    sums = self._sides.add(sums, top, base, columns, stop - start, ask_first)
                    for place, value in zip(places, sums, strict=True):
                        memory.store(value, self._sums, place, dtype)

    def _places(self, top: Size, height: int, columns: list[Column]) -> list[Size]:
        """Where the sums of rows from `top` on lie, in row-major order."""
        rows = (top + r for r in range(height))
        return [(i * self._most + r) * PANEL + column for r in rows for i, column in columns]

    def _asks(self, following: Size, column: Size) -> Ask:
        """What asks for lines of all panels, of the first one from byte `following` of b on.

        Tiles share them by their first `column` in the unit.
        """
        share = self._sides.bytes * self._stretch // UNIT // PANEL
        pace = share * 2 * self._lanes // self._stretch

        def ask(step: Any) -> None:
            for i in range(UNIT):
                place = following + i * self._sides.apart + column * share + step * pace
                memory.prefetch(self._sides.b, place, "int8")

        return ask

    def _ask_results(self, unit: _Unit) -> None:
        """Prefetches the lines of the results that the unit will write."""
        for i in emit.loop(0, unit.count):
            self._tasks.ask(self._tasks.block(unit.rows, unit.panel + i))

    def _write(self, unit: _Unit) -> None:
        """Writes the results of a unit."""
        for i in emit.loop(0, unit.count):
            sums = memory.at(self._sums, i * (self._most * PANEL * WORD), "int8")
            self._tasks.write(self._tasks.block(unit.rows, unit.panel + i), sums)
