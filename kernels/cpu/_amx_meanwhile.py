"""What vectors do in each step of a pair of tiles, beside its products.

They ask for what comes next of the panel and for the lines that results will fill, and write the
rows above, whose sums are complete with the same chunk. All at once would hold tiles up.

Where a step does little it has no loop for that: a jump that was not foreseen empties the queue in
which the next steps' tiles are loaded ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cpu._amx_sides import PAIR, STEP, Sides
from heddle.kernels.cpu._blocks import Block
from heddle.kernels.cpu._panels import Tasks
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

UNROLLED = 2
"""Rows of a step that are asked for or written without a loop."""

TOGETHER = 4
"""Lines of the panel that are asked for at a time: those of a step of the most rows."""

ROW = 16
"""Lines in a row that a pair asks for. They bring the second cache to fetch those behind, which the
next pair asks for later; where all of a pair's are in a row, it is itself behind those."""


@dataclass(frozen=True)
class Part:
    """A pair of tiles of rows, from the block's row `top` on, by a chunk of its panel.

    The chunk is the steps from `start` to `stop - 1`; the panel's last one has `last`. Whether it
    `begins` the panel, and whether sums are `complete` with it, is True or an i1. The panel is at
    byte `panel` of b, and what comes next at byte `behind`, of which each line number n * `apart`
    is asked for, `row` of them in a row.
    """

    block: Block
    top: Size
    start: Size
    stop: Size
    last: Size
    begins: Any
    complete: Any
    panel: Size
    behind: Size
    apart: Size
    row: int


class Meanwhile:
    """What is done beside the products of a part; made in front of its loop over steps."""

    def __init__(self, sides: Sides, tasks: Tasks, part: Part, sums: Any) -> None:
        self._sides, self._tasks, self._part, self._sums = sides, tasks, part, sums
        self._bottom = sizes.least(part.top + PAIR, part.block.height)
        self._asked = sizes.ceildiv(PAIR, sizes.greatest(sides.steps, 1))
        self._written = sizes.ceildiv(PAIR, sizes.greatest(part.last, 1))
        self._due = emit.compare("greater", emit.as_index(part.top), 0)
        if part.complete is not True:
            self._due = self._due & part.complete
        lines = sizes.floordiv(STEP // LINE, part.apart)
        self._pairs = sizes.ceildiv(part.block.height, PAIR)
        self._lines = lines * (part.stop - part.start)
        self._each = sizes.ceildiv(lines, self._pairs * TOGETHER) * TOGETHER

    def ask(self, step: Any) -> None:
        """Asks for lines of what comes next of the panel, and of the result."""
        self._ask_right(step)
        part, each = self._part, self._asked
        late = sizes.greatest(self._sides.steps - PAIR, 0)
        first = part.top + (step - late) * each
        for row in _rows(first, each, part.top, self._bottom):
            self._tasks.ask(part.block, row, row + 1)

    def _ask_right(self, step: Any) -> None:
        """Asks for a pair's lines of the panel's next chunk.

        So many are in a row; as many of each of the other pairs lie between them and the next ones.
        """
        part, each, row = self._part, self._each, self._part.row
        first = (step - part.start) * each
        for number in emit.loop(first, first + each, TOGETHER):
            line = (number // row * self._pairs + part.top // PAIR) * row + number % row
            with emit.when(emit.compare("less", line, self._lines)):
                for place in (line + i for i in range(TOGETHER)):
                    byte = part.behind + place * (part.apart * LINE)
                    memory.prefetch(self._sides.b, byte, "int8", level=2)

    def write(self, step: Any) -> None:
        """Writes some of the rows above the pair, if their sums are complete."""
        part, each = self._part, self._written
        first = part.top - PAIR + (step - part.start) * each
        with emit.when(self._due):
            for row in _rows(first, each, 0, part.top):
                self._tasks.write(part.block, self._sums, row, row + 1)


def _rows(first: Size, count: Size, begin: Size, end: Size) -> Iterator[Size]:
    """Emits the Python body of a `for row in` this: `count` rows from `first` on, those in bounds.

    `begin` is a multiple of `count` from `first`. If `end` is not, the last row comes twice where
    there is no loop.
    """
    if not isinstance(count, int) or count > UNROLLED:
        yield from emit.loop(sizes.greatest(first, begin), sizes.least(first + count, end))
        return
    within = emit.compare("greater_equal", first, begin) & emit.compare("less", first, end)
    with emit.when(within):
        for number in range(count):
            yield sizes.least(first + number, end - 1) if number else first
