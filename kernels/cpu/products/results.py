"""Where the sums of products by panels go: through the epilogue, to the result.

Where registers have 32 bytes and panels may end within a vector, the code that writes is there
twice: most vectors are whole, and are stored without a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from heddle.kernels import emit, host, memory, rows, sizes
from heddle.kernels.cpu.products.blocks import PANEL, Block, Strip, touched
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size


class Results:
    """Where sums go; make one at the function's start. Those of a block are in rows of 32.

    The sums are of `dtype`. `each` is how many columns, of `n` in a row of the result, belong
    together: their panels end with them. Where a kernel sets `streams`, results take the stream of
    `finish`.
    """

    streams = False

    def __init__(self, frame: host.Frame, lanes: int, dtype: str, together: int = 1) -> None:
        self.frame, self.lanes, self.dtype = frame, lanes, dtype
        self.n = frame.size(frame.spec.result.shape[-1])
        self.each = sizes.floordiv(self.n, together)
        self.panels = sizes.ceildiv(self.each, PANEL)
        self.finish = rows.Finish(frame, lanes)
        self._together = together

    def ask(
        self, block: Block, top: Size = 0, bottom: Size | None = None, read: bool = False
    ) -> None:
        """Prefetches the lines of the result that `write` of these rows will fill.

        And those that it will `read` beside them. What goes past the cache is not wanted there.
        """
        past = self.finish.stream.past if self.streams else None
        for r in emit.loop(top, block.height if bottom is None else bottom):
            first = (block.row + r) * self.n + block.column
            for number, wanted in enumerate(touched(self.frame)[: None if read else 1]):
                with nullcontext() if number or past is None else emit.when(past ^ 1):
                    _ask(*wanted, first)

    def ask_strip(self, strip: Strip, complete: Any, read: bool = False) -> None:
        """Prefetches the lines of the panel that `write_strip` will fill, or `read` as well.

        Strip by strip: the rows of a block may lie so far apart that they share a few sets of the
        cache, and would not stay.
        """
        self.ask(strip.block, strip.top, _bottom(strip, complete), read)

    def write(self, block: Block, sums: Any, top: Size = 0, bottom: Size | None = None) -> None:
        """Writes these rows of a block's sums through the epilogue."""
        bottom = block.height if bottom is None else bottom
        self._write(block, sums, top, bottom, range(0, PANEL, self.lanes))

    def write_strip(self, strip: Strip, sums: Any, complete: Any) -> None:
        """Writes a strip of its block's sums through the epilogue, if they are `complete`."""
        parts = range(strip.part, strip.part + 2 * self.lanes, self.lanes)
        self._write(strip.block, sums, strip.top, _bottom(strip, complete), parts)

    def widths(self, strip: Strip) -> Iterator[tuple[int, Any]]:
        """How many vectors of a strip are multiplied, each with whether it is so.

        Where it is known that a last panel ends in the first half, the other one is left out.
        """
        left = (self.each - 1) % PANEL + 1 - strip.part if isinstance(self.each, int) else PANEL
        if left > self.lanes:
            yield 2, True
            return
        end = self._inside(strip.block) + PANEL
        if self.each > PANEL:
            yield 2, emit.compare("less_equal", end, self.each)
        if left > 0:
            yield 1, emit.compare("greater", end, self.each)

    def reached(self, block: Block, part: int) -> AbstractContextManager[None]:
        """Emits the Python body of a `with` this where the result has columns `part` of a panel."""
        if part == 0 or (isinstance(self.each, int) and (self.each - 1) % PANEL >= part):
            return nullcontext()
        return emit.when(emit.compare("less", self._inside(block) + part, self.each))

    def _inside(self, block: Block) -> Size:
        """The column of a block among those that belong together."""
        return block.column if self._together == 1 else block.column % self.each

    def _write(self, block: Block, sums: Any, top: Size, bottom: Size, parts: range) -> None:
        inside = self._inside(block)

        def write(whole: bool) -> list[Any]:
            for r in emit.loop(top, bottom):
                at = self.finish.row(block.row + r, streams=self.streams)
                for part in parts:
                    mask = None if whole else self.finish.mask(inside + part, self.each, PANEL)
                    with nullcontext() if mask is None else self.reached(block, part):
                        value = memory.load(sums, r * PANEL + part, self.dtype, self.lanes)
                        at(block.column + part, mask, value)
            return []

        # Registers of 32 bytes are stored slowly by a mask: 5.7 ns on a Zen 3, 0.8 without one.
        multiple = isinstance(self.each, int) and self.each % PANEL == 0
        if multiple or self.frame.machine.vector_bytes == LINE:
            write(multiple)
            return
        end = emit.as_index(inside) + (parts[-1] + self.lanes)
        emit.either(
            emit.compare("less_equal", end, self.each),
            [],
            lambda: write(True),
            lambda: write(False),
        )


def _ask(pointer: Any, dtype: str, first: Size) -> None:
    """Prefetches the lines of a panel's elements in a row, from `first` on."""
    for line in range(0, PANEL, LINE // emit.ITEM_SIZE[dtype]):
        memory.prefetch(pointer, first + line, dtype, level=2)


def _bottom(strip: Strip, complete: Any) -> Size:
    """Where the rows of a strip end: at its top if it is not `complete`."""
    if complete is True:
        return strip.bottom
    return emit.select(complete, emit.as_index(strip.bottom), emit.as_index(strip.top))
