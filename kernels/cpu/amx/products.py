"""Products by panels of 32 columns in tiles of 16 rows by 64 bytes (Intel AMX).

A task is up to 256 rows of a by a panel. Where rows are short, or the second cache holds all of b,
a pair of tiles of rows goes by many panels (see `held`). Elsewhere all pairs go by a chunk of
a panel, which stays in the first cache. The sums of a pair wait on the stack for its next chunk,
while the panel's next one is asked for from the third cache or memory.

Rows that the second cache holds are loaded where they lie, but for those that lie a power of two
apart, of which a tile's would share a few sets of the first cache. They are put on the stack, tile
by tile, and so is a part of longer rows, which is multiplied with a run of panels before the next.

Up to 64 rows are bound by reading b (see `FEW`). The sums of up to 32 stay in tiles along all of
the panel, which is read once from end to end.

Rows beyond the last are computed and dropped, and what lies beyond k is zero on both sides.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, host, sizes
from heddle.kernels.cpu.amx.held import Held, fits
from heddle.kernels.cpu.amx.meanwhile import AHEAD, APART, ROW, TOGETHER, Ahead, Due, Meanwhile
from heddle.kernels.cpu.amx.pairs import Pairs, Part
from heddle.kernels.cpu.amx.sides import PANEL_ROW, STEP, Left, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR
from heddle.kernels.cpu.products.blocks import Block, Rows
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.sizes import Size
from heddle.kernels.stream import Stream

BLOCK = 256
"""Rows of a task: a byte of b that comes from the third cache is used as often."""

CHUNK = 16
"""Steps that stay of a panel: two thirds of the first cache, which holds the sums too."""

FEW = 64
"""Rows of a block that is bound by reading b: where all of a row is there, the steps that stay are
`SHORT`, and of b one pair of tiles asks for one line in `APART`, two for one in half as many. The
second cache fetches those between by itself, which keeps the places free in which the first one
waits for misses."""

SHORT = CHUNK // 2

WHOLE = 4 * CHUNK
"""Steps of `BLOCK` rows that the second cache holds beside a panel; of fewer rows more."""

DEPTH = 2 * CHUNK
"""Steps of longer rows that it holds while the sums of a run pass through."""

SINGLE = 8 * DEPTH
"""Steps of a single pair of tiles that are on the stack: as much as of the most rows."""

RUN = 32
"""Panels of a run, which a thread takes together: they share the rows that are put on the stack.
That takes longer than to have the sums of more panels pass through the second cache."""


def emit_runs(frame: host.Frame, dtype: str, kind: type[Tasks] = Tasks) -> None:
    """Emits the loop over tasks, whose rows are cut by `kind`; sums are of `dtype`."""
    spec = frame.spec
    k = frame.size(spec.operands[0].shape[-1])
    sides = Sides(frame.inputs[0], frame.inputs[1], spec.operands[0].dtype, k)
    tasks = kind(frame, host.lanes_for(frame.machine, [dtype]), dtype, BLOCK)
    stream = Stream(frame, tasks.lanes, costly=bool(spec.attr("leaves")))
    tasks.finish.stream = stream.aligned([tasks.n])
    tasks.streams = True
    run = (Held if fits(sides, tasks) else Run)(sides, tasks)
    for rows, first, last in tasks.runs():
        run.compute(rows, first, last)
    tasks.finish.stream.fence()


class Run:
    """The sums of a block of rows by several panels; made in the function's entry block."""

    def __init__(self, sides: Sides, tasks: Tasks) -> None:
        self.sides, self.tasks = sides, tasks
        self.height = -(-max(tasks.most, 1) // PAIR) * PAIR
        steps, panels = sides.steps, tasks.panels
        self._left = Left(sides, self.height, DEPTH, WHOLE * BLOCK // self.height, SINGLE)
        self._pairs = Pairs(sides, self._left)
        self.panels = 1 if self._left.depth == steps else RUN
        if isinstance(panels, int):
            self.panels = min(self.panels, panels)
        self._sums = host.byte_buffer(self.panels * self.height * PANEL_ROW, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        steps = self.sides.steps
        if self._left.depth == self.sides.steps:
            self._left.begin(rows, 0, steps)
            for panel in emit.loop(first, last):
                self._add(self.tasks.block(rows, panel), 0, 0, steps, steps)
            return
        for panel in emit.loop(first, last, self.panels):
            count = sizes.least(emit.index(self.panels), last - panel)
            depth = self._left.depth_of(rows)
            for start in emit.loop(0, sizes.greatest(steps, 1), depth):
                stop = sizes.least(start + depth, steps)
                self._left.begin(rows, start, stop)
                for number in emit.loop(0, count):
                    self._add(self.tasks.block(rows, panel + number), number, start, stop, steps)

    def _add(self, block: Block, number: Size, start: Size, stop: Size, steps: Size) -> None:
        """Adds steps to a block's sums, number `number` of the run, and writes complete ones.

        They are those from `start` to `stop - 1`, of `steps` in all, of which there may be none.
        """
        single = self._at_most(block, PAIR)
        # Parts of rows that are not all there are multiplied as many rows are.
        few = self._at_most(block, FEW) if self._left.depth == self.sides.steps else single
        apart = _either(single, APART, _either(few, APART // 2, 1))
        alone = single is True and self._left.depth == steps
        whole = isinstance(steps, int) and (steps <= CHUNK or alone)
        short, chunk = (_even(stop, most) for most in (SHORT, CHUNK))
        row = math.gcd(ROW, TOGETHER * short, TOGETHER * chunk)
        chunk = _either(single, sizes.greatest(stop - start, 1), _either(few, short, chunk))
        always = emit.constant(emit.integer(1), 1)
        panel = block.panel * self.sides.words * PANEL_ROW
        known = all(isinstance(size, int) for size in (start, stop, chunk))
        for at in [0] if whole else emit.loop(start, sizes.greatest(stop, start + 1), chunk):
            end = stop if whole else sizes.least(at + chunk, stop)
            begins = whole or emit.compare("equal", at, 0)
            complete = whole or emit.compare("equal", emit.as_index(end), steps)
            behind = panel + self.sides.words * PANEL_ROW + start * STEP
            if not whole:
                more = emit.compare("less", emit.as_index(end), stop)
                behind = emit.select(more, panel + end * STEP, behind)
            behind = _either(single, panel + at * STEP + AHEAD, behind)
            self._pairs.fill_up(panel, end)
            sums = bytes_at(self._sums, number * (self.height * PANEL_ROW))
            last = (stop - 1) % chunk + 1 if known and stop else end - at
            ahead = Ahead(behind, apart, row)
            for top in emit.loop(0, block.height, PAIR):
                part = Part(block, top, at, end, begins, panel)
                due = Due(block, sums, last, complete, wait=self._left.depth != steps)
                beside = Meanwhile(self.sides, self.tasks, part, due, ahead)
                self._pairs.add(part, bytes_at(sums, top * PANEL_ROW), beside)
            with emit.when(always if whole else complete):
                # Without a step nothing was written beside one.
                some = emit.compare("greater", emit.as_index(end), at)
                self.tasks.write(block, sums, emit.select(some, _last_pair(block.height), 0))

    def _at_most(self, block: Block, rows: int) -> Any:
        """Whether a block has at most so many rows: a bool where that is known, else an i1."""
        tasks = self.tasks
        if tasks.most <= rows:
            return True
        if tasks.even and isinstance(tasks.m, int):
            return False
        return emit.compare("less_equal", emit.as_index(block.height), rows)


def _even(steps: Size, most: int) -> int:
    """Steps of a chunk, at most so many: chunks of about one length ask for all of the next one."""
    return -(-steps // -(-steps // most)) if isinstance(steps, int) and steps > 0 else most


def _either(condition: Any, yes: Size, no: Size) -> Size:
    """`yes` or `no`, by a bool or an i1."""
    if isinstance(condition, bool):
        return yes if condition else no
    return emit.select(condition, emit.as_index(yes), no)


def _last_pair(height: Size) -> Size:
    """The first row of the last pair of tiles, of which there may be none."""
    return sizes.greatest((height + (PAIR - 1)) // PAIR * PAIR - PAIR, 0)
