"""Strided slices: a sweep over the output; what is contiguous in both tensors moves in vectors."""

from __future__ import annotations

from heddle.kernels import bodies, memory, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec


def emit_slice(spec: Spec, machine: Machine) -> None:
    """Emits the sweep: a run of the output is a run of the input."""
    frame = _frame.frame(memory.as_bits(spec), machine)
    read, write = frame.reader(0), frame.writer()
    starts, steps = frame.shape(spec.starts), spec.attr("steps")
    source = frame.shape(spec.operands[0].shape)
    result = frame.shape(spec.result.shape)
    apart = _first_contiguous(spec)
    run = sizes.product(result[apart:])
    strides = [sizes.product(source[axis + 1 :]) for axis in range(len(source))]
    offset: Size = 0
    for start, stride in zip(starts, strides, strict=True):
        offset = offset + stride * start
    total = sizes.product(result)

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            row, column = sizes.floordiv(position, run), sizes.mod(position, run)
            where = column + offset
            coordinates = sizes.split(row, result[:apart])
            for i, step, stride in zip(coordinates, steps, strides, strict=False):
                where = where + i * stride * step
            write(read(where, lanes), position)

    moved = [stride * step for step, stride in zip(steps[:apart], strides, strict=False)]
    _frame.in_vectors(frame, [read.inputs, write.inputs], [run, offset, *moved], body)


def _first_contiguous(spec: Spec) -> int:
    """The first of the axes that together are one run in both tensors."""
    source, result = spec.operands[0].shape, spec.result.shape
    starts, steps = spec.starts, spec.attr("steps")
    axis = len(source)
    while axis and steps[axis - 1] == 1:
        axis -= 1
        if starts[axis] or source[axis] != result[axis]:
            break
    return axis


KERNEL = Kernel("slice", "cuda", emit_slice, _frame.sweep_launch, bodies.unsupported_in)
