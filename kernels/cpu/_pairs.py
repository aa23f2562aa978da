"""Products of float32 by two panels at a time: register tiles of 6 rows by 4 vectors.

A step along k takes 4 vectors of b and spreads 6 elements of a: 34 instructions for 24
multiply-adds, where 12 rows by 2 vectors take 38, and half as many lines of a at once. That counts
where a core's slots are shared with a neighbour, as by two hardware threads.

Pairs of panels are taken in runs that share a block of rows. A chunk of the rows is put on the
stack (rows that lie a power of two apart would share a few sets of the caches) and multiplied by
all pairs of the run, whose sums wait on the stack for the next chunk. So both sides come from the
second cache, where the next pair's part arrives meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _panels
from heddle.kernels.cpu._blocks import PANEL, Rows, Strip, put_on_stack
from heddle.kernels.cpu._panels import BLOCK, LINE, Tasks
from heddle.kernels.cpu._tile import add_rows, rows_of
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

FLOAT = "float32"
SIZE = emit.ITEM_SIZE[FLOAT]

STEP = PANEL * SIZE
"""Bytes that a step along k takes of a panel."""

HEIGHTS = (6, 5, 4)
"""Rows of a tile: 13 rows and more are shared out so."""

CHUNK = 512
"""Steps before the next pair of a run: 128 KiB of the rows, and as much of a pair."""

ROW = CHUNK * SIZE + LINE
"""Bytes of a row on the stack: an odd number of lines."""

RUN = 32
"""Panels of a run at most."""

TOGETHER = 4
"""Steps that ask for memory together."""

MANY = 8
"""Tiles of a block from which on a line of each panel is enough of that."""


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether pairs of panels are multiplied here: measured on CPUs with AMX alone."""
    m = _panels.extents(spec)[1]
    alike = all(operand.dtype == FLOAT for operand in spec.operands[:2])
    few = isinstance(m, int) and m <= rows_of(machine)
    return machine.tiles and alike and not few


def after(kind: type[Tasks]) -> type[Tasks]:
    """Tasks of `kind` that leave pairs to this file: what remains is few rows, and last panels."""

    class Rest(kind):  # type: ignore[misc, valid-type]
        def runs(self) -> Iterator[tuple[Rows, Size, Size]]:
            pairs = Pairs(self)
            for rows, first, last in super().runs():
                yield rows, pairs.compute(rows, first, last), last

    return Rest


@dataclass(frozen=True)
class Part:
    """The steps from `start` to `stop - 1`, of `steps`, of rows by two panels from `panel` on.

    They begin at byte `base` of b, and what comes next at byte `following`. `sums` is the number
    of the panels among those whose sums are on the stack.
    """

    rows: Rows
    panel: Size
    start: Size
    stop: Size
    steps: Size
    base: Size
    following: Size
    sums: Size


class Pairs:
    """The sums of a block of rows by pairs of panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks, self.lanes = tasks, tasks.lanes
        frame = tasks.frame
        self.fewest = rows_of(frame.machine) + 1
        self.b = frame.inputs[1]
        self.steps = frame.size(frame.spec.operands[0].shape[-1])
        self.at_once = isinstance(self.steps, int) and self.steps <= CHUNK
        self.left = host.byte_buffer(BLOCK * ROW, shared="left")
        self.sums = host.byte_buffer((2 if self.at_once else RUN) * BLOCK * STEP, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> Size:
        """Emits the results of the rows by pairs of their panels; returns the first one left."""
        full = sizes.least(last, sizes.floordiv(self.tasks.each, PANEL))
        count = sizes.greatest(emit.as_index(full) - first, 0) // 2 * 2
        many = emit.compare("greater_equal", emit.as_index(rows.height), self.fewest)
        end = first + emit.select(many, count, 0)
        steps = rows.steps(self.steps)
        for begin in emit.loop(first, end, RUN):
            stop = sizes.least(begin + RUN, end)
            self._add_chunk(rows, begin, stop, 0, sizes.least(steps, CHUNK), steps)
            if not self.at_once:
                for start in emit.loop(CHUNK, steps, CHUNK):
                    behind = sizes.least(start + CHUNK, steps)
                    self._add_chunk(rows, begin, stop, start, behind, steps)
        return end

    def _add_chunk(
        self, rows: Rows, first: Size, last: Size, start: Size, stop: Size, steps: Size
    ) -> None:
        """Emits the steps from `start` to `stop - 1` for the panels from `first` to `last - 1`."""
        put_on_stack(self.tasks.frame, rows, start, stop, self.left, ROW)
        complete = emit.compare("greater_equal", emit.as_index(stop), steps)
        # Behind a run's last pair comes its next chunk, or the next run.
        behind = emit.select(complete, self._at(rows, last, 0), self._at(rows, first, stop))
        for panel in emit.loop(first, last, 2):
            goes_on = emit.compare("less", panel + 2, last)
            following = emit.select(goes_on, self._at(rows, panel + 2, start), behind)
            base, sums = self._at(rows, panel, start), 0 if self.at_once else panel - first
            part = Part(rows, panel, start, stop, steps, base, following, sums)
            self._add_tiles(part, complete)

    def _at(self, rows: Rows, panel: Size, step: Size) -> Size:
        """At which byte of b a step of a panel begins."""
        return ((rows.panel + panel) * self.steps + step) * STEP

    def _add_tiles(self, part: Part, complete: Any) -> None:
        """Emits the sums of a part tile by tile, and writes those that are `complete`."""
        count = sizes.ceildiv(part.rows.height, HEIGHTS[0])
        each = sizes.floordiv(part.rows.height, count)
        higher = part.rows.height - each * count
        for number in emit.loop(0, count):
            top, bottom = (i * each + sizes.least(i, higher) for i in (number, number + 1))
            for _, strip in self._strips(part, top, bottom):
                self.tasks.ask_strip(strip, complete)
            for height in HEIGHTS:
                with emit.when(emit.compare("equal", bottom - top, height)):
                    self._add_tile(part, top, height, number, count)
            for sums, strip in self._strips(part, top, bottom):
                self.tasks.write_strip(strip, sums, complete)

    def _strips(self, part: Part, top: Size, bottom: Size) -> Iterator[tuple[Any, Strip]]:
        """Emits the Python body of a `for sums, strip in` this over both panels."""
        for i in emit.loop(0, 2):
            block = self.tasks.block(part.rows, part.panel + i)
            yield self._sums(part.sums + i), Strip(block, top, bottom, 0)

    def _sums(self, number: Size) -> Any:
        """The sums of panel `number` of those on the stack, in rows of 32."""
        return memory.at(self.sums, number * (BLOCK * STEP), "int8")

    def _add_tile(self, part: Part, top: Size, height: int, number: Size, count: Size) -> None:
        """Adds the part's steps to the sums of tile `number` of `count`, of rows from `top` on."""
        left = memory.at(self.left, top * ROW, "int8")
        depth, apart = emit.as_index(part.stop - part.start), self.steps * STEP
        vectors = range(0, PANEL, self.lanes)
        pace = emit.index(STEP) // count + 1  # all tiles together ask for all of both panels
        ahead = part.following + number * pace * depth
        few = emit.compare("less", emit.as_index(count), MANY)

        def right_at(step: Any) -> list[Any]:
            starts = (part.base + panel * apart + step * STEP for panel in range(2))
            places = [memory.at(self.b, start, "int8") for start in starts]
            return [memory.load(at, i, FLOAT, self.lanes) for at in places for i in vectors]

        def left_at(r: int, step: Any) -> Any:
            value = memory.load(left, r * (ROW // SIZE) + step, FLOAT)
            return emit.splat(value, self.lanes)

        def ask(step: Any, lines: range) -> None:
            for line in lines:
                for panel in range(2):
                    place = ahead + pace * step + panel * apart + line * LINE
                    memory.prefetch(self.b, place, "int8", level=2)

        def add(step: Any, *before: Any) -> list[Any]:
            ask(step, range(1))
            with emit.when(few):
                ask(step, range(1, 3))
            right = (right_at(step + i) for i in range(TOGETHER))
            return add_rows(before, step, left_at, right, 1)

        def add_one(step: Any, *before: Any) -> list[Any]:
            return add_rows(before, step, left_at, [right_at(step)], 1)

        sums = [self._sums(part.sums + panel) for panel in range(2)]
        rows = range(height)
        places = [(at, (top + r) * PANEL + i) for r in rows for at in sums for i in vectors]
        if self.at_once:
            total = [emit.constant(emit.register_type(FLOAT), 0, self.lanes)] * len(places)
        else:
            # The sums before the first chunk are zero, whatever lies in memory.
            begun = emit.compare("greater", emit.as_index(part.start), 0)
            mask = host.first_lanes(emit.select(begun, emit.index(self.lanes), 0), self.lanes)
            total = [memory.load(at, place, FLOAT, self.lanes, mask) for at, place in places]
        main = depth // TOGETHER * TOGETHER
        total = emit.carry(0, main, TOGETHER, total, add)
        total = emit.carry(main, depth, 1, total, add_one)
        for (at, place), value in zip(places, total, strict=True):
            memory.store(value, at, place, FLOAT)
