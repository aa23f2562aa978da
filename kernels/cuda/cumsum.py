"""The sums of each element of a row and all before it: a warp for each row, 32 columns at a time.

Within the warp the sums grow in steps of 1, 2, 4, ... lanes; the last lane's goes on. float16 and
bfloat16 are added in float32.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product

_ROWS = _frame.THREADS // _block.WARP
"""Rows of a block."""


def emit_cumsum(spec: Spec, machine: Machine) -> None:
    """Emits the loop over the columns of a row."""
    frame = _frame.frame(spec, machine)
    x, write = frame.reader(0), frame.writer()
    length = frame.size(spec.result.shape[-1])
    count = frame.size(product(spec.result.shape[:-1]))
    lane = _block.thread() % _block.WARP
    row = _block.block() * _ROWS + _block.thread() // _block.WARP
    zero = emit.constant(emit.register_type(x.dtype), 0)

    def further(start: Any, total: Any) -> list[Any]:
        column = start + lane
        inside = compare("less", column, length)
        # Every lane has to take part in the shuffles, so that some read the last column again.
        there = row * length + select(inside, column, emit.as_index(length) - 1)
        value = select(inside, x(there, 1), zero)
        distance = 1
        while distance < _block.WARP:
            reaches = compare("greater_equal", lane, distance)
            before = _block.shuffle_from(value, select(reaches, lane - distance, 0))
            value = value + select(reaches, before, zero)
            distance *= 2
        value = value + total
        with emit.when(inside):
            write(value, row * length + column)
        return [_block.shuffle_from(value, _block.WARP - 1)]

    with emit.when(compare("less", row, count)):
        emit.carry(0, length, _block.WARP, [zero], further)


def launch(spec: Spec) -> Launch:
    """A warp for each row."""
    shape = spec.result.shape
    blocks = fold("max", 1, fold("ceildiv", product(shape[:-1]), _ROWS))
    return Launch((blocks, 1, 1), fold("mul", product(shape), 16), (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Numbers, with any body."""
    if spec.operands[0].dtype == "bool":
        return "no sum of bool"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("cumsum", "cuda", emit_cumsum, launch, supports)
