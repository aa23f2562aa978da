"""Products in AMX tiles by panels of b that the second cache holds (see `products`).

A run of panels goes by a pair of tiles of rows, which stays in the first cache. They are read from
end to end, which the second cache sees and fetches ahead. It holds all of them, of which only a
block's first pair asks for any; or, of short rows, a run and the next one, which all pairs ask for.
Each asks for the rows of the next pair. A panel's sums are written beside the next one's products:
the lines of a row of the result are filled right behind each other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx.meanwhile import AHEAD, APART, rows_of
from heddle.kernels.cpu.amx.pairs import Pairs, Part
from heddle.kernels.cpu.amx.sides import CLASHING, PANEL_ROW, STEP, Left, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR
from heddle.kernels.cpu.products.blocks import Block, Rows
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

HELD = 1280 << 10
"""Bytes of b that the second cache holds beside what goes by."""

WHOLE, CHUNK = 24, 16
"""Steps of a pair that goes by all panels at once; a longer one goes in chunks of so many."""

MOST = 64
"""Steps at most: rows that do not lie well are put on the stack."""

RUN = 384 << 10
"""Bytes of a run of panels, where there are more."""

ASKED = STEP // LINE // APART
"""Lines of b that a step asks for at a time: beside a single pair one in `APART`. Where more pairs
ask for the next run together, they leave out less."""

NEXT_APART = 2
"""Of the next pair of rows a line in so many is asked for."""


def fits(sides: Sides, tasks: Tasks) -> bool:
    """Whether the second cache holds b, or rows are so short that the first one holds a pair."""
    steps, panels = sides.steps, tasks.panels
    if type(tasks) is not Tasks or not isinstance(steps, int) or not isinstance(panels, int):
        return False
    lie_well = not sides.ends_within and (steps <= WHOLE or sides.row % CLASHING > 0)
    return lie_well and 0 < steps <= MOST and (steps <= WHOLE or _bytes(sides, tasks) <= HELD)


def _bytes(sides: Sides, tasks: Tasks) -> int:
    """Bytes of b."""
    size: int = sides.steps * tasks.panels * STEP
    return size


@dataclass(frozen=True)
class Pair:
    """The `rows` of a pair of tiles, by panels from `first` to `last - 1`.

    `top` is its first row in the block.
    """

    rows: Rows
    top: Size
    first: Size
    last: Size


class Held:
    """The sums of a block of rows by the panels; made in the function's entry block."""

    def __init__(self, sides: Sides, tasks: Tasks) -> None:
        self._sides, self._tasks, steps = sides, tasks, sides.steps
        self._whole = steps <= WHOLE
        self._chunk = steps if self._whole else -(-steps // -(-steps // CHUNK))
        self._written = -(-PAIR // ((steps - 1) % self._chunk + 1))
        self._all = _bytes(sides, tasks) <= HELD or tasks.most <= PAIR
        self._together = tasks.panels if self._all else max(1, RUN // (steps * STEP))
        self._left = Left(sides, PAIR, steps)
        self._pairs = Pairs(sides, self._left, rows_stay=True)
        rooms = 2 if self._whole else tasks.panels
        self._sums = host.byte_buffer(rooms * PAIR * PANEL_ROW, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        steps = self._sides.steps
        for begin in [first] if self._all else emit.loop(first, last, self._together):
            end = last if self._all else sizes.least(begin + self._together, last)
            for top in emit.loop(0, rows.height, PAIR):
                pair = _pair(rows, top, begin, end)
                self._left.begin(pair.rows, 0, steps)
                for start in [0] if self._whole else emit.loop(0, steps, self._chunk):
                    stop = steps if self._whole else sizes.least(start + self._chunk, steps)
                    for panel in emit.loop(begin, end):
                        self._add(rows, pair, start, stop, panel)
            pair = _pair(rows, (rows.height - 1) // PAIR * PAIR, begin, end)
            self._tasks.write(*self._result(pair, end - 1))

    def _add(self, rows: Rows, pair: Pair, start: Size, stop: Size, panel: Size) -> None:
        """Adds the steps from `start` to `stop - 1` to the sums of a pair by a panel."""
        steps, count = self._sides.steps, pair.last - pair.first
        begins = self._whole or emit.compare("equal", start, 0)
        # Written is the panel before this one, or the last one by the pair above.
        fresh = emit.compare("equal", panel, pair.first)
        due = emit.compare("greater", pair.top, 0)
        complete = emit.constant(emit.integer(1), 1)
        if not self._whole:
            due, complete = due & begins, emit.compare("equal", stop, steps)
        top = emit.select(fresh, pair.top - PAIR, pair.top)
        above = _pair(rows, top, pair.first, pair.last)
        before = self._result(above, emit.select(fresh, pair.last, panel) - 1)
        at = (pair.rows.panel + panel) * (steps * STEP)
        part = Part(pair.rows, 0, start, stop, begins, at)
        done = start * count + (panel - pair.first) * (stop - start)
        beside = Beside(
            self._sides,
            self._tasks,
            part,
            done=done,
            right=self._right(rows, pair, at, start, done),
            together=self._together,
            before=before,
            due=emit.select(fresh, due, complete),
            written=self._written,
        )
        self._pairs.add(part, self._sums_of(pair, panel), beside)

    def _soon(self, at: Size, start: Size, wanted: Any) -> Right:
        """What a pair asks for of b, if it is `wanted`: what it soon reads itself."""
        stop = emit.select(wanted, emit.index(self._sides.steps * ASKED), 0)
        return Right(at + AHEAD, start, APART, 1, stop)

    def _next(self, pair: Pair, done: Size, pairs: Any) -> Right:
        """What it asks for where a run stays, of so many `pairs`: its share of the next run."""
        steps = self._sides.steps
        apart = sizes.greatest(sizes.floordiv(emit.index(APART), pairs), 1)
        further = emit.compare("less", pair.last, self._tasks.panels)
        panel = pair.rows.panel + emit.select(further, pair.last, 0)
        number = pair.top // PAIR * ((pair.last - pair.first) * steps) + done
        times = sizes.ceildiv(emit.index(APART), apart * pairs)
        lines = emit.index(self._together * (steps * STEP) // LINE)
        return Right(panel * (steps * STEP), number, apart, times, sizes.floordiv(lines, apart))

    def _right(self, rows: Rows, pair: Pair, at: Size, start: Size, done: Size) -> Right:
        """What is asked for of b beside a part."""
        if self._all:
            return self._soon(at, start, emit.compare("equal", pair.top, 0))
        pairs = emit.as_index(sizes.ceildiv(rows.height, PAIR))
        single = emit.compare("equal", pairs, 1)
        soon, later = self._soon(at, start, single), self._next(pair, done, pairs)
        ways = ((getattr(way, field.name) for way in (soon, later)) for field in fields(Right))
        return Right(*(emit.select(single, *map(emit.as_index, both)) for both in ways))

    def _result(self, pair: Pair, panel: Size) -> tuple[Block, Any]:
        """What a pair by a panel is written from: the block and its sums."""
        return self._tasks.block(pair.rows, panel), self._sums_of(pair, panel)

    def _sums_of(self, pair: Pair, panel: Size) -> Any:
        """Where the sums of a pair by a panel are: those of all chunks at the same place."""
        number = panel - pair.first
        if self._whole:
            number = (pair.top // PAIR * (pair.last - pair.first) + number) % 2
        return bytes_at(self._sums, number * (PAIR * PANEL_ROW))


def _pair(rows: Rows, top: Size, first: Size, last: Size) -> Pair:
    """The pair of tiles from row `top` of a block on."""
    height = sizes.least(emit.index(PAIR), rows.height - top)
    return Pair(Rows(rows.row + top, height, rows.panel), top, first, last)


@dataclass(frozen=True)
class Right:
    """What is asked for of b: lines `n * apart` from byte `base` on, of all n below `stop`.

    Step number s of a pair's asks for `ASKED` of them `times` over; a part begins with `number`.
    """

    base: Size
    number: Size
    apart: Size
    times: Size
    stop: Size


@dataclass(frozen=True)
class Beside:
    """What is done beside the products of a part, with `done` steps of its pair before it.

    What is to be written `before`, if it is `due`, is `written` so many rows at a time.
    """

    sides: Sides
    tasks: Tasks
    part: Part
    done: Size
    right: Right
    together: int
    before: tuple[Block, Any]
    due: Any
    written: int

    def ask(self, step: Any) -> None:
        """Asks for lines of b, and of the next pair of rows."""
        right = self.right
        for time in [0] if right.times == 1 else emit.loop(0, right.times):
            number = (right.number + (step - self.part.start)) * right.times + time
            with emit.when(emit.compare("less", emit.as_index(number) * ASKED, right.stop)):
                for line in (number * ASKED + i for i in range(ASKED)):
                    place = right.base + line * (right.apart * LINE)
                    memory.prefetch(self.sides.b, place, "int8", level=2)
        lines, row = PAIR // NEXT_APART, self.part.rows.row + PAIR
        each = -(-lines // self.together)
        first = (self.done + (step - self.part.start)) * each
        more = emit.compare("less", row, self.tasks.batch * self.tasks.m)
        wanted = emit.select(more, emit.index(lines * self.sides.steps), 0)
        with emit.when(emit.compare("less", first, wanted)):
            for line in (first + i for i in range(each)):
                place = row * self.sides.row + line * (NEXT_APART * LINE)
                memory.prefetch(self.sides.a, place, "int8", level=2)

    def write(self, step: Any) -> None:
        """Writes some rows of what is due."""
        block, sums = self.before
        first = (step - self.part.start) * self.written
        with emit.when(self.due):
            for row in rows_of(first, self.written, 0, block.height):
                self.tasks.write(block, sums, row, row + 1)
