"""Tensors one after another along an axis: each row of the result is a piece of each operand.

A task is a block of one row of the result; it copies what falls inside from every operand.
"""

from __future__ import annotations

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Expr, Launch, Operand, Spec, fold, product
from heddle.kernels.stream import Stream

BLOCK = 4096
"""Elements of a task."""


def launch(spec: Spec) -> Launch:
    """One task for each block of each row."""
    rows = product(spec.result.shape[: spec.attr("axis")])
    blocks = fold("ceildiv", _length(spec, spec.result), BLOCK)
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((fold("mul", rows, blocks), 1, 1), work)


def emit_concat(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks, with one copy for each operand."""
    frame = host.frame(spec, machine)
    dtype = memory.raw(spec.result.dtype)
    lanes = host.lanes_for(machine, [dtype])
    length = frame.size(_length(spec, spec.result))
    pieces = [frame.size(_length(spec, operand)) for operand in spec.operands]
    stream = Stream(frame, lanes)
    for task in stream.tasks():
        row, block = sizes.split(task, (1, sizes.ceildiv(length, BLOCK)))
        start = block * BLOCK
        stop = sizes.least(start + BLOCK, length)
        offset: sizes.Size = 0
        for pointer, piece in zip(frame.inputs, pieces, strict=True):
            low = sizes.greatest(start, offset)
            high = sizes.least(stop, offset + piece)
            with emit.when(emit.compare("less", low, high)):
                for column, mask in stream.vectors(low, high, row * length):
                    value = memory.load(
                        pointer, row * piece + (column - offset), dtype, lanes, mask
                    )
                    place = row * length + column
                    stream.store(value, frame.outputs[0], place, dtype, mask)
            offset = offset + piece


def _length(spec: Spec, operand: Operand) -> Expr:
    """The elements of an operand from the axis on."""
    return product(operand.shape[spec.attr("axis") :])


KERNEL = Kernel("concat", "cpu", emit_concat, launch, memory.moves_only, moves=True)
