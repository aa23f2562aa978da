"""A panel of shared memory, through which results of a product by wgmma leave a warp's registers.

It has 16 rows of as many columns as fill lines of 128 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _rounding
from heddle.kernels.cuda.products import mma, staging
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

WARP_ROWS = 16
"""Rows of a warp, of the 64 of its warpgroup."""

PANEL = WARP_ROWS * staging.LINE
"""Bytes of a panel."""

PANELS = 2
"""Of each warp."""


@dataclass(frozen=True)
class Panel:
    """One of a warp's, from byte `start` of shared memory on, as `dtype`."""

    shared: mma.DynamicShared
    dtype: str
    start: Size

    @property
    def each(self) -> int:
        """Elements of a chunk."""
        return mma.CHUNK // emit.ITEM_SIZE[self.dtype]

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return staging.LINE // emit.ITEM_SIZE[self.dtype]

    @property
    def pointer(self) -> Any:
        """Where it is."""
        return self.shared.at(self.start)

    def fill(self, sums: Sequence[Any]) -> None:
        """Puts the thread's sums, as `instructions.Matrices.parts` has them, of all columns."""
        lane, pairs = _lane(), [sums[i : i + 2] for i in range(0, len(sums), 2)]
        if emit.ITEM_SIZE[self.dtype] == 2:
            words = [_rounding.packed(pair, self.dtype) for pair in pairs]
            for i in range(0, len(words), 4):  # Rows 0 and 8, then the same 8 columns on.
                target = self._at(lane % WARP_ROWS, lane // WARP_ROWS + i // 2)
                mma.store_matrices(words[i : i + 4], self.shared.at(target))
            return
        for i, pair in enumerate(pairs):
            chunk = lane % 4 // 2 + i // 2 * 2
            target = self._at(lane // 4 + i % 2 * 8, chunk) + lane % 2 * 8
            self.shared.store(vector.from_elements(emit.widen(pair[0].type, 2), pair), target)

    def fill_turned(self, sums: Sequence[Any], column: Size) -> None:
        """Puts the thread's eight sums, of columns by rows of the panel.

        The warp's 16 columns begin at `column`.
        """
        lane = _lane()
        if emit.ITEM_SIZE[self.dtype] != 2:
            for i, value in enumerate(sums):  # Two rows, then those 8 columns on, then 8 rows on.
                row, right = lane % 4 * 2 + i % 2 + i // 4 * 8, lane // 4 + i // 2 % 2 * 8
                self.shared.store(value, self._place(row, column + right))
            return
        words = [_rounding.packed(sums[i : i + 2], self.dtype) for i in range(0, len(sums), 2)]
        row, right = lane // 16 * 8 + lane % 8, column // self.each + lane // 8 % 2
        mma.store_matrices(words, self.shared.at(self._at(row, right)), turned=True)

    def load(self, row: Size, column: Size, lanes: int) -> Any:
        """Neighbouring results, in registers."""
        kind = emit.memory_type(self.dtype)
        return convert.from_memory(
            self.shared.load(self._place(row, column), kind, lanes), self.dtype
        )

    def store(self, value: Any, dtype: str, row: Size, column: Size) -> None:
        """Puts neighbouring outputs, of as many bytes, where results were."""
        self.shared.store(convert.to_memory(value, dtype), self._place(row, column))

    def _place(self, row: Size, column: Size) -> Size:
        return self._at(row, column // self.each) + column % self.each * emit.ITEM_SIZE[self.dtype]

    def _at(self, row: Size, chunk: Size) -> Size:
        within = staging.swizzled(row, chunk, staging.LINE)
        return self.start + row * staging.LINE + within * mma.CHUNK


def _lane() -> Any:
    return _block.thread() % _block.WARP
