"""Products by weights of 8 and 4 bits in AMX tiles (see `_amx`).

A part of a panel is widened to bfloat16 on the stack, once for all rows of a block. The sums of a
tile are stored when their group ends and, times the group's scales, added to totals in registers:
so a weight is never rounded. They are stored, too, where the rows on the stack end within a group.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _amx_tiles as tiles
from heddle.kernels.cpu._amx import PAIR, PANEL_ROW, RUN, STEP, Left, Sides, bytes_at
from heddle.kernels.cpu._amx_tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu._blocks import PANEL, Rows, Tile
from heddle.kernels.cpu._narrow_weights import STEP as TAKEN
from heddle.kernels.cpu._narrow_weights import Reader
from heddle.kernels.cpu._panels import BLOCK, LINE, Tasks
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

ALONG = 2 * TILE_ROWS
"""Elements along k of a step: a tile of pairs."""


CHUNK = 8
"""Steps of which a panel is widened at once."""


class Run:
    """The sums of a block of rows by several panels; made in the function's entry block."""

    def __init__(self, frame: host.Frame, tasks: Tasks, right: Reader) -> None:
        spec = frame.spec
        a, _, scales = spec.operands
        k = frame.size(a.shape[-1])
        self.sides, self.tasks = Sides(frame.inputs[0], frame.inputs[1], a.dtype, k), tasks
        self.height = -(-tasks.most // PAIR) * PAIR
        self.panels = min(RUN, tasks.panels) if isinstance(tasks.panels, int) else RUN
        self._left = Left(self.sides, self.height, CHUNK)
        self.chunk = self._left.depth
        self._sums = host.byte_buffer(self.panels * self.height * PANEL_ROW)
        self._right, self._steps = right, k // ALONG
        self._scales, self._dtype = frame.inputs[2], scales.dtype
        self._group, self._groups = spec.attr("group"), frame.size(scales.shape[1])
        self._span = math.gcd(self._group // ALONG, self.chunk)
        self._widened = host.byte_buffer(self.chunk * STEP)
        self._apart = host.byte_buffer(TILE)

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        for panel in emit.loop(first, last, self.panels):
            count = sizes.least(emit.index(self.panels), last - panel)
            self.multiply(rows, panel, count)
            for other in emit.loop(0, count):
                self.tasks.write(self.tasks.block(rows, panel + other), self.sums(other))

    def sums(self, number: Size) -> Any:
        """The sums of the run's panel `number`, in rows of 32."""
        return bytes_at(self._sums, number * (self.height * PANEL_ROW))

    def multiply(self, rows: Rows, panel: Size, count: Size) -> None:
        """Emits the sums of the rows by `count` of their panels, from number `panel` on."""
        for start in emit.loop(0, self._steps, self.chunk):
            stop = sizes.least(start + self.chunk, self._steps)
            begins = emit.compare("equal", start, 0)
            kept = host.first_lanes(emit.select(begins, emit.index(0), PANEL), TILE_ROWS)
            self._left.begin(rows, start, stop)
            for number in emit.loop(0, count):
                block = self.tasks.block(rows, panel + number)
                with emit.when(begins):
                    self.tasks.ask(block)
                more = emit.compare("less", number + 1, count)
                again = emit.compare("less", stop, self._steps)
                ahead = emit.select(again, emit.as_index(stop), 0)
                first = emit.select(again, block.panel - number, block.panel + 1)
                following = (
                    emit.select(more, block.panel + 1, first),
                    emit.select(more, start, ahead),
                )
                self._widen(block.panel, start, stop, following)
                for top in emit.loop(0, rows.height, TILE_ROWS):
                    for half in range(2):
                        self._add_tile(number, rows, block.panel, top, half, start, stop, kept)

    def _widen(self, panel: Size, start: Size, stop: Size, following: tuple[Size, Size]) -> None:
        """Widens the steps from `start` to `stop - 1`, the halves of the panel one after another.

        Asks for as much of the panel and from the step that are `following`.
        """
        tile = Tile(0, 0, BLOCK, BLOCK, panel, 0)
        first, size = start * ALONG, self._right.bytes
        next_panel, next_step = following
        next_at = (next_panel * self._steps + next_step) * (ALONG // TAKEN * size)
        for k in emit.loop(first, stop * ALONG, TAKEN):
            for line in range(0, size, LINE):
                place = next_at + ((k - first) // TAKEN * size + line)
                memory.prefetch(self.sides.b, place, "int8", level=2)
            self._right.start(tile, k)
            for number in range(TAKEN // 2):
                row = (k - first) // 2 + number
                for half, pairs in enumerate(self._right.pairs(number)):
                    words = vector.bitcast(emit.widen(emit.integer(32), TILE_ROWS), pairs)
                    place = (row + half * (self.chunk * TILE_ROWS)) * TILE_ROWS
                    memory.store(words, self._widened, place, "uint32", alignment=TILE_ROW)

    def _add_tile(
        self,
        number: Size,
        rows: Rows,
        panel: Size,
        top: Size,
        half: int,
        start: Size,
        stop: Size,
        kept: Any,
    ) -> None:
        """Adds the groups of the steps from `start` to `stop - 1` to a tile of totals.

        What was there before is `kept`, a mask.
        """
        columns = bytes_at(self._widened, half * (self.chunk * TILE))
        sums = self.sums(number)

        left_at = self._left.pair(rows, top)

        def add_span(first: Any, *before: Any) -> list[Any]:
            total = tiles.zero()
            for step in range(self._span):
                place = first - start + step
                (left, _), apart = left_at(first + step)
                left = tiles.load(left, apart)
                right = tiles.load(bytes_at(columns, place * TILE), TILE_ROW)
                total = tiles.multiply(self.sides.dtype, total, left, right)
            tiles.store(total, self._apart, TILE_ROW)
            group = panel * self._groups + first * ALONG // self._group
            scale = memory.load(
                self._scales, group * PANEL + half * TILE_ROWS, self._dtype, TILE_ROWS
            )
            return [
                emit.fma(memory.load(self._apart, r * TILE_ROWS, "float32", TILE_ROWS), scale, sum)
                for r, sum in enumerate(before)
            ]

        places = [(top + r) * PANEL + half * TILE_ROWS for r in range(TILE_ROWS)]
        totals = [memory.load(sums, place, "float32", TILE_ROWS, kept) for place in places]
        totals = emit.carry(start, stop, self._span, totals, add_span)
        for place, total in zip(places, totals, strict=True):
            memory.store(total, sums, place, "float32", alignment=TILE_ROW)
