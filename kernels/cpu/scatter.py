"""Rows put at the places along an axis that indices name, in the order of the indices.

The result is x already when the kernel starts (`Kernel.updates`). A task is a block of the columns
of all rows of a run, so that no other one writes what it does, and the order of updates is kept. An
index out of range is reported, and its row dropped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import convert, emit, host, memory, scattering, sizes
from heddle.kernels.cpu.gather import report
from heddle.kernels.emit import compare
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

BLOCK = 256
"""Bytes of a row that a task takes: whole lines."""

AHEAD = 16
"""So many updates ahead the place of one is asked for."""


def launch(spec: Spec) -> Launch:
    """One task for each block of columns of each run."""
    outer, _, count, inner = scattering.extents(spec)
    item = emit.ITEM_SIZE[spec.result.dtype]
    tasks = fold("mul", outer, fold("ceildiv", inner, BLOCK // item))
    return Launch((tasks, 1, 1), product((outer, count, inner, 2 * item)))


def emit_scatter(spec: Spec, machine: Machine) -> None:
    """Emits the loop over runs."""
    frame = host.frame(spec, machine, checks=True)
    inner = frame.size(scattering.extents(spec)[3])
    block = BLOCK // emit.ITEM_SIZE[spec.result.dtype]
    blocks = sizes.greatest(sizes.ceildiv(inner, block), 1)
    for run in emit.loop(sizes.floordiv(frame.first, blocks), sizes.ceildiv(frame.last, blocks)):
        # Neighbouring blocks are taken together.
        start = sizes.greatest(frame.first - run * blocks, 0) * block
        stop = sizes.least((frame.last - run * blocks) * block, inner)
        _run(frame, run, start, stop)


def _run(frame: host.Frame, run: Any, start: Size, stop: Size) -> None:
    """The updates of a run, in their order, in the columns from `start` to `stop`."""
    spec, indices = frame.spec, frame.inputs[1]
    _, limit, count, inner = frame.shape(scattering.extents(spec))
    kind = spec.operands[1].dtype
    end = run * count + count

    def wanted(number: Any) -> Any:
        return convert.cast(memory.load(indices, number, kind), kind, "int64")

    for number in emit.loop(run * count, end):
        place = wanted(number)
        # A later update's place may be anywhere: no prefetcher finds it.
        later = run * limit + wanted(sizes.least(number + AHEAD, end - 1))
        memory.prefetch(frame.outputs[0], later * inner + start, spec.result.dtype)
        emit.either(
            compare("less", place, limit, unsigned=True),
            [],
            partial(_put, frame, number * inner, (run * limit + place) * inner, start, stop),
            partial(_refuse, frame, place, limit, kind),
        )


def _put(frame: host.Frame, source: Any, target: Any, start: Size, stop: Size) -> list[Any]:
    """The columns from `start` to `stop` of a row of updates, by where it and its place begin."""
    spec, result = frame.spec, frame.outputs[0]
    dtype, inner = scattering.moved(spec), scattering.extents(spec)[3]
    lanes = host.lanes_for(frame.machine, [dtype])
    if isinstance(inner, int):
        lanes = min(lanes, 1 << max(inner, 1).bit_length() - 1)
    for column, mask in host.vectors(start, stop, lanes):
        new = memory.load(frame.inputs[2], source + column, dtype, lanes, mask)
        there = partial(memory.load, result, target + column, dtype, lanes, mask)
        value = scattering.combined(spec, there, new)
        memory.store(value, result, target + column, dtype, mask)
    return []


def _refuse(frame: host.Frame, place: Any, limit: Size, kind: str) -> list[Any]:
    report(frame, place, limit, kind)
    return []


KERNEL = Kernel(
    "scatter", "cpu", emit_scatter, launch, scattering.unsupported, checks=True, updates=1
)
