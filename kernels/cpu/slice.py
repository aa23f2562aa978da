"""Elements at regular steps along each axis.

A task is a block of one row of the result. With step 1 along the last axis it is copied, with
another step it is gathered.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product
from heddle.kernels.stream import Stream

BLOCK = 4096
"""Elements of a task."""


def launch(spec: Spec) -> Launch:
    """One task for each block of each row."""
    *outer, length = spec.result.shape
    blocks = fold("ceildiv", length, BLOCK)
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((product((*outer, blocks)), 1, 1), work)


def emit_slice(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    dtype = memory.raw(spec.result.dtype)
    lanes = host.lanes_for(machine, [dtype])
    source, target = frame.shape(spec.operands[0].shape), frame.shape(spec.result.shape)
    starts, steps = frame.shape(spec.starts), spec.attr("steps")
    length = target[-1]
    stream = Stream(frame, lanes)
    for task in stream.tasks():
        row, block = sizes.split(task, (1, sizes.ceildiv(length, BLOCK)))
        coordinates = sizes.split(row, target[:-1])
        base: Any = emit.index(0)
        for axis, coordinate in enumerate(coordinates):
            base = (base + (coordinate * steps[axis] + starts[axis])) * source[axis + 1]
        base = base + starts[-1]
        begin = block * BLOCK
        stop = sizes.least(begin + BLOCK, length)
        for column, mask in stream.vectors(begin, stop, row * length):
            if steps[-1] == 1:
                value = memory.load(frame.inputs[0], base + column, dtype, lanes, mask)
            else:
                numbers = crosslane.numbers(emit.integer(64), lanes) + column
                places = numbers * steps[-1] + base
                value = memory.gather(frame.inputs[0], places, dtype, mask)
            place = row * length + column
            stream.store(value, frame.outputs[0], place, dtype, mask)


KERNEL = Kernel("slice", "cpu", emit_slice, launch, memory.moves_only, moves=True)
