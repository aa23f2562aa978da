"""start + a size + i * step along one axis; a task is a block of it."""

from __future__ import annotations

from heddle.kernels import bodies, convert, crosslane, emit, host, memory, rows, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold

BLOCK = 4096
"""Elements of a task."""


def launch(spec: Spec) -> Launch:
    """One task for each block."""
    (length,) = spec.result.shape
    each = emit.ITEM_SIZE[spec.result.dtype] + bodies.work(spec.epilogue)
    return Launch((fold("ceildiv", length, BLOCK), 1, 1), fold("mul", length, each))


def emit_iota(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    dtype = spec.result.dtype
    lanes = host.lanes_for(machine, [dtype], [spec.epilogue])
    out_at = rows.Finish(frame, lanes).row(0)
    start, step = (memory.load(pointer, 0, dtype) for pointer in frame.inputs[:2])
    numbers = crosslane.numbers(emit.integer(64), lanes)
    # Of small floats the count is not rounded, as no number on the way to a result is.
    counted = "float32" if emit.is_float(dtype) and emit.ITEM_SIZE[dtype] < 4 else dtype
    length, (begin,) = frame.size(spec.result.shape[0]), frame.shape(spec.starts)
    start = start + convert.cast(emit.as_index(begin), "int64", counted)
    for task in emit.loop(frame.first, frame.last):
        first = task * BLOCK
        for i, mask in host.vectors(first, sizes.least(first + BLOCK, length), lanes):
            place = convert.cast(numbers + i, "int64", counted)
            out_at(i, mask, place * step + start)


def supports(spec: Spec) -> str | None:
    """Numbers."""
    return "no steps of bool" if spec.result.dtype == "bool" else bodies.unsupported(spec.epilogue)


KERNEL = Kernel("iota", "cpu", emit_iota, launch, supports)
