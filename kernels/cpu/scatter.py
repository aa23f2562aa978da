"""Rows put at the places along an axis that indices name, in the order of the indices.

The result is x already when the kernel starts (`Kernel.updates`). A task is a part of the places of
a run: it looks at all indices of the run, so that the order of updates is kept, and copies the rows
whose places it has. An index out of range is reported, and its row dropped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import convert, emit, host, memory, scattering, sizes
from heddle.kernels.cpu.gather import report
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

PARTS, LEAST = 64, 256
"""Parts of a run's places, at most; and the bytes of a row for each part: short rows are found,
by those who pass them by, no faster than they are copied."""

AHEAD = 4096
"""So many bytes of updates ahead the place of one is asked for: from 2 to 16 of them."""


def launch(spec: Spec) -> Launch:
    """One task for each part of each run."""
    outer, _, count, inner = scattering.extents(spec)
    work = product((outer, count, inner, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((fold("mul", outer, _parts(spec)), 1, 1), work)


def _parts(spec: Spec) -> Expr:
    return fold("max", 1, fold("min", PARTS, fold("floordiv", _row_bytes(spec), LEAST)))


def _row_bytes(spec: Spec) -> Expr:
    return fold("mul", scattering.extents(spec)[3], emit.ITEM_SIZE[spec.result.dtype])


def emit_scatter(spec: Spec, machine: Machine) -> None:
    """Emits the loop over runs."""
    frame = host.frame(spec, machine, checks=True)
    limit, parts = frame.size(scattering.extents(spec)[1]), frame.size(_parts(spec))
    for run in emit.loop(sizes.floordiv(frame.first, parts), sizes.ceildiv(frame.last, parts)):
        # Neighbouring parts are taken together.
        first = sizes.greatest(frame.first - run * parts, 0)
        last = sizes.least(frame.last - run * parts, parts)
        low, high = (sizes.floordiv(part * limit, parts) for part in (first, last))
        _run(frame, run, low, high)


def _run(frame: host.Frame, run: Any, low: Size, high: Size) -> None:
    """The updates of a run, in their order, for the places from `low` to `high`."""
    spec, indices = frame.spec, frame.inputs[1]
    _, limit, count, inner = frame.shape(scattering.extents(spec))
    kind = spec.operands[1].dtype
    end = run * count + count

    def wanted(number: Any) -> tuple[Any, Any, Any]:
        """An index, whether it is one of these places, and where its row is."""
        place = convert.cast(memory.load(indices, number, kind), kind, "int64")
        ours = compare("less", place - low, high - low, unsigned=True)
        return place, ours, (run * limit + place) * inner

    def other(place: Any) -> list[Any]:
        outside = compare("greater_equal", place, limit, unsigned=True)
        with emit.when(outside & compare("equal", low, 0)):  # Others see it, too.
            report(frame, place, limit, kind)
        return []

    row = sizes.greatest(frame.size(_row_bytes(spec)), 1)
    ahead = sizes.greatest(2, sizes.least(16, sizes.floordiv(AHEAD, row)))
    for number in emit.loop(run * count, end):
        place, ours, target = wanted(number)
        # A later update's place may be anywhere: no prefetcher finds it.
        _, is_next, later = wanted(sizes.least(number + ahead, end - 1))
        memory.prefetch(frame.outputs[0], select(is_next, later, target), spec.result.dtype)
        put = partial(_put, frame, number * inner, target)
        emit.either(ours, [], put, partial(other, place))


def _put(frame: host.Frame, source: Any, target: Any) -> list[Any]:
    """A row of updates, by where it and its place begin."""
    spec, result = frame.spec, frame.outputs[0]
    dtype, inner = scattering.moved(spec), frame.size(scattering.extents(spec)[3])
    lanes = host.lanes_for(frame.machine, [dtype])
    if isinstance(inner, int):
        lanes = min(lanes, 1 << max(inner, 1).bit_length() - 1)
    for column, mask in host.vectors(0, inner, lanes):
        new = memory.load(frame.inputs[2], source + column, dtype, lanes, mask)
        there = partial(memory.load, result, target + column, dtype, lanes, mask)
        value = scattering.combined(spec, there, new)
        memory.store(value, result, target + column, dtype, mask)
    return []


KERNEL = Kernel(
    "scatter", "cpu", emit_scatter, launch, scattering.unsupported, checks=True, updates=1
)
