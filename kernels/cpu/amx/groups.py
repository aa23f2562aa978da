"""The sums of groups of weights in 8 and 4 bits, from AMX tiles to totals.

They are stored when their group ends and, times the group's scales, added to totals: so a weight is
never rounded. Those that were stored wait until the next tile is multiplied: what reads them at
once would wait for them, and all behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.sides import ALONG, STEP, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

TOGETHER = 4
"""Rows whose sums are scaled at a time."""

SCALES = 16 << 10
"""Bytes of weights to those whose scales are asked for."""


def ask(scales: Any, place: Size, dtype: str) -> None:
    """Asks for the scales of a panel's columns, from element `place` on."""
    for line in range(0, PANEL, LINE // emit.ITEM_SIZE[dtype]):
        memory.prefetch(scales, place + line, dtype)


class Sums:
    """Sums that wait: room for those of two groups; made in the function's entry block.

    What waits is carried as `totals`, the place of the `scales`, the `height` in rows, how many
    columns of the totals are `kept`, none or all, and how far `apart` the sums lie in the room.
    """

    def __init__(self, frame: host.Frame) -> None:
        scales = frame.spec.operands[2]
        self._scales, self._dtype = frame.inputs[2], scales.dtype
        self._group, self._groups = frame.spec.attr("group"), frame.size(scales.shape[-2])
        self._apart = host.byte_buffer(2 * STEP)

    def none(self, totals: Any) -> list[Any]:
        """What says that nothing waits."""
        return [totals, *map(emit.index, (0, 0, 0, 0))]

    def store(
        self,
        found: Sequence[Any],
        totals: Any,
        panel: Size,
        first: Size,
        height: Size,
        waiting: Sequence[Any],
        ahead: int = 0,
    ) -> list[Any]:
        """Stores two tiles of sums, of a group's steps from `first` on; returns what waits.

        Those that are `waiting` are scaled before. Scales are asked for so many groups `ahead`.
        """
        self.scale(*waiting)
        apart = STEP - waiting[-1]
        for half, total in enumerate(found):
            tiles.store(total, bytes_at(self._apart, apart + half * TILE), TILE_ROW)
        scales = (panel * self._groups + first * ALONG // self._group) * PANEL
        if ahead:
            ask(self._scales, scales + ahead * PANEL, self._dtype)
        kept = emit.select(emit.compare("equal", first, 0), emit.index(0), TILE_ROWS)
        return [totals, scales, emit.as_index(height), kept, apart]

    def scale(self, totals: Any, scales: Size, height: Size, kept: Size, apart: Size) -> None:
        """Adds the sums of a tile of rows that waited, times their scales, to the totals."""
        mask = host.first_lanes(kept, TILE_ROWS)
        halves = [
            memory.load(self._scales, scales + half * TILE_ROWS, self._dtype, TILE_ROWS)
            for half in range(2)
        ]
        sums = bytes_at(self._apart, apart)
        for r in emit.loop(0, height, TOGETHER):
            for row in (r + i for i in range(TOGETHER)):
                for half, scale in enumerate(halves):
                    place = row * PANEL + half * TILE_ROWS
                    total = memory.load(totals, place, "float32", TILE_ROWS, mask)
                    found = memory.load(
                        sums, (half * TILE_ROWS + row) * TILE_ROWS, "float32", TILE_ROWS
                    )
                    total = emit.fma(found, scale, total)
                    memory.store(total, totals, place, "float32", alignment=TILE_ROW)
