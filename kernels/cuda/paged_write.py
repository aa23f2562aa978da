"""New rows of a cache, put where the tables of blocks say.

A warp copies the row of one token. The result is the cache already when the kernel starts
(`Kernel.updates`). A place outside of the cache is reported, and its token dropped.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._spans import WarpSpans
from heddle.kernels.cuda.flash.online import WARPS, report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import Table
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_paged_write(spec: Spec, machine: Machine) -> None:
    """Emits a warp's work."""
    frame = _frame.frame(spec, machine)
    tokens, *inner = frame.shape(spec.operands[1].shape)
    size = sizes.product(tuple(inner))
    spans, table = WarpSpans(frame, report, 2, tokens), Table(frame, report, 0, 3)
    token, size = (
        _block.block() * WARPS + _block.thread() // _block.WARP,
        sizes.product(tuple(inner)),
    )

    def write(place: Any) -> None:
        def body(lanes: int) -> None:
            copy(frame, (1, token), (0, place), size, lanes)

        _frame.in_vectors(frame, [frame.reader(1).inputs], [size], body)

    with emit.when(emit.compare("less", token, tokens)):
        table.put(spans, token, write)


def copy(
    frame: _frame.Frame,
    source: tuple[int, Any],
    target: tuple[int, Any],
    size: sizes.Size,
    lanes: int,
) -> None:
    """A warp copies a row of `size` elements of an input to a row of an output, in vectors."""
    (number, row), (output, place) = source, target
    dtype = memory.raw(frame.spec.outputs[output].dtype)
    alignment = lanes * emit.ITEM_SIZE[dtype]
    for column in emit.loop(_block.thread() % _block.WARP * lanes, size, _block.WARP * lanes):
        value = _frame.load(frame.inputs[number], row * size + column, dtype, lanes)
        at = place * size + column
        memory.store(value, frame.outputs[output], at, dtype, alignment=alignment)


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
    updates=1,
)
