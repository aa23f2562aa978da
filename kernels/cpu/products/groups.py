"""Groups of weights in 8 and 4 bits: their scales, and the memory that is asked for ahead of them.

A group's sums are scaled once, when they are complete, and added to totals on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from heddle.kernels import bodies, emit, host, memory
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import PANEL, Tile
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

llvm = dialect("llvm")

STRETCH = 2048
"""Elements along k that all tiles of a block go through before the next, at most."""

DOTS = 5
"""Cycles from one dot product to the next of the same sum."""


class Groups:
    """The groups of a product along k, of which a step takes `step` elements: `size` bytes."""

    def __init__(self, frame: host.Frame, lanes: int, step: int, size: int) -> None:
        self.length = frame.spec.attr("group")
        self.count = frame.size(frame.spec.operands[2].shape[-2])
        self.k = self.count * self.length
        self._frame, self._lanes, self._step, self._bytes = frame, lanes, step, size
        self._soon = panels.SPACE.value("ahead", frame.spec, frame.machine.arch) << 10
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)

    def clear(self, totals: Any, height: Size) -> None:
        """Emits the loop that clears the totals of a block."""
        for place in emit.loop(0, height * PANEL, self._lanes):
            memory.store(self._zero, totals, place, "float32")

    def scales(self, tile: Tile, k: Size) -> list[Any]:
        """Those of each vector of columns, of the group that begins with element `k`.

        Those of the groups that are asked for next are asked for, too.
        """
        scales, dtype = self._frame.inputs[2], self._frame.spec.operands[2].dtype
        place = (tile.panel * self.count + k // self.length) * PANEL + tile.part
        if tile.part == 0:
            ahead = max(1, self._soon // (self.length // self._step * self._bytes)) * PANEL
            for line in range(0, PANEL, LINE // emit.ITEM_SIZE[dtype]):
                memory.prefetch(scales, place + (ahead + line), dtype)
        columns = (place + i * self._lanes for i in range(tile.vectors))
        return [memory.load(scales, column, dtype, self._lanes) for column in columns]

    def add(self, sums: Iterable[Any], scales: Sequence[Any], tile: Tile, totals: Any) -> None:
        """Adds the sums of a tile, in row-major order, times its scales to the totals."""
        aligned = self._lanes * emit.ITEM_SIZE["float32"]
        for number, (value, place) in enumerate(zip(sums, tile.places(self._lanes), strict=True)):
            # Volatile: LLVM would keep totals in registers that it lacks, and spill them.
            pointer = memory.at(totals, place, "float32")
            total = llvm.load(value.type, pointer, alignment=aligned, volatile_=True)
            total = emit.fma(value, scales[number % tile.vectors], total)
            llvm.store(total, pointer, alignment=aligned, volatile_=True)

    def ahead(self, tile: Tile, start: Size, stop: Size) -> tuple[Any, Any]:
        """What to ask for beside the first step of a stretch, and how much beside each.

        Tiles ask for the next stretch, each for a share like that of its rows, so that memory is
        busy at all times. A block of one tile asks for what comes soon.
        """
        rows = emit.as_index(tile.all_rows)
        highest = max(tile.height, rows_of(self._frame.machine))
        one = emit.compare("less_equal", rows, highest)
        stretch = (stop - start) // self._step * self._bytes
        panel = (tile.panel * self.k + start) // self._step * self._bytes
        first = panel + emit.select(one, self._soon, stretch) + stretch * tile.top // rows
        return first, emit.index(self._bytes * tile.height) // rows


def unsupported(spec: Spec) -> str | None:
    """Why not, unless scales are floats, there is something along k, and no prologue."""
    if spec.operands[0].shape[-1] == 0:  # the loops along k write in their last turn
        return "wanted something along k, got nothing"
    scales = spec.operands[2].dtype
    if scales not in ("float32", "float16", "bfloat16"):
        return f"scales: wanted float32, float16 or bfloat16, got {scales}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)
