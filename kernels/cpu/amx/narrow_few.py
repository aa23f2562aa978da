"""Up to 16 rows by weights of 8 and 4 bits in AMX tiles, which are bound by reading weights.

Those that `narrow_bytes` does not take: by 4 bits, and int8 in groups of 32, nine and more.

All of the rows lie on the stack, and panels are read from end to end. Of them two steps along k are
widened on the stack: one is multiplied, then what comes two steps later takes its place. So all
that is widened takes 4 KiB of the first cache, and a tile is not loaded right behind the stores of
its rows, for which it would wait.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.groups import SCALES, Sums
from heddle.kernels.cpu.amx.narrow import CHUNK, UNITS
from heddle.kernels.cpu.amx.sides import ALONG, PANEL_ROW, STEP, Left, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import Rows, Tile
from heddle.kernels.cpu.products.narrow_weights import STEP as TAKEN
from heddle.kernels.cpu.products.narrow_weights import Reader
from heddle.kernels.cpu.products.panels import BLOCK, Tasks
from heddle.kernels.memory import LINE, Ask, Asks
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

DEEP = 512
"""Steps along k of rows that lie on the stack, at most: a MiB, of which they take half."""

BEFORE = 2
"""Steps from what is multiplied to what is widened."""

ASKS: Asks = ((Ask(1, 4 << 10), 1), (Ask(2, 48 << 10), 4))
"""What is asked for beside what is widened. The second cache fetches lines between those that it is
asked for by itself."""


def fits(frame: host.Frame) -> bool:
    """Whether the rows of a product can lie on the stack."""
    k = frame.size(frame.spec.operands[0].shape[-1])
    return isinstance(k, int) and 0 < k <= DEEP * ALONG


class Few:
    """The sums of a few rows by panels; made in the function's entry block."""

    def __init__(self, frame: host.Frame, tasks: Tasks, right: Reader) -> None:
        k = frame.size(frame.spec.operands[0].shape[-1])
        assert isinstance(k, int)
        self._sides = Sides(frame.inputs[0], frame.inputs[1], frame.spec.operands[0].dtype, k)
        self._tasks, self._right, self._steps = tasks, right, k // ALONG
        self._left = Left(self._sides, TILE_ROWS, self._steps, single=self._steps)
        self._widened = host.byte_buffer(BEFORE * STEP)
        self._totals = host.byte_buffer(TILE_ROWS * PANEL_ROW)
        self._waiting = Sums(frame)
        group = frame.spec.attr("group") // TAKEN * right.bytes
        self._ahead = max(1, SCALES // group)
        # As with more rows, whose sums are so the same ones.
        chunk = min(CHUNK, self._steps)
        self._span = math.gcd(frame.spec.attr("group") // ALONG, chunk)

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        self._left.begin(rows, 0, self._steps)
        begin, end = ((rows.panel + panel) * self._steps for panel in (first, last))
        for step in range(BEFORE):
            self._widen(begin + step, end)
        for block in self._tasks.written(rows, first, last, self._totals):
            self._multiply(rows, block.panel, end)

    def _multiply(self, rows: Rows, panel: Size, end: Size) -> None:
        """Emits the totals of a panel; the last one that is widened ends before step `end`."""
        left_at, begin = self._left.pair(rows, emit.index(0)), panel * self._steps

        def add_step(step: Size, *before: Any) -> list[Any]:
            (left, _), apart = left_at(step)
            a, widened = tiles.load(left, apart), self._place(begin + step)
            found = []
            for half, total in enumerate(before):
                b = tiles.load(bytes_at(widened, half * TILE), TILE_ROW)
                found.append(tiles.multiply(self._sides.dtype, total, a, b))
            self._widen(begin + step + BEFORE, end)
            return found

        def add_group(first: Size, *waiting: Any) -> list[Any]:
            zeros = [tiles.zero(), tiles.zero()]
            found = emit.carry(first, first + self._span, 1, zeros, add_step)
            return self._waiting.store(
                found, self._totals, panel, first, rows.height, waiting, self._ahead
            )

        none = self._waiting.none(self._totals)
        self._waiting.scale(*emit.carry(0, self._steps, self._span, none, add_group))

    def _place(self, step: Size) -> Any:
        """Where a step is widened."""
        return bytes_at(self._widened, step % BEFORE * STEP)

    def _widen(self, step: Size, end: Size) -> None:
        """Widens a step, counted through all panels, or again the last one before `end`."""
        place, size = self._place(step), self._right.bytes
        step = sizes.least(step, end - 1)
        for unit in range(UNITS):
            for line in range(unit * size, (unit + 1) * size, LINE):
                memory.ask_beside(ASKS, self._sides.b, step * UNITS * size, line)
            self._right.start(Tile(0, 0, BLOCK, BLOCK, 0, 0), step * ALONG + unit * TAKEN)
            for number in range(TAKEN // 2):
                for half, pairs in enumerate(self._right.pairs(number)):
                    words = vector.bitcast(emit.widen(emit.integer(32), TILE_ROWS), pairs)
                    row = half * TILE_ROWS + unit * (TAKEN // 2) + number
                    memory.store(words, place, row * TILE_ROWS, "uint32", alignment=TILE_ROW)
