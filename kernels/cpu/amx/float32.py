"""Products of float32 in AMX tiles, which multiply bfloat16 sixteen times as fast as registers.

Each number is the sum of up to three of bfloat16 (see `parts`), and each product the sum of
theirs, which are exact; those below 2**-24 of the greatest are left out (Henry, Tang, Heinecke,
arXiv:1904.06376). Six are left of nine, and sums have smaller errors than those that are
added one by one, as a tile adds many products at once. Where a sum is infinite or not a number, the
block is computed on vectors instead: an infinite number has no parts.

A few steps of a panel are split on the stack while those before them are multiplied: vectors are
free beside tiles, and units of that work stand between one product and the next, as a core looks
500 instructions ahead. The results of a panel are written beside the products of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.parts import (
    ORDER,
    PARTS,
    UNITS,
    Left,
    Right,
    Source,
    is_any,
    no_number,
)
from heddle.kernels.cpu.amx.runs import Panel, Run, Step, Stretch
from heddle.kernels.cpu.amx.sides import ALONG, PANEL_ROW, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import PANEL, Block, Rows
from heddle.kernels.cpu.products.panels import Multiply, Tasks
from heddle.kernels.cpu.products.tile import ROWS
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

BLOCK = 128
"""Rows of a task: a step of b is split once for them, in a sixth of the time of their products."""

DEPTH = 16
"""Steps of rows that are on the stack at once."""

SINGLE = 64
"""The same of a single pair of tiles of rows, whose sums stay in tiles along all of them."""

STRETCH = 2
"""Steps of a panel that stay in the first cache for all pairs, while as many are split."""

RUN = 16
"""Panels that share the rows on the stack. A thread takes so many at a time, too, as splitting rows
costs as much as half a panel's products."""

GROUPS, GROUP = 4, UNITS // 4
"""Groups of units of a step, and units of a group."""

SHORT = ALONG // 2
"""Elements of rows that fill half a step at most: vectors are faster."""

SHARES = ((1, 1, 4), (2, 3, 2), (4, 4, 1))
"""From so many pairs of tiles of rows to so many: groups that each of them splits of a step."""


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether products are computed here: of float32, unless rows are known to be few or short."""
    _, m, k = panels.extents(spec)
    few = isinstance(m, int) and m <= ROWS
    short = isinstance(k, int) and k <= SHORT
    a, b = (operand.dtype for operand in spec.operands[:2])
    return machine.tiles and a == "float32" and b in PARTS and not few and not short


def emit_runs(tasks: Tasks, on_vectors: Multiply) -> None:
    """Emits the loop over tasks; too few rows, and sums that are no numbers, are `on_vectors`."""
    products = Products(tasks, on_vectors)
    for rows, first, last in tasks.runs():
        # A row's bits depend neither on its block nor on how many rows there are, if they are many.
        count = tasks.m if tasks.even else rows.height
        many = emit.compare("greater", emit.as_index(count), ROWS)
        products.compute(rows, first, last, emit.select(many, emit.as_index(products.steps), 0))


class Products:
    """The sums of a block of rows by several panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks, on_vectors: Multiply) -> None:
        frame = tasks.frame
        a, b = frame.spec.operands[:2]
        k = frame.size(a.shape[-1])
        self._tasks, self._on_vectors = tasks, on_vectors
        self.steps = sizes.ceildiv(k, ALONG)
        self._height = -(-tasks.most // PAIR) * PAIR
        known = self.steps if isinstance(self.steps, int) else SINGLE
        depth, single = (min(steps, max(1, known)) for steps in (DEPTH, SINGLE))
        self._left = Left(frame.inputs[0], k, self._height, depth, single)
        self._right = Right(frame.inputs[1], b.dtype, k, 2 * STRETCH)
        # Two panels' sums wait where the rows are all on the stack.
        waiting = 2 if self.steps == depth else RUN
        self._room = max(1, min(waiting, tasks.panels if isinstance(tasks.panels, int) else RUN))
        self._sums = host.byte_buffer(self._room * self._height * PANEL_ROW, shared="sums")
        self._zero = host.byte_buffer(TILE_ROW)
        zero = emit.constant(emit.integer(32), 0, TILE_ROWS)
        memory.store(zero, self._zero, 0, "uint32", alignment=TILE_ROW)
        self._order = [pair for pair in ORDER if pair[1] < self._right.parts]

    def _sums_of(self, number: Size) -> Any:
        """The sums of panel `number` of a run, in rows of 32."""
        return bytes_at(self._sums, number % self._room * (self._height * PANEL_ROW))

    def compute(self, rows: Rows, first: Size, last: Size, steps: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`.

        Without `steps` they are computed on vectors.
        """
        single = emit.compare("less_equal", emit.as_index(rows.height), PAIR)
        depth = emit.select(single, emit.index(SINGLE), DEPTH)
        at_once = emit.compare("less_equal", steps, depth)
        width = emit.select(at_once, sizes.greatest(last - first, 1), RUN)
        for begin in emit.loop(first, last, width):
            count = sizes.least(width, last - begin)
            self._compute_run(Run(rows, begin, count, steps, depth, single))

    def _compute_run(self, run: Run) -> None:
        """Emits the results of a run, chunk by chunk of the rows."""
        step = Step(emit.index(0), emit.index(0), emit.index(0), sizes.least(run.depth, run.steps))
        groups = emit.select(run.skipped, emit.index(0), GROUPS)
        for number in range(STRETCH):
            self._split(self._source(run, step), number, 0, groups)
            step = step.behind(run)

        def over_chunks(start: Size, begin: Size) -> list[Any]:
            stop = sizes.least(start + run.depth, run.steps)
            complete = emit.compare("equal", stop, run.steps) & (run.skipped ^ True)
            wanted = emit.select(complete, emit.as_index(run.rows.height), 0)
            each = sizes.ceildiv(run.rows.height, sizes.greatest((stop - start) * run.pairs, 1))
            self._left.begin(run.rows, start, stop)

            def over_panels(number: Size, begin: Size, due: Size) -> list[Any]:
                panel = Panel(run, number, start, stop, each, wanted, due)
                (begin,) = self._multiply(panel, begin)
                odd = run.skipped | self._is_no_number(self._sums_of(number), wanted)
                with emit.when(odd):
                    self._on_vectors(self._tasks, self._block(panel), self._sums_of(number))
                return [begin, emit.select(odd, emit.index(0), wanted)]

            begin, due = emit.carry(0, run.count, 1, [begin, emit.index(0)], over_panels)
            block = self._tasks.block(run.rows, run.first + (run.count - 1))
            self._tasks.write(block, self._sums_of(run.count - 1), 0, due)
            return [begin]

        emit.carry(0, sizes.greatest(run.steps, 1), run.depth, [emit.index(0)], over_chunks)

    def _multiply(self, panel: Panel, begin: Size) -> list[Any]:
        """Adds a panel's steps to its sums; its first one was split as number `begin`.

        Returns the number of the one behind its last.
        """
        run = panel.run
        length = emit.select(run.single, emit.index(SINGLE), STRETCH)

        def over_stretches(start: Size, begin: Size) -> list[Any]:
            stop = sizes.least(start + length, panel.stop)
            for top in emit.loop(0, run.rows.height, PAIR):
                self._add_pair(Stretch(panel, start, stop, begin), top)
            return [begin + (stop - start)]

        return emit.carry(panel.start, panel.stop, length, [begin], over_stretches)

    def _add_pair(self, stretch: Stretch, top: Size) -> None:
        """Adds a stretch's products to the sums of a pair of tiles of rows, or of a last one."""
        run = stretch.panel.run
        two = emit.compare("greater", run.rows.height - top, TILE_ROWS)
        for least, most, share in SHARES:
            if self._height >= least * PAIR:
                now = emit.compare("greater_equal", run.pairs, least)
                with emit.when(two & now & emit.compare("less_equal", run.pairs, most)):
                    self._add_tiles(stretch, top, 2, share)
        with emit.when((two ^ True) & run.single):
            self._add_tiles(stretch, top, 1, GROUPS)
        if self._height > PAIR:
            with emit.when((two ^ True) & (run.single ^ True)):
                self._add_tiles(stretch, top, 1, 0)

    def _add_tiles(self, stretch: Stretch, top: Size, tall: int, share: int) -> None:
        """Adds a stretch's products to the sums of `tall` tiles of rows by two of columns.

        Between them, `share` groups of each step that follows are split; where that is none, what
        is due is split behind them.
        """
        panel, right = stretch.panel, self._right
        due = share or sizes.ceildiv(emit.index(GROUPS), panel.run.pairs)
        first = sizes.least(top // PAIR * due, GROUPS - due)
        units = _spread(len(self._order), share)
        following = self._behind(stretch)

        def add_step(step: Size, *before: Any) -> list[Any]:
            number = stretch.begin + (step - stretch.start)
            source = self._ahead(stretch, step, following)
            totals, a, held = list(before), [], -1
            for (of_a, of_b), beside in zip(self._order, units, strict=True):
                if of_a != held:
                    places = [self._left.tile(top, step, of_a, i) for i in range(tall)]
                    a = [tiles.load(each, TILE_ROW, streamed=True) for each in places]
                    held = of_a
                places = [right.tile(number, of_b, half) for half in range(2)]
                b = [tiles.load(each, TILE_ROW) for each in places]
                for i, total in enumerate(totals):
                    totals[i] = tiles.multiply("bfloat16", total, a[i // 2], b[i % 2])
                for unit in beside:
                    right.fill(source, number + STRETCH, first * GROUP, unit)
                    right.ask(source, first * GROUP, unit, few=share == GROUPS)
            if not share:
                self._split(source, number + STRETCH, first, due)
            self._write_beside(panel, top, step)
            return totals

        sums = self._sums_of(panel.number)
        corners = [(i * TILE_ROWS, j * TILE_ROW) for i in range(tall) for j in range(2)]
        places = [bytes_at(sums, (top + row) * PANEL_ROW + column) for row, column in corners]
        begins = emit.compare("equal", stretch.start, 0)
        apart = emit.select(begins, emit.index(0), PANEL_ROW)
        totals = [tiles.load(emit.select(begins, self._zero, place), apart) for place in places]
        totals = emit.carry(stretch.start, stretch.stop, 1, totals, add_step)
        for place, total in zip(places, totals, strict=True):
            tiles.store(total, place, PANEL_ROW)

    def _source(self, run: Run, step: Step) -> Source:
        """Where a step of the run lies."""
        return self._right.source(run.panel(step.number), step.step)

    def _behind(self, stretch: Stretch) -> list[Source]:
        """Where the steps lie that come behind a stretch, as many as are split ahead."""
        panel, found = stretch.panel, []
        step = Step(panel.number, stretch.stop - 1, panel.start, emit.as_index(panel.stop))
        for _ in range(STRETCH):
            step = step.behind(panel.run)
            found.append(self._source(panel.run, step))
        return found

    def _ahead(self, stretch: Stretch, step: Size, following: Sequence[Source]) -> Source:
        """Where the step lies that is split beside one of a stretch; others are `following` it."""
        panel, ahead = stretch.panel, step + STRETCH
        found = self._right.source(panel.run.panel(panel.number), ahead)
        for number, other in enumerate(following):
            here = emit.compare("equal", ahead - stretch.stop, number)
            at = emit.select(here, other.at, found.at)
            found = Source(at, emit.select(here, emit.as_index(other.left), found.left))
        return found

    def _split(self, source: Source, number: Size, first: Size, count: Size) -> None:
        """Splits `count` groups of units of a step, with no products beside."""
        for group in emit.loop(0, count):
            for unit in range(GROUP):
                self._right.fill(source, number, (group + first) * GROUP, unit)

    def _block(self, panel: Panel, before: int = 0) -> Block:
        """The rows by a panel, or by one `before` it."""
        return self._tasks.block(panel.run.rows, panel.run.first + (panel.number - before))

    def _write_beside(self, panel: Panel, top: Size, step: Size) -> None:
        """Writes a share of the results of the panel before, and asks for those of this one."""
        begin = ((step - panel.start) * panel.run.pairs + top // PAIR) * panel.each
        end = begin + panel.each
        self._tasks.ask(self._block(panel), begin, sizes.least(end, panel.wanted), read=True)
        sums, due = self._sums_of(panel.number + (self._room - 1)), sizes.least(end, panel.due)
        self._tasks.write(self._block(panel, 1), sums, begin, due)

    def _is_no_number(self, sums: Any, height: Size) -> Any:
        """Whether one of the sums of so many rows is infinite or a NaN."""
        zero = emit.constant(emit.integer(32), 0, TILE_ROWS)

        def over_rows(r: Size, found: Any) -> list[Any]:
            for place in range(0, PANEL, TILE_ROWS):
                value = memory.load(sums, r * PANEL + place, "float32", TILE_ROWS)
                found = found | no_number(value)
            return [found]

        (found,) = emit.carry(0, height, 1, [zero], over_rows)
        return is_any(found)


def _spread(products: int, groups: int) -> list[list[int]]:
    """Units of so many groups that are split behind each product of a step."""
    slots: list[list[int]] = [[] for _ in range(products)]
    for unit in range(groups * GROUP):
        slots[unit * products // (groups * GROUP)].append(unit)
    return slots
