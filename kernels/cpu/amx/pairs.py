"""The products of pairs of tiles of rows by a chunk of a panel, in tiles of 16 rows by 64 bytes.

A step along k loads two tiles of each side for four products, which is as much as the second cache
gives in that time. So one side stays in the first cache, which the loads of the other pass by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.sides import PANEL_ROW, STEP, WORD, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Part:
    """A pair of tiles of rows, from the block's row `top` on, by a chunk of a panel.

    The chunk is the steps from `start` to `stop - 1` of the panel at byte `panel` of b. Whether it
    `begins` the panel is True or an i1.
    """

    rows: Rows
    top: Size
    start: Size
    stop: Size
    begins: Any
    panel: Size


class Places(Protocol):
    """Where tiles of rows are."""

    def pair(self, rows: Rows, top: Size) -> Callable[[Any], tuple[list[Any], Any]]:
        """`at(step)`: pointers to both tiles of the pair at `top`, and how far their rows lie."""


class Aside(Protocol):
    """What vectors do beside the products of a part, in each step."""

    def ask(self, step: Any) -> None:
        """Asks for what is wanted later."""

    def write(self, step: Any) -> None:
        """Writes results whose sums are complete."""


class Pairs:
    """Both sides; make one in the function's entry block."""

    def __init__(
        self, sides: Sides, left: Places, rows_stay: bool = False, words: int = TILE_ROWS
    ) -> None:
        """`rows_stay` in the first cache, or else the chunk does; a step is so many `words`."""
        self.sides, self._left, self._rows_stay, self._words = sides, left, rows_stay, words
        self._zero = host.byte_buffer(TILE_ROW)
        _clear(self._zero, TILE_ROW)
        if sides.ends_within:
            self._right = host.byte_buffer(STEP)
            _clear(self._right, STEP)

    def fill_up(self, panel: Size, stop: Size) -> None:
        """Copies the last words of the panel at `panel` to where zeros follow, if they come now."""
        sides = self.sides
        if not sides.ends_within:
            return
        last = sides.whole * TILE_ROWS
        now = emit.compare("greater", emit.as_index(stop), sides.whole)
        for r in emit.loop(0, emit.select(now, emit.as_index(sides.words - last), 0)):
            for half in (0, TILE_ROW):
                source = bytes_at(sides.b, panel + (last + r) * PANEL_ROW + half)
                value = memory.load(source, 0, "uint32", TILE_ROW // WORD)
                target = bytes_at(self._right, r * PANEL_ROW + half)
                memory.store(value, target, 0, "uint32", alignment=TILE_ROW)

    def add(self, part: Part, sums: Any, beside: Aside) -> None:
        """Adds a part's products to the sums from `sums` on: of one tile of rows or of both."""
        for count, left in ((2, "greater"), (1, "less_equal")):
            with emit.when(emit.compare(left, part.rows.height - part.top, TILE_ROWS)):
                self._add_tiles(part, sums, count, beside)

    def _add_tiles(self, part: Part, sums: Any, count: int, beside: Aside) -> None:
        """Adds the products of `count` tiles of rows by two of columns."""
        sides = self.sides
        left_at = self._left.pair(part.rows, part.top)

        def step_of(step: Any, *before: Any) -> list[Any]:
            places, apart = left_at(step)
            passing = not self._rows_stay
            row = self._words * WORD
            left = [tiles.load(place, apart, passing, row=row) for place in places[:count]]
            panel = bytes_at(sides.b, part.panel + step * (self._words * PANEL_ROW))
            if sides.ends_within:
                panel = emit.select(emit.compare("equal", step, sides.whole), self._right, panel)
            right = [
                tiles.load(bytes_at(panel, j * TILE_ROW), PANEL_ROW, not passing, self._words)
                for j in range(2)
            ]
            beside.ask(step)
            totals = [
                tiles.multiply(sides.dtype, total, left[i // 2], right[i % 2], row)
                for i, total in enumerate(before)
            ]
            beside.write(step)
            return totals

        places = [
            bytes_at(sums, i * TILE_ROWS * PANEL_ROW + j * TILE_ROW)
            for i in range(count)
            for j in range(2)
        ]
        if part.begins is True:
            totals = [tiles.zero() for _ in places]
        else:
            apart = emit.select(part.begins, emit.index(0), PANEL_ROW)
            held = [emit.select(part.begins, self._zero, place) for place in places]
            totals = [tiles.load(place, apart, streamed=True) for place in held]
        totals = emit.carry(part.start, part.stop, 1, totals, step_of)
        for place, total in zip(places, totals, strict=True):
            tiles.store(total, place, PANEL_ROW)


def _clear(base: Any, size: int) -> None:
    lanes = TILE_ROW // WORD
    zero = emit.constant(emit.integer(32), 0, lanes)
    for place in range(0, size // WORD, lanes):
        memory.store(zero, base, place, "uint32", alignment=TILE_ROW)
