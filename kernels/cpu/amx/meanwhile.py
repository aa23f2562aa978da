"""What vectors do in each step of a pair of tiles, beside its products.

They ask for what comes next of the panel, for the next pair's sums where these wait, and for the
lines that results will fill, and write the rows above, whose sums are complete with the same chunk.
All at once would hold tiles up.

Where a step does little it has no loop for that: a jump that was not foreseen empties the queue in
which the next steps' tiles are loaded ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cpu.amx.pairs import Part
from heddle.kernels.cpu.amx.sides import PANEL_ROW, STEP, Sides
from heddle.kernels.cpu.amx.tiles import PAIR
from heddle.kernels.cpu.products.blocks import Block
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

AHEAD, APART = 8 << 10, 8
"""Bytes from what a single pair of tiles reads of b to what it asks for, of which a line in so
many: the second cache fetches those between by itself."""

UNROLLED = 4
"""Rows of a step that are asked for or written without a loop."""

TOGETHER = 4
"""Lines of the panel that are asked for at a time: those of a step of the most rows."""

SUMS = 4
"""Lines of the next pair's sums that a step asks for: all of them in 16 steps."""

ROW = 16
"""Lines in a row that a pair asks for. They bring the second cache to fetch those behind, which the
next pair asks for later; where all of a pair's are in a row, it is itself behind those."""


@dataclass(frozen=True)
class Ahead:
    """What a pair asks for of b: what lies `behind`, from that byte on.

    Each line number n * `apart` of it, `row` of them in a row.
    """

    behind: Size
    apart: Size
    row: int


@dataclass(frozen=True)
class Due:
    """The `sums` of a block, of which pairs above are written with the last chunk, if `complete`.

    That is True or an i1; the chunk has `last` steps. Those of a run's panels, which `wait` for the
    next part of rows, lie behind each other.
    """

    block: Block
    sums: Any
    last: Size
    complete: Any
    wait: bool


class Meanwhile:
    """What is done beside the products of a part; made in front of its loop over steps."""

    def __init__(self, sides: Sides, tasks: Tasks, part: Part, due: Due, ahead: Ahead) -> None:
        self._sides, self._tasks, self._part, self._ahead = sides, tasks, part, ahead
        self._block, self._sums, self._wait = due.block, due.sums, due.wait
        self._bottom = sizes.least(part.top + PAIR, due.block.height)
        self._asked = sizes.ceildiv(PAIR, sizes.greatest(sides.steps, 1))
        self._written = sizes.ceildiv(PAIR, sizes.greatest(due.last, 1))
        self._due = emit.compare("greater", emit.as_index(part.top), 0)
        if due.complete is not True:
            self._due = self._due & due.complete
        lines = sizes.floordiv(STEP // LINE, ahead.apart)
        self._pairs = sizes.ceildiv(due.block.height, PAIR)
        self._lines = lines * (part.stop - part.start)
        self._each = sizes.ceildiv(lines, self._pairs * TOGETHER) * TOGETHER

    def ask(self, step: Any) -> None:
        """Asks for lines of what comes next of the panel and of sums, and of the result."""
        self._ask_right(step)
        if self._wait:
            self._ask_sums(step)
        part, each = self._part, self._asked
        late = sizes.greatest(self._sides.steps - PAIR, 0)
        first = part.top + (step - late) * each
        for row in rows_of(first, each, part.top, self._bottom):
            self._tasks.ask(self._block, row, row + 1)

    def _ask_right(self, step: Any) -> None:
        """Asks for a pair's lines of the panel's next chunk.

        So many are in a row; as many of each of the other pairs lie between them and the next ones.
        """
        part, each, row = self._part, self._each, self._ahead.row
        first = (step - part.start) * each
        for number in emit.loop(first, first + each, TOGETHER):
            line = (number // row * self._pairs + part.top // PAIR) * row + number % row
            with emit.when(emit.compare("less", line, self._lines)):
                for place in (line + i for i in range(TOGETHER)):
                    byte = self._ahead.behind + place * (self._ahead.apart * LINE)
                    memory.prefetch(self._sides.b, byte, "int8", level=2)

    def _ask_sums(self, step: Any) -> None:
        """Asks for lines of the next pair's sums, or of the next panel's."""
        size = SUMS * LINE
        place = sizes.least(step - self._part.start, PAIR * PANEL_ROW // size - 1) * size
        for line in range(0, size, LINE):
            byte = (self._part.top + PAIR) * PANEL_ROW + (place + line)
            memory.prefetch(self._sums, byte, "int8")

    def write(self, step: Any) -> None:
        """Writes some of the rows above the pair, if their sums are complete."""
        part, each = self._part, self._written
        first = part.top - PAIR + (step - part.start) * each
        with emit.when(self._due):
            for row in rows_of(first, each, 0, part.top):
                self._tasks.write(self._block, self._sums, row, row + 1)


def rows_of(first: Size, count: Size, begin: Size, end: Size) -> Iterator[Size]:
    """Emits the Python body of a `for row in` this: `count` rows from `first` on, those in bounds.

    Each comes once: what is written over an input could not be computed again.
    """
    if not isinstance(count, int) or count > UNROLLED:
        yield from emit.loop(sizes.greatest(first, begin), sizes.least(first + count, end))
        return
    for row in (first + number for number in range(count)):
        within = emit.compare("greater_equal", row, begin) & emit.compare("less", row, end)
        with emit.when(within):
            yield row
