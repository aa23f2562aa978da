"""The rows of a ragged batch, looked through by a warp."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.emit import compare, select
from heddle.kernels.row_spans import RowSpans


class WarpSpans(RowSpans):
    """`RowSpans` whose `find` is for all lanes of a warp: each looks at an offset of 32.

    One after the other, 64 rows were 64 loads that wait for the branch behind the one before.
    """

    def find(self, token: Any) -> tuple[Any, Any]:
        """See `RowSpans.find`; whole warps call, for the same token."""
        own, stop = self._looked(token, _block.thread() % _block.WARP, _block.WARP)
        row = _block.of_all(own)
        here = emit.minimum(stop, self._limit)
        return row, _block.of_all(select(compare("equal", own, row), here, 0))
