"""The scales [n, k / group] that belong to the sums of a lane, in fragments of mma.sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import outputs
from heddle.kernels.sizes import Size

_ALL = outputs.WARP_COLUMNS // 8


class GroupScales:
    """Those of a warp's columns from `first` on in a strip of products, `each` columns of each.

    Args:
        pointers: The scales of each product, in `dtype`.
        first: The warp's first column in the strip.
        column: The strip's first column in each product.
        shape: The sizes n and k.
        group: Elements along k to a scale.
    """

    def __init__(
        self,
        pointers: Sequence[Any],
        dtype: str,
        each: int,
        first: Size,
        column: Size,
        shape: tuple[Size, Size],
        group: int,
    ) -> None:
        (self._pointer, *gate), (n, k) = pointers, shape
        for pointer in gate:
            is_gate = emit.compare("greater_equal", first, each)
            self._pointer = emit.select(is_gate, pointer, self._pointer)
            first = first % each
        self._dtype, self._group = dtype, group
        self._groups = sizes.floordiv(k, group)
        column = column + first + _block.thread() % 4 * 2
        self._rows = [
            emit.minimum(column + 8 * j + i, n - 1) * self._groups
            for j in range(_ALL)
            for i in range(2)
        ]

    def load(self, at: Size) -> list[Any]:
        """The scale of each sum of 16 rows, for the elements from `at` along k on.

        Beyond k it is that of the last group, of weights that are zero there, or meet zeros.
        """
        group = emit.minimum(at // self._group, self._groups - 1)
        found = [_frame.load(self._pointer, row + group, self._dtype, 1) for row in self._rows]
        return [found[2 * j + part % 2] for j in range(_ALL) for part in range(4)]
