"""Products by weights of 8 and 4 bits in AMX tiles (see `products`).

A part of a panel is widened to bfloat16 on the stack, once for all rows of a block, while the part
before it is multiplied: vector instructions run beside the tiles. The sums of a tile are stored
and scaled when their group ends (see `groups`), and, too, where the rows on the stack end
within a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.groups import Sums
from heddle.kernels.cpu.amx.products import RUN
from heddle.kernels.cpu.amx.sides import ALONG, PANEL_ROW, STEP, Left, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR, TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import Rows, Tile
from heddle.kernels.cpu.products.narrow_weights import STEP as TAKEN
from heddle.kernels.cpu.products.narrow_weights import Reader
from heddle.kernels.cpu.products.panels import BLOCK, Tasks
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

UNITS = ALONG // TAKEN
"""Times that weights are widened in a step."""

CHUNK = 4
"""Steps that are widened at a time, while as many are multiplied: both stay in the first cache."""


class Run:
    """The sums of a block of rows by several panels; made in the function's entry block."""

    def __init__(self, frame: host.Frame, tasks: Tasks, right: Reader) -> None:
        spec = frame.spec
        a = spec.operands[0]
        k = frame.size(a.shape[-1])
        self.sides, self.tasks = Sides(frame.inputs[0], frame.inputs[1], a.dtype, k), tasks
        self.height = -(-tasks.most // PAIR) * PAIR
        self.panels = min(RUN, tasks.panels) if isinstance(tasks.panels, int) else RUN
        self._left = Left(self.sides, self.height, CHUNK)
        self.chunk = self._left.depth
        self._sums = host.byte_buffer(self.panels * self.height * PANEL_ROW)
        self._right, self._steps = right, k // ALONG
        self._span = math.gcd(spec.attr("group") // ALONG, self.chunk)
        self._widened = host.byte_buffer(2 * self.chunk * STEP)
        self._waiting = Sums(frame)

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
        tall = sizes.ceildiv(rows.height, TILE_ROWS)
        share = sizes.ceildiv(UNITS, tall)
        first = _Part(rows.panel + panel, 0, sizes.least(self.chunk, self._steps), emit.index(0))
        self._widen(first, self._next(first, count), self._widened, 0, first.units)

        def over_chunks(start: Size, *waiting: Any) -> list[Any]:
            stop = sizes.least(start + self.chunk, self._steps)
            self._left.begin(rows, start, stop)

            def over_panels(number: Size, *waiting: Any) -> list[Any]:
                block = self.tasks.block(rows, panel + number)
                with emit.when(emit.compare("equal", start, 0)):
                    self.tasks.ask(block)
                part = _Part(block.panel, start, stop, number)
                following = self._next(part, count)
                after = self._next(following, count)
                odd = (start // self.chunk * count + number) % 2 * (self.chunk * STEP)
                here = bytes_at(self._widened, odd)
                there = bytes_at(self._widened, self.chunk * STEP - odd)

                def over_tiles(top: Size, *waiting: Any) -> list[Any]:
                    def beside(step: Size) -> None:
                        """Widens a tile's share of one step of the part that follows."""
                        begin = step * UNITS
                        end = sizes.least(begin + UNITS, following.units)
                        first = sizes.least(begin + top // TILE_ROWS * share, end)
                        last = sizes.least(first + share, end)
                        self._widen(following, after, there, first, last)

                    return self._add(part, rows, top, here, beside, waiting)

                return emit.carry(0, rows.height, TILE_ROWS, waiting, over_tiles)

            return emit.carry(0, count, 1, waiting, over_panels)

        none = self._waiting.none(self._sums)
        self._waiting.scale(*emit.carry(0, self._steps, self.chunk, none, over_chunks))

    def _next(self, part: _Part, count: Size) -> _Part:
        """What comes after a part, where a run has `count` panels.

        The same steps of the next panel, or the next ones of the first panel, or none.
        """
        more = emit.compare("less", part.number + 1, count)
        start = emit.select(more, emit.as_index(part.start), emit.as_index(part.stop))
        panel = emit.select(more, part.panel + 1, part.panel - part.number)
        number = emit.select(more, part.number + 1, 0)
        return _Part(panel, start, sizes.least(start + self.chunk, self._steps), number)

    def _widen(self, part: _Part, after: _Part, place: Any, first: Size, last: Size) -> None:
        """Widens the units of a part from number `first` to `last - 1`, and asks for those `after`.

        Each step is two tiles, one for each half of the panel.
        """
        tile = Tile(0, 0, BLOCK, BLOCK, part.panel, 0)
        size = self._right.bytes
        soon = (after.panel * self._steps + after.start) * (UNITS * size)
        for unit in emit.loop(first, last):
            for line in range(0, size, LINE):
                memory.prefetch(self.sides.b, soon + (unit * size + line), "int8", level=2)
            self._right.start(tile, part.start * ALONG + unit * TAKEN)
            step, inside = unit // UNITS, unit % UNITS
            target = bytes_at(place, step * STEP + inside * (TAKEN // 2 * TILE_ROW))
            for number in range(TAKEN // 2):
                for half, pairs in enumerate(self._right.pairs(number)):
                    words = vector.bitcast(emit.widen(emit.integer(32), TILE_ROWS), pairs)
                    where = (half * TILE_ROWS + number) * TILE_ROWS
                    memory.store(words, target, where, "uint32", alignment=TILE_ROW)

    def _add(
        self,
        part: _Part,
        rows: Rows,
        top: Size,
        widened: Any,
        beside: Callable[[Size], None],
        waiting: Sequence[Any],
    ) -> list[Any]:
        """Multiplies a part by the tile of rows from `top` on.

        Each step is followed by what is done `beside` it. Sums of a group are stored behind those
        that are `waiting` to be scaled (see `groups`), and wait instead of them.
        """
        left_at = self._left.pair(rows, top)
        totals = bytes_at(self.sums(part.number), top * PANEL_ROW)
        height = sizes.least(rows.height - top, TILE_ROWS)

        def add_step(step: Size, *before: Any) -> list[Any]:
            place = step - part.start
            (left, _), apart = left_at(step)
            a = tiles.load(left, apart)
            found = []
            for half, total in enumerate(before):
                b = tiles.load(bytes_at(widened, place * STEP + half * TILE), TILE_ROW)
                found.append(tiles.multiply(self.sides.dtype, total, a, b))
            beside(place)
            return found

        def add_group(first: Size, *waiting: Any) -> list[Any]:
            zeros = [tiles.zero(), tiles.zero()]
            if self._span == 1:
                found = add_step(first, *zeros)
            else:
                found = emit.carry(first, first + self._span, 1, zeros, add_step)
            return self._waiting.store(found, totals, part.panel, first, height, waiting)

        return emit.carry(part.start, part.stop, self._span, waiting, add_group)


@dataclass(frozen=True)
class _Part:
    """The steps from `start` to `stop - 1` of a panel, which is `number` of its run."""

    panel: Size
    start: Size
    stop: Size
    number: Size

    @property
    def units(self) -> Size:
        """How often weights are widened."""
        return (self.stop - self.start) * UNITS
