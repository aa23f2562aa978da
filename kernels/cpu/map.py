"""Elementwise groups: every output element from the input elements at its (broadcast) place.

The iteration shape is joined to as few axes as the inputs allow; a task is one block of one row of
the last axis, so that equal shapes are a single long row. Where the results go past the cache,
memory is asked for what comes: arithmetic leaves a core too few reads under way.
"""

from __future__ import annotations

from heddle.kernels import bodies, crosslane, emit, host, rows, sizes
from heddle.kernels.broadcast import Layout, join
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Body, Launch, Spec, fold, product
from heddle.kernels.stream import Stream

BLOCK = 4096
"""Elements of a task."""

TOGETHER = 4
"""Vectors that are worked on side by side, where the body is long and registers have 32 bytes."""


def launch(spec: Spec) -> Launch:
    """One task for each block of each row."""
    layout = _layout(spec)
    blocks = fold("ceildiv", layout.shape[-1], BLOCK)
    written = sum(emit.ITEM_SIZE[operand.dtype] for operand in spec.outputs)
    work = fold("mul", product(layout.shape), written + bodies.work(spec.prologue))
    return Launch((fold("mul", product(layout.rows), blocks), 1, 1), work)


def emit_map(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks, then over the vectors of a block."""
    frame = host.frame(spec, machine)
    body, layout = _body(spec), _layout(spec)
    lanes = host.lanes_for(machine, [operand.dtype for operand in spec.outputs], [body])
    # A store past the cache is worth it by whole lines: two registers go to one of 16-bit results.
    if all(2 * lanes * emit.ITEM_SIZE[each.dtype] <= machine.vector_bytes for each in spec.outputs):
        lanes *= 2
    computed = rows.Computed(frame, body, frame.inputs, layout, lanes, stored=True)
    length = computed.shape[-1]
    blocks = sizes.ceildiv(length, BLOCK)
    stream = Stream(frame, lanes, read=body.inputs if _shrinks(spec) else ())
    together = _together(body, machine)
    several = rows.Computed(frame, body, frame.inputs, layout, together * lanes, stored=True)

    for task in stream.tasks():
        row, block = sizes.floordiv(task, blocks), sizes.mod(task, blocks)
        start = block * BLOCK
        results_at = computed.row(row, ahead=stream.past)
        several_at = several.row(row, ahead=stream.past) if together > 1 else results_at
        stop = sizes.least(start + BLOCK, length)
        for column, mask, count in stream.runs(start, stop, row * length, together):
            results = several_at(column, mask) if count > 1 else results_at(column, mask)
            place = row * length + column
            for result, pointer, operand in zip(results, frame.outputs, spec.outputs, strict=True):
                for at, part in enumerate(crosslane.parts(result, count)):
                    stream.store(part, pointer, place + at * lanes, operand.dtype, mask)


def _together(body: Body, machine: Machine) -> int:
    """Vectors whose steps are emitted side by side.

    A core looks ahead as far as its queues reach, which is two or three functions with registers of
    32 bytes (half as many lanes in an instruction); their steps wait for each other.
    """
    floats = all(emit.is_float(dtype) for dtype in bodies.dtypes(body))
    return TOGETHER if machine.vector_bytes == 32 and floats and bodies.long(body) else 1


def _shrinks(spec: Spec) -> bool:
    """Whether a point's inputs have more bytes than its results."""
    read, written = (
        sum(emit.ITEM_SIZE[each.dtype] for each in side)
        for side in (_body(spec).inputs, spec.outputs)
    )
    return read > written


def _body(spec: Spec) -> Body:
    assert spec.prologue is not None
    return spec.prologue


def _layout(spec: Spec) -> Layout:
    return join(spec.outputs[0].shape, _body(spec).inputs)


def supports(spec: Spec) -> str | None:
    """Any body of known ops."""
    return bodies.unsupported(spec.prologue)


KERNEL = Kernel("map", "cpu", emit_map, launch, supports)
