"""Slices of a table chosen by indices: result[a, i, c] = table[a, indices[i], c].

A task is one slice, copied as a row; where slices are single elements it is a block of indices,
gathered. An index outside the table is reported in the status word and clamped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import out_of_range
from heddle.kernels.rows import AGAIN, AHEAD
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.stream import Stream

BLOCK = 1024
"""Indices of a task, where slices are single elements."""


def launch(spec: Spec) -> Launch:
    """One task for each slice, or for each block of indices."""
    outer, count, inner = _extents(spec)
    chosen = fold("ceildiv", count, BLOCK) if inner == 1 else count
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((fold("mul", outer, chosen), 1, 1), work)


def emit_gather(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine, checks=True)
    if _extents(spec)[2] == 1:
        for task in emit.loop(frame.first, frame.last):
            _elements(frame, task)
    else:
        stream = Stream(frame, host.lanes_for(machine, [memory.raw(spec.result.dtype)]))
        for task in stream.tasks():
            _row(frame, stream, task)


def _row(frame: host.Frame, stream: Stream, task: Any) -> None:
    """Copies the slice of one index."""
    spec = frame.spec
    table, indices = frame.inputs
    _, count, inner = (frame.size(extent) for extent in _extents(spec))
    limit = frame.size(spec.operands[0].shape[spec.attr("axis")])
    dtype, kind = memory.raw(spec.result.dtype), spec.operands[1].dtype
    outer, number = sizes.split(task, (1, count))
    chosen = convert.cast(memory.load(indices, number, kind), kind, "int64")
    with emit.when(compare("greater_equal", chosen, limit, unsigned=True)):
        report(frame, chosen, limit, kind)
    chosen = clamped(chosen, limit)
    # The next slice may be anywhere: its first lines are asked for from the end of this one.
    after = memory.load(indices, sizes.least(number + 1, count - 1), kind)
    after = convert.cast(after, kind, "int64")
    asks = [(ask, sizes.least(ask.nbytes // emit.ITEM_SIZE[dtype], inner)) for ask in AGAIN]
    with emit.when(compare("greater", emit.as_index(limit), 0)):
        for column, mask in stream.vectors(0, inner, task * inner):
            place = (outer * limit + chosen) * inner + column
            value = memory.load(table, place, dtype, stream.lanes, mask)
            following = (outer * limit + after - 1) * inner + column
            for ask, distance in asks:
                ends = compare("greater_equal", column + distance, inner)
                memory.prefetch(table, select(ends, following, place) + distance, dtype, ask.level)
            place = task * inner + column
            stream.store(value, frame.outputs[0], place, dtype, mask)


def _elements(frame: host.Frame, task: Any) -> None:
    """The elements of a block of indices."""
    spec = frame.spec
    count = frame.size(_extents(spec)[1])
    limit = frame.size(spec.operands[0].shape[spec.attr("axis")])
    outer, block = sizes.split(task, (1, sizes.ceildiv(count, BLOCK)))
    start = block * BLOCK
    stop = sizes.least(start + BLOCK, count)
    elements(frame, outer * limit, limit, start, stop, outer * count)


def elements(
    frame: host.Frame,
    base: Size,
    limit: Size,
    start: Size,
    stop: Size,
    further: Size,
    after: Size | None = None,
) -> None:
    """Writes the elements that the indices from number `start` to `stop` name.

    They count from element `base` of the table, and go `further` on than the indices lie. The next
    block's are asked for where it is known that they lie `after` an element of the table: those who
    come in any order are found by no prefetcher.
    """
    table, indices = frame.inputs
    dtype, kind = memory.raw(frame.spec.result.dtype), frame.spec.operands[1].dtype
    lanes = host.lanes_for(frame.machine, ["int64"])
    inside = compare("greater", emit.splat(emit.as_index(limit), lanes), 0)
    for number, mask in host.vectors(start, stop, lanes):
        if after is not None and mask is None:
            memory.prefetch(table, after + (number - start), dtype)
            memory.prefetch(indices, number + AHEAD // emit.ITEM_SIZE[kind], kind)
        chosen = convert.cast(memory.load(indices, number, kind, lanes, mask), kind, "int64")
        place = number + further

        def gathered(chosen: Any = chosen, place: Any = place, mask: Any = mask) -> list[Any]:
            check(frame, chosen, limit, kind)
            places = clamped(chosen, limit) + base
            value = memory.gather(table, places, dtype, inside if mask is None else mask & inside)
            memory.store(value, frame.outputs[0], place, dtype, mask)
            return []

        def one_by_one(number: Any = number, place: Any = place) -> list[Any]:
            # Faster than an instruction that gathers.
            found = [memory.load(indices, number + lane, kind) for lane in range(lanes)]
            where = [base + convert.cast(index, kind, "int64") for index in found]
            values = [memory.load(table, each, dtype) for each in where]
            for lane, value in enumerate(values):
                memory.store(value, frame.outputs[0], place + lane, dtype)
            return []

        if mask is None:
            outside = any_lane(compare("greater_equal", chosen, limit, unsigned=True))
            emit.either(outside, [], gathered, one_by_one)
        else:
            gathered()


def check(frame: host.Frame, chosen: Any, limit: Size, kind: str) -> None:
    """Reports a vector of indices, which are of dtype `kind`, of which one is out of range."""
    # As unsigned numbers the negative ones are the greatest.
    with emit.when(any_lane(compare("greater_equal", chosen, limit, unsigned=True))):
        worst = crosslane.across(chosen, partial(emit.maximum, unsigned=True))
        report(frame, worst, limit, kind)


def clamped(chosen: Any, limit: Size) -> Any:
    """The nearest index from 0 to `limit - 1`."""
    high = emit.like(chosen, limit) - 1
    return emit.maximum(select(compare("less", chosen, high), chosen, high), emit.like(chosen, 0))


def report(frame: host.Frame, value: Any, limit: Size, kind: str) -> None:
    """Writes the status word: an index of dtype `kind` out of range, which one, and the limit."""
    code = emit.index(out_of_range(kind))
    for place, word in enumerate((code, value, emit.as_index(limit))):
        memory.store(word, frame.status, place, "int64")


def _extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Slices before the axis, indices, and elements of a slice."""
    table, indices = (operand.shape for operand in spec.operands)
    axis = spec.attr("axis")
    return product(table[:axis]), product(indices), product(table[axis + 1 :])


KERNEL = Kernel("gather", "cpu", emit_gather, launch, memory.moves_only, moves=True, checks=True)
