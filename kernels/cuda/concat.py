"""Tensors joined along an axis: each in turn is swept and written to its place in every row."""

from __future__ import annotations

from heddle.kernels import bodies, memory, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, product


def emit_concat(spec: Spec, machine: Machine) -> None:
    """Emits one sweep for each operand."""
    frame = _frame.frame(memory.as_bits(spec), machine)
    axis = spec.attr("axis")
    readers = [frame.reader(i) for i in range(len(spec.operands))]
    write = frame.writer()
    widths = [frame.size(product(operand.shape[axis:])) for operand in spec.operands]
    totals = [frame.size(product(operand.shape)) for operand in spec.operands]
    row_width = frame.size(product(spec.result.shape[axis:]))

    def body(lanes: int) -> None:
        before: Size = 0
        for read, width, total in zip(readers, widths, totals, strict=True):
            for position in _frame.sweep(total, lanes):
                row, column = sizes.floordiv(position, width), sizes.mod(position, width)
                write(read(position, lanes), row * row_width + column + before)
            before = width + before

    inputs = [*(read.inputs for read in readers), write.inputs]
    _frame.in_vectors(frame, inputs, widths, body)


KERNEL = Kernel("concat", "cuda", emit_concat, _frame.sweep_launch, bodies.unsupported_in)
