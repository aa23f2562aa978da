"""Elements of each row chosen by that row's indices: result[r, i] = x[r, indices[r, i]].

A task is a block of the indices of one row. An index outside of the row is reported in the status
word and clamped.
"""

from __future__ import annotations

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import gather
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
    count, limit = (frame.size(operand.shape[-1]) for operand in reversed(spec.operands))
    for task in emit.loop(frame.first, frame.last):
        row, block = sizes.split(task, (1, sizes.ceildiv(count, BLOCK)))
        start = block * BLOCK
        stop = sizes.least(start + BLOCK, count)
        base, first, last = row * limit, row * count + start, row * count + stop
        gather.elements(frame, base, limit, first, last, emit.index(0), base + limit + start)


KERNEL = Kernel(
    "take_along", "cpu", emit_take_along, launch, memory.moves_only, moves=True, checks=True
)
