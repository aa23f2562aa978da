"""Products of long rows (see `panels`): panels in runs that share a block of rows.

Rows that fill the second cache would come from the third one for each panel, and those that lie a
power of two apart share a few sets of it. So a chunk of them is put on the stack and multiplied by
all panels of a run, whose sums wait there for the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products import beside, panels
from heddle.kernels.cpu.products.blocks import PANEL, Rows, Tile, put_on_stack
from heddle.kernels.cpu.products.panels import BLOCK, Add, Multiply, Tasks
from heddle.kernels.cpu.products.tile import ROWS, rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold

LONG = 16 * 1024
"""Bytes of a row from which on a block fills a second cache of 1 MiB."""

CHUNK = 1024
"""Steps, of 4 bytes of a row and 128 of a panel, before the next panel of a run."""

ROW = 4 * CHUNK + LINE
"""Bytes of a row on the stack: an odd number of lines."""

RUN = 32
"""Panels of a run at most."""

Adding = Callable[[Callable[[Tile, int, Any], Any], Size], Add]
"""What adds steps to the sums of a tile, given where its left elements are and how many bytes
behind a stretch of b the next one lies: see `vectors.adder`."""


def fits(spec: Spec, machine: Machine) -> bool:
    """Whether products are computed here: rows are known to be long, and not to be few."""
    _, m, k = panels.extents(spec)
    sizes_of = [emit.ITEM_SIZE[operand.dtype] for operand in spec.operands[:2]]
    words = [panels.group_of(spec) * size for size in sizes_of] == [4, 4]
    long = isinstance(k, int) and k * sizes_of[0] >= LONG
    few = isinstance(m, int) and m <= rows_of(machine)
    return machine.vector_bytes == 64 and not machine.tiles and words and long and not few


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """A thread takes so many tasks that they are worth putting their rows on the stack."""
    if not fits(spec, machine):
        return None
    m = panels.extents(spec)[1]
    together = fold("max", 1, fold("min", RUN // 4, fold("floordiv", m, ROWS)))
    return beside.launch(spec, together=together)


class _Runs:
    """The sums of a block of rows by runs of panels; made in the function's entry block."""

    def __init__(self, tasks: Tasks, steps: Size, adding: Adding) -> None:
        self._tasks, self._steps, self._adding = tasks, steps, adding
        self._frame, self._group = tasks.frame, panels.group_of(tasks.frame.spec)
        self._k = tasks.frame.size(tasks.frame.spec.operands[0].shape[-1])
        self._size = PANEL * emit.ITEM_SIZE[tasks.dtype]
        self._left = host.byte_buffer(BLOCK * ROW, shared="left")
        self._sums = host.byte_buffer(RUN * BLOCK * self._size, shared="sums")

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        for begin in emit.loop(first, last, RUN):
            end = sizes.least(begin + RUN, last)
            for start in emit.loop(0, sizes.greatest(self._steps, 1), CHUNK):
                stop = sizes.least(start + CHUNK, self._steps)
                limit = sizes.least(stop * self._group, self._k)
                put_on_stack(self._frame, rows, start * self._group, limit, self._left, ROW)
                for panel in emit.loop(begin, end):
                    sums = memory.at(self._sums, (panel - begin) * (BLOCK * self._size), "int8")
                    following = self._following(panel, begin, end)
                    block = self._tasks.block(rows, panel)
                    add = self._adding(self._reader(start), following)
                    panels.add_stretch(self._tasks, block, sums, start, stop, self._steps, add)

    def _reader(self, start: Size) -> Callable[[Tile, int, Any], Any]:
        """Where the elements of a tile's rows are, of the chunk that begins at step `start`."""
        size = emit.ITEM_SIZE[self._frame.spec.operands[0].dtype]

        def left(tile: Tile, r: int, place: Any) -> Any:
            inside = (place - start * self._group) * size
            return memory.at(self._left, (tile.top + r) * ROW + inside, "int8")

        return left

    def _following(self, panel: Size, begin: Size, end: Size) -> Size:
        """Bytes from a chunk of a panel to what is multiplied next.

        The same chunk of the next panel, or the next one of the run's first.
        """
        whole = self._steps * (4 * PANEL)
        goes_on = emit.compare("less", panel + 1, end)
        back = (begin - panel) * whole + CHUNK * (4 * PANEL)
        return emit.select(goes_on, emit.as_index(whole), emit.as_index(back))


def emit_runs(tasks: Tasks, steps: Size, adding: Adding, few: Multiply) -> None:
    """Emits the loop over tasks; `few` emits a block of no more rows than a tile has."""
    runs = _Runs(tasks, steps, adding)
    sums = host.byte_buffer(tasks.most * PANEL * emit.ITEM_SIZE[tasks.dtype])
    most = rows_of(tasks.frame.machine)
    for rows, first, last in tasks.runs():
        with emit.when(emit.compare("less_equal", emit.as_index(rows.height), most)):
            for panel in emit.loop(first, last):
                few(tasks, tasks.block(rows, panel), sums)
        with emit.when(emit.compare("greater", emit.as_index(rows.height), most)):
            runs.compute(rows, first, last)
