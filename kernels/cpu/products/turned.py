"""Rows turned on the stack: what one step along k takes of all of them lies in one line.

Rows that lie a power of two apart share a few sets of the first cache, which has no room there for
16 of them. And what a product reads has one pointer, not one for each row.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

WORD = 4
"""Bytes of what a step takes of a row."""

ROWS = LINE // WORD
"""Rows of a line, at most."""

ROOM = 512 << 10
"""Bytes of stack, at most."""


class Turned:
    """Up to 16 rows of `k` elements of a; made in the function's entry block.

    A step takes an element of a row, as float32, or a pair of bfloat16 where they are `pairs`.
    """

    def __init__(self, frame: host.Frame, k: int, pairs: bool) -> None:
        self._source, self._dtype = frame.inputs[0], frame.spec.operands[0].dtype
        self._k, self._together = k, 2 if pairs else 1
        self._steps = k // self._together
        self._kind = "uint32" if pairs else "float32"
        self._lines = host.byte_buffer(-(-self._steps // ROWS) * ROWS * LINE)

    def begin(self, rows: Rows) -> None:
        """Puts rows on the stack; those that there are not are the last one again."""
        read = self._kind if self._together > 1 else self._dtype
        aligned = emit.ITEM_SIZE[self._dtype]
        for step, mask in host.vectors(0, self._steps, ROWS):
            found = []
            for r in range(ROWS):
                row = rows.row + sizes.least(emit.index(r), rows.height - 1)
                place = row * self._k + step * self._together
                source = memory.at(self._source, place, self._dtype)
                found.append(memory.load(source, 0, read, ROWS, mask, alignment=aligned))
            for number, line in enumerate(crosslane.transposed(found)):
                place = (step + number) * ROWS
                memory.store(line, self._lines, place, self._kind, alignment=LINE)

    def load(self, row: int, step: Size) -> Any:
        """What a step takes of a row."""
        return memory.load(self._lines, step * ROWS + row, self._kind)


def fits(k: Size, pairs: bool) -> bool:
    """Whether rows of `k` elements can lie on the stack."""
    return isinstance(k, int) and 0 < k * LINE // (2 if pairs else 1) <= ROOM
