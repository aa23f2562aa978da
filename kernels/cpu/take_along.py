"""Elements of each row chosen by that row's indices: result[r, i] = x[r, indices[r, i]].

A task is a block of the indices of one row. An index outside of the row is reported in the status
word and clamped.
"""

from __future__ import annotations

from heddle.kernels import convert, emit, host, memory, sizes
from heddle.kernels.cpu import gather
from heddle.kernels.emit import compare
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product

BLOCK = 1024
"""Indices of a task."""


def launch(spec: Spec) -> Launch:
    """One task for each block of each row."""
    *outer, count = spec.result.shape
    tasks = product((*outer, fold("ceildiv", count, BLOCK)))
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((tasks, 1, 1), work)


def emit_take_along(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine, checks=True)
    x, indices = frame.inputs
    count, limit = (frame.size(operand.shape[-1]) for operand in reversed(spec.operands))
    dtype, kind = memory.raw(spec.result.dtype), spec.operands[1].dtype
    lanes = host.lanes_for(machine, ["int64"])
    inside = compare("greater", emit.splat(emit.as_index(limit), lanes), 0)
    for task in emit.loop(frame.first, frame.last):
        row, block = sizes.split(task, (1, sizes.ceildiv(count, BLOCK)))
        start = block * BLOCK
        for number, mask in host.vectors(start, sizes.least(start + BLOCK, count), lanes):
            chosen = memory.load(indices, row * count + number, kind, lanes, mask)
            chosen = convert.cast(chosen, kind, "int64")
            gather.check(frame, chosen, limit)
            places = gather.clamped(chosen, limit) + row * limit
            value = memory.gather(x, places, dtype, inside if mask is None else mask & inside)
            memory.store(value, frame.outputs[0], row * count + number, dtype, mask)


KERNEL = Kernel("take_along", "cpu", emit_take_along, launch, memory.moves_only, checks=True)
