"""New rows of a cache, put where the tables of blocks say.

A warp copies the row of one token. The result is the cache already when the kernel starts
(`Kernel.updates`). A place outside of the cache is reported, and its token dropped.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._ragged import WARPS, report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import RowSpans, Table
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_paged_write(spec: Spec, machine: Machine) -> None:
    """Emits a warp's work."""
    frame = _frame.frame(spec, machine)
    tokens, *inner = frame.shape(spec.operands[1].shape)
    size = sizes.product(tuple(inner))
    spans, table = RowSpans(frame, report, 2, tokens), Table(frame, report, 0, 3)
    token, new = _block.block() * WARPS + _block.thread() // _block.WARP, frame.reader(1).inputs
    with emit.when(emit.compare("less", token, tokens)):
        table.put(spans, token, lambda place: _copy(frame, new, token * size, place * size, size))


def _copy(
    frame: _frame.Frame, new: _frame.Inputs, source: Any, target: Any, size: sizes.Size
) -> None:
    """Copies the row from element `source` on, a vector in each lane."""
    dtype = memory.raw(frame.spec.result.dtype)

    def body(lanes: int) -> None:
        first, stride = _block.thread() % _block.WARP * lanes, _block.WARP * lanes
        for column in emit.loop(first, size, stride):
            value = _frame.load(frame.inputs[1], source + column, dtype, lanes)
            alignment = lanes * emit.ITEM_SIZE[dtype]
            memory.store(value, frame.outputs[0], target + column, dtype, alignment=alignment)

    _frame.in_vectors(frame, [new], [size], body)


def launch(spec: Spec) -> Launch:
    """A warp for each token."""
    tokens, *inner = spec.operands[1].shape
    grid = fold("max", 1, fold("ceildiv", tokens, WARPS))
    return Launch((grid, 1, 1), product((tokens, *inner, 2)), (WARPS * _block.WARP, 1, 1))


KERNEL = Kernel(
    "paged_write",
    "cuda",
    emit_paged_write,
    launch,
    memory.moves_only,
    checks=True,
    updates=True,
)
