"""New rows of a cache, put where the tables of blocks say.

A task is one token. The result is the cache already when the kernel starts (`Kernel.updates`); only
the new rows are written. A place outside of the cache is reported, and its token dropped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.flash.ragged import report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import RowSpans, Table
from heddle.kernels.spec import Launch, Spec, product


def launch(spec: Spec) -> Launch:
    """One task for each token."""
    tokens, *inner = spec.operands[1].shape
    work = product((tokens, *inner, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((tokens, 1, 1), work)


def emit_paged_write(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine, checks=True)
    tokens, *inner = frame.shape(spec.operands[1].shape)
    spans, table = RowSpans(frame, report, 2, tokens), Table(frame, report, 0, 3)
    for token in emit.loop(frame.first, frame.last):
        table.put(spans, token, partial(copy, frame, 1, 0, token, sizes.product(tuple(inner))))


def copy(
    frame: host.Frame, source: int, output: int, token: Any, size: sizes.Size, place: Any
) -> None:
    """Copies the `size` elements of a token from an input to its place in an output."""
    dtype = memory.raw(frame.spec.outputs[output].dtype)
    lanes = host.lanes_for(frame.machine, [dtype])
    for column, mask in host.vectors(0, size, lanes):
        value = memory.load(frame.inputs[source], token * size + column, dtype, lanes, mask)
        memory.store(value, frame.outputs[output], place * size + column, dtype, mask)


KERNEL = Kernel(
    "paged_write",
    "cpu",
    emit_paged_write,
    launch,
    memory.moves_only,
    checks=True,
    updates=1,
    moves=True,
)
