"""Products whose rows are staged: in chunks on the stack, as their steps along k take them.

A run of panels shares a block of rows. A chunk of the rows is put on the stack, where rows that lie
a power of two apart no longer share a few sets of the caches, and is multiplied by all panels of
the run, whose sums wait on the stack for the next chunk. So both sides come from the second cache,
where the next panel's part arrives meanwhile. Rows that neither lie so nor have to be taken
apart are read in place.

AVX2 multiplies so: 6 rows by 2 vectors, half a panel, 20 instructions for 12 multiply-adds, in 15
of the 16 registers. Where a word has two parts, so has a vector: then 5 rows. Tiles take few of a
core's slots for each multiply-add, which counts where a neighbour has some of them, as by two
hardware threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products import beside as products_beside
from heddle.kernels.cpu.products import few as products_few
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.cpu.products.blocks import PANEL, Rows, Shares, Strip, heights
from heddle.kernels.cpu.products.panels import BLOCK, Tasks
from heddle.kernels.cpu.products.sides import TOGETHER, WORD, Sides
from heddle.kernels.cpu.products.tile import Step, rows_of
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

LATE = 4
"""Panels beside which the next block's rows arrive, the last ones: else they would not stay."""

SPREAD = 1024
"""Rows that are a multiple of so many numbers apart share too few sets of the caches."""

RUN = 16
"""Panels of a run at most."""

VECTORS = 2
"""Those of a tile, half a panel."""


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether rows are staged: on AVX2, and not a few of them."""
    if machine.vector_bytes != 32 or spec.operands[0].dtype == "float64":
        return False
    m = panels.extents(spec)[1]
    return not isinstance(m, int) or m > products_few.most(spec, machine)


def in_place(spec: Spec, step: Step) -> bool:
    """Whether rows are read where they lie, if steps take their numbers as they are."""
    k, together = spec.operands[0].shape[-1], step.parts * panels.group_of(spec)
    apart = isinstance(k, int) and (k * WORD <= CHUNK or k % SPREAD != 0)
    return together == 1 and apart


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """A thread takes so many tasks that they are worth staging their rows."""
    if not fits(spec, machine):
        return None
    rows = fold("floordiv", panels.extents(spec)[1], rows_of(machine))
    return products_beside.launch(spec, together=fold("max", 1, fold("min", CLAIM, rows)))


@dataclass(frozen=True)
class Part:
    """The steps from `start` to `stop - 1`, of `steps`, of rows by panel number `panel` of theirs.

    They begin at byte `base` of b, and what comes next at byte `following`. `sums` is the number of
    the panel among those whose sums are on the stack, `left` how many of the rows' panels come
    behind it.
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
    """The sums of a block of rows by panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks, step: Step) -> None:
        self.tasks, self.step, self.lanes = tasks, step, tasks.lanes
        frame = tasks.frame
        spec, machine = frame.spec, frame.machine
        self.fewest = products_few.most(spec, machine) + 1
        many = [height for height in tasks.heights if height >= self.fewest]
        self.heights = heights(6 if step.parts == 1 else 5, many)
        self.chunk = CHUNK // WORD // step.parts
        self.in_place = in_place(spec, step)
        self.sides = Sides(tasks, step, self.chunk, BLOCK, LINE, self.in_place)
        self.steps = self.sides.steps
        self.at_once = isinstance(self.steps, int) and self.steps <= self.chunk
        held = 1 if self.at_once else RUN
        self.sums = host.byte_buffer(held * BLOCK * PANEL * WORD, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> Size:
        """Emits the results of the rows by their panels; returns the first panel that is left."""
        count = sizes.greatest(emit.as_index(last) - first, 0)
        many = emit.compare("greater_equal", emit.as_index(rows.height), self.fewest)
        end = first + emit.select(many, count, 0)
        steps = self.steps
        for begin in emit.loop(first, end, RUN):
            stop = sizes.least(begin + RUN, end)
            left = end - stop
            self._add_chunk(rows, begin, stop, 0, sizes.least(steps, self.chunk), steps, left)
            if not self.at_once:
                for start in emit.loop(self.chunk, steps, self.chunk):
                    behind = sizes.least(start + self.chunk, steps)
                    self._add_chunk(rows, begin, stop, start, behind, steps, left)
        return end

    def _add_chunk(
        self, rows: Rows, first: Size, last: Size, start: Size, stop: Size, steps: Size, left: Size
    ) -> None:
        """Emits the steps from `start` to `stop - 1` for the panels from `first` to `last - 1`.

        Behind these there are `left`.
        """
        self.sides.stage(rows, start, stop)
        complete = emit.compare("greater_equal", emit.as_index(stop), steps)
        # Behind a run's last panel comes its next chunk, or the next run.
        place = self.sides.place
        behind = emit.select(complete, place(rows, last, 0), place(rows, first, stop))
        for panel in emit.loop(first, last):
            goes_on = emit.compare("less", panel + 1, last)
            following = emit.select(goes_on, place(rows, panel + 1, start), behind)
            base, sums = place(rows, panel, start), 0 if self.at_once else panel - first
            more = last - 1 - panel + left
            part = Part(rows, panel, start, stop, steps, base, following, sums, more)
            self._add_tiles(part, complete)

    def _add_tiles(self, part: Part, complete: Any) -> None:
        """Emits the sums of a part tile by tile, and writes those that are `complete`."""
        shares = Shares(part.rows.height, self.heights[0])
        width = VECTORS * self.lanes
        block, sums = self.tasks.block(part.rows, part.panel), self._sums(part.sums)
        for number, top, bottom in shares.spans(some=True):
            strips = [Strip(block, top, bottom, first) for first in range(0, PANEL, width)]
            for strip in strips:
                self.tasks.ask_strip(strip, complete, read=True)
            for height in self.heights:
                with emit.when(emit.compare("equal", bottom - top, height)):
                    ask = self._asks(part, number, shares.count)
                    beside = self._ask_rows(part, number, shares.count)
                    for strip in strips:
                        with self.tasks.reached(block, strip.part):
                            own = ask if strip.part == 0 else beside
                            self._add_tile(part, sums, strip, height, own)
            for strip in strips:
                self.tasks.write_strip(strip, sums, complete)

    def _sums(self, number: Size) -> Any:
        """The sums of panel `number` of those on the stack, in rows of 32."""
        return memory.at(self.sums, number * (BLOCK * PANEL * WORD), "int8")

    def _asks(self, part: Part, number: Size, count: Size) -> Ask:
        """What asks for the following panel, all tiles together for all of it, at each step."""
        depth = emit.as_index(part.stop - part.start)
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
                place = ahead + pace * step + line * LINE
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

    def _add_tile(self, part: Part, sums: Any, strip: Strip, height: int, ask: Ask | None) -> None:
        """Adds the part's steps to the sums of a strip of so many rows."""
        columns = range(strip.part, strip.part + VECTORS * self.lanes, self.lanes)
        places = [(strip.top + r) * PANEL + i for r in range(height) for i in columns]
        dtype = self.step.sums
        if isinstance(part.start, int):  # the first chunk, behind no other
            total = [emit.constant(emit.register_type(dtype), 0, self.lanes)] * len(places)
        else:
            total = [memory.load(sums, place, dtype, self.lanes) for place in places]
        vectors = [(0, i) for i in columns]
        total = self.sides.add(total, strip.top, part.base, vectors, part.stop - part.start, ask)
        for place, value in zip(places, total, strict=True):
            memory.store(value, sums, place, dtype)
