"""Running sums over the threads of a block."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.emit import compare, select


def in_warp(value: Any) -> Any:
    """The sum of an i64 over the lanes up to this one; whole warps call."""
    lane, distance = _block.thread() % _block.WARP, 1
    while distance < _block.WARP:
        reaches = compare("greater_equal", lane, distance)
        before = _block.shuffle_from(value, select(reaches, lane - distance, 0))
        value = value + select(reaches, before, 0)
        distance *= 2
    return value


class Scan:
    """Sums of i64 over a block of `threads`; `name` is that of its shared array."""

    def __init__(self, name: str, threads: int) -> None:
        self._warps = threads // _block.WARP
        self._totals = _block.SharedArray(name, emit.integer(64), self._warps)

    def __call__(self, value: Any) -> tuple[Any, Any]:
        """The sum over the threads before this one, and over all; every thread calls."""
        lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
        sums = in_warp(value)
        _block.barrier()  # Nobody may still read the totals of the scan before.
        with emit.when(compare("equal", lane, _block.WARP - 1)):
            self._totals.store(sums, warp)
        _block.barrier()
        before, total = sums - value, emit.index(0)
        for number in range(self._warps):
            part = self._totals.load(number)
            before = before + select(compare("greater", warp, number), part, 0)
            total = total + part
        return before, total
