"""Products whose rows are staged: in chunks on the stack, as their steps along k take them.

A run of panels shares a block of rows. A chunk of the rows is put on the stack, where rows that lie
a power of two apart no longer share a few sets of the caches, and is multiplied by all panels of
the run, whose sums wait on the stack for the next chunk. So both sides come from the second cache,
where the next panel's part arrives meanwhile. Rows that neither lie so nor have to be taken
apart are read in place.

Tiles take few of a core's slots for each multiply-add, which counts where a neighbour has some of
them, as by two hardware threads, and where the clock goes down by what a core executes:

- AVX2: 6 rows by 2 vectors, half a panel, 20 instructions for 12 multiply-adds, in 15 of the 16
  registers. Where a word has two parts, so has a vector: then 5 rows.
- AVX-512 beside AMX: 6 rows by 4 vectors, two panels, 34 instructions for 24 multiply-adds, where
  12 rows by 2 vectors take 38, and half as many lines of a at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _beside, _few, _panels
from heddle.kernels.cpu._asks import Ask
from heddle.kernels.cpu._blocks import PANEL, Rows, Shares, Strip, heights
from heddle.kernels.cpu._panels import BLOCK, Tasks
from heddle.kernels.cpu._sides import TOGETHER, WORD, Sides
from heddle.kernels.cpu._tile import Step, rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold

CHUNK = 2048
"""Bytes of a row on the stack: 128 KiB of a block, and at most as much of a tile's panels. With a
line of padding rows lie an odd number of lines apart."""

CLAIM = 8
"""Panels that a thread takes at a time, at most: rows are staged once for them, and threads end
together all the same."""

MANY = 8
"""Tiles of a block from which on a line of each panel is enough of that."""

SHORT = 512
"""Bytes of a row on AVX-512 where a block has fewer tiles than that: 128 steps of two panels, 32
KiB, are in the first cache for all tiles but one, so that the second one has time for memory."""

LATE = 4
"""Panels beside which the next block's rows arrive, the last ones: else they would not stay."""

SPREAD = {32: 1024, 64: 8192}
"""Rows that are a multiple of so many numbers apart share too few sets of the caches, by the bytes
of a vector: AMX comes with 2 MiB of second cache in 16 ways, of which 64 such rows would fill 4."""


@dataclass(frozen=True)
class Shape:
    """What is multiplied at once: at most `rows` by `vectors`; a run is of so many panels at most.

    A unit is the panels that a tile reaches into, a slice its columns in each of them.
    """

    rows: int
    vectors: int
    run: int

    def unit(self, lanes: int) -> int:
        """Panels of a tile."""
        return max(1, self.vectors * lanes // PANEL)

    def slices(self, lanes: int) -> list[range]:
        """The columns of each tile in its panels, by vectors."""
        width = min(PANEL, self.vectors * lanes)
        return [range(first, first + width, lanes) for first in range(0, PANEL, width)]


WIDE = Shape(6, 4, 32)
"""With AVX-512."""


def shape_of(machine: Machine, step: Step) -> Shape:
    """The tile of a machine."""
    if machine.vector_bytes == 32:
        return Shape(6 if step.parts == 1 else 5, 2, 16)
    return WIDE


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether rows are staged: on AVX2, and beside AMX where all is float32. Not a few rows."""
    a, b = (operand.dtype for operand in spec.operands[:2])
    beside = machine.tiles and a == b == "float32"
    if not (beside or (machine.vector_bytes == 32 and a != "float64")):
        return False
    m = _panels.extents(spec)[1]
    return not isinstance(m, int) or m > _few.most(spec, machine)


def in_place(spec: Spec, machine: Machine, step: Step) -> bool:
    """Whether rows are read where they lie, if steps take their numbers as they are."""
    k, together = spec.operands[0].shape[-1], step.parts * _panels.group_of(spec)
    apart = isinstance(k, int) and (k * WORD <= CHUNK or k % SPREAD[machine.vector_bytes] != 0)
    return together == 1 and apart


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """A thread takes so many tasks that they are worth staging their rows, or whole units."""
    if not fits(spec, machine):
        return None
    if machine.vector_bytes == 64:
        return _beside.launch(spec, together=WIDE.unit(machine.vector_bytes // WORD))
    rows = fold("floordiv", _panels.extents(spec)[1], rows_of(machine))
    return _beside.launch(spec, together=fold("max", 1, fold("min", CLAIM, rows)))


@dataclass(frozen=True)
class Part:
    """The steps from `start` to `stop - 1`, of `steps`, of rows by the panels of a unit.

    The first one is `panel`. They begin at byte `base` of b, and what comes next at byte
    `following`. `sums` is the number of the panels among those whose sums are on the stack,
    `left` how many of the rows' panels come behind the first one.
    """

    rows: Rows
    panel: Size
    start: Size
    stop: Size
    steps: Size
    base: Size
    following: Size
    sums: Size
    left: Size


class Staged:
    """The sums of a block of rows by units of panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks, step: Step) -> None:
        self.tasks, self.step, self.lanes = tasks, step, tasks.lanes
        frame = tasks.frame
        spec, machine = frame.spec, frame.machine
        shape = shape_of(machine, step)
        self.fewest = _few.most(spec, machine) + 1
        many = [height for height in tasks.heights if height >= self.fewest]
        self.unit, self.slices = shape.unit(self.lanes), shape.slices(self.lanes)
        self.heights, self.run = heights(shape.rows, many), shape.run
        self.chunk = CHUNK // WORD // step.parts
        self.in_place = in_place(spec, machine, step)
        self.sides = Sides(tasks, step, self.chunk, BLOCK, LINE, self.in_place)
        self.steps = self.sides.steps
        self.at_once = isinstance(self.steps, int) and self.steps <= self.chunk
        self.short = SHORT // WORD
        # Rows that are read in place cost nothing to come back to.
        fitting = self.in_place and machine.vector_bytes == 64
        self.most_few = shape.rows * (MANY - 1) if fitting else 0
        self.few = {height <= self.most_few for height in many}
        held = self.unit if self.at_once else self.run
        self.sums = host.byte_buffer(held * BLOCK * PANEL * WORD, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> Size:
        """Emits the results of the rows by whole units of panels; returns the first panel left."""
        # A unit of one panel may reach beyond the result's last column.
        whole = sizes.floordiv(self.tasks.each, PANEL)
        full = last if self.unit == 1 else sizes.least(last, whole)
        count = sizes.greatest(emit.as_index(full) - first, 0) // self.unit * self.unit
        many = emit.compare("greater_equal", emit.as_index(rows.height), self.fewest)
        end = first + emit.select(many, count, 0)
        steps = rows.steps(self.steps)
        run, chunk = self._cut(rows)
        for begin in emit.loop(first, end, run):
            stop = sizes.least(begin + run, end)
            left = end - stop
            self._add_chunk(rows, begin, stop, 0, sizes.least(steps, chunk), steps, left)
            if not self.at_once or True in self.few:
                for start in emit.loop(chunk, steps, chunk):
                    behind = sizes.least(start + chunk, steps)
                    self._add_chunk(rows, begin, stop, start, behind, steps, left)
        return end

    def _cut(self, rows: Rows) -> tuple[Size, Size]:
        """How many panels, at most, share a chunk of the rows, and the steps of a chunk."""
        if True not in self.few:
            return self.run, self.chunk
        if False not in self.few:
            return self.unit, self.short
        few = emit.compare("less_equal", emit.as_index(rows.height), self.most_few)
        pairs = (emit.index(self.unit), self.run), (emit.index(self.short), self.chunk)
        run, chunk = (emit.select(few, some, all_of) for some, all_of in pairs)
        return run, chunk

    def _add_chunk(
        self, rows: Rows, first: Size, last: Size, start: Size, stop: Size, steps: Size, left: Size
    ) -> None:
        """Emits the steps from `start` to `stop - 1` for the panels from `first` to `last - 1`.

        Behind these there are `left`.
        """
        self.sides.stage(rows, start, stop)
        complete = emit.compare("greater_equal", emit.as_index(stop), steps)
        # Behind a run's last unit comes its next chunk, or the next run.
        place = self.sides.place
        behind = emit.select(complete, place(rows, last, 0), place(rows, first, stop))
        for panel in emit.loop(first, last, self.unit):
            goes_on = emit.compare("less", panel + self.unit, last)
            following = emit.select(goes_on, place(rows, panel + self.unit, start), behind)
            base, sums = place(rows, panel, start), 0 if self.at_once else panel - first
            more = last - 1 - panel + left
            part = Part(rows, panel, start, stop, steps, base, following, sums, more)
            self._add_tiles(part, complete)

    def _add_tiles(self, part: Part, complete: Any) -> None:
        """Emits the sums of a part tile by tile, and writes those that are `complete`."""
        shares = Shares(part.rows.height, self.heights[0])
        for number, top, bottom in shares.spans(some=True):
            for _, strip in self._strips(part, top, bottom):
                self.tasks.ask_strip(strip, complete, read=True)
            for height in self.heights:
                with emit.when(emit.compare("equal", bottom - top, height)):
                    ask = self._asks(part, number, shares.count)
                    beside = self._ask_rows(part, number, shares.count)
                    block = self.tasks.block(part.rows, part.panel)
                    for columns in self.slices:
                        with self.tasks.reached(block, columns.start):
                            own = ask if 0 in columns else beside
                            self._add_tile(part, top, height, columns, own)
            for sums, strip in self._strips(part, top, bottom):
                self.tasks.write_strip(strip, sums, complete)

    def _strips(self, part: Part, top: Size, bottom: Size) -> Iterator[tuple[Any, Strip]]:
        """Emits the Python body of a `for sums, strip in` this over all columns of a unit."""
        for i in emit.loop(0, self.unit):
            block = self.tasks.block(part.rows, part.panel + i)
            for first in range(0, PANEL, 2 * self.lanes):
                yield self._sums(part.sums + i), Strip(block, top, bottom, first)

    def _sums(self, number: Size) -> Any:
        """The sums of panel `number` of those on the stack, in rows of 32."""
        return memory.at(self.sums, number * (BLOCK * PANEL * WORD), "int8")

    def _asks(self, part: Part, number: Size, count: Size) -> Ask:
        """What asks for the following panels, all tiles together for all of them, at each step."""
        depth, apart = emit.as_index(part.stop - part.start), self.sides.apart
        pace = emit.index(self.sides.bytes) // count + 1
        ahead = part.following + number * pace * depth
        few = emit.compare("less", emit.as_index(count), MANY)
        least = -(-self.fewest // self.heights[0])
        lines = -(-TOGETHER * PANEL * WORD // least // LINE)

        def ask(step: Any) -> None:
            ask_lines(step, range(1))
            with emit.when(few):
                ask_lines(step, range(1, lines))

        def ask_lines(step: Any, numbers: range) -> None:
            for line in numbers:
                for panel in range(self.unit):
                    place = ahead + pace * step + panel * apart + line * LINE
                    memory.prefetch(self.sides.b, place, "int8", level=2)

        return ask

    def _ask_rows(self, part: Part, number: Size, count: Size) -> Ask | None:
        """What asks for the rows behind the block's, at each step, beside its last panels.

        Rows of several chunks are not asked for: these would push out what is multiplied.
        """
        if not (self.in_place and self.at_once):
            return None
        k, height = self.sides.k, emit.as_index(part.rows.height)
        pace = height * WORD // (LATE * emit.as_index(count)) + 1
        before = sizes.greatest(LATE - 1 - part.left, 0) * count + number
        first = ((part.rows.row + height) * WORD + before * pace) * k

        def ask(step: Any) -> None:
            place = first + pace * step
            memory.prefetch(self.tasks.frame.inputs[0], place, "int8", level=2)

        return ask

    def _add_tile(
        self, part: Part, top: Size, height: int, columns: range, ask: Ask | None
    ) -> None:
        """Adds the part's steps to the sums of rows from `top` on by `columns` of each panel."""
        sums = [self._sums(part.sums + panel) for panel in range(self.unit)]
        rows, dtype = range(height), self.step.sums
        places = [(at, (top + r) * PANEL + i) for r in rows for at in sums for i in columns]
        if isinstance(part.start, int):  # the first chunk, behind no other
            total = [emit.constant(emit.register_type(dtype), 0, self.lanes)] * len(places)
        else:
            total = [memory.load(at, place, dtype, self.lanes) for at, place in places]
        vectors = [(panel, i) for panel in range(self.unit) for i in columns]
        total = self.sides.add(total, top, part.base, vectors, part.stop - part.start, ask)
        for (at, place), value in zip(places, total, strict=True):
            memory.store(value, at, place, dtype)
