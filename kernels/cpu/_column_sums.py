"""The sums of each element and all before it, along an axis that is not the last.

A task is a strip of columns, or as many short rows of columns as fill one; neighbouring ones are
worked on together, one step along the axis after the other, with running totals in the first cache.
Few long columns of an array that no cache holds are added up in two steps: `_columns` leaves totals
of `PARTS` runs in the workspace, and each run goes on from the totals of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heddle.kernels import emit, host, memory, rows, sizes
from heddle.kernels.cpu import _columns
from heddle.kernels.cpu._columns import PARTS, STAGE, STRIP, WIDTH
from heddle.kernels.registry import Portion
from heddle.kernels.running_sums import NOTHING
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_Range = tuple[Size, Size]

FEW = 4
"""Two steps are for fewer tasks than this else: they read all twice, which so many cores repay."""


def split(spec: Spec) -> tuple[Portion, ...]:
    """Those of calls that are added up at once, and of others both steps."""
    return _columns.in_steps(spec, _tasks(spec), FEW)


def launch(spec: Spec) -> Launch:
    """One task for each strip, of each part."""
    stage = spec.attr(STAGE)
    if stage == "parts":
        return _columns.launch(spec, _accumulator(spec))
    tasks, held = _tasks(spec), _columns.workspace(spec, _accumulator(spec))
    if stage == "joins":
        tasks = fold("mul", tasks, PARTS)
    work = rows.launch(spec, 4).work
    return Launch((tasks, WIDTH // STRIP, 1), work, workspace=held if stage == "joins" else 0)


def _tasks(spec: Spec) -> Expr:
    """The strips of all rows of columns, or the groups of short rows."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    between, together = product(shape[axis + 1 : -1]), _together(spec) or 1
    across = (fold("ceildiv", between, together), fold("ceildiv", shape[-1], STRIP))
    return product((*shape[:axis], *across))


def _together(spec: Spec) -> int | None:
    """The rows of columns that one task has; None where they are not known to be short."""
    length = spec.operands[0].shape[-1]
    return STRIP // max(1, length) or None if isinstance(length, int) else None


def _accumulator(spec: Spec) -> str:
    dtype = spec.operands[0].dtype
    return "float32" if dtype in emit.NARROW else dtype


def emit_columns(frame: host.Frame) -> None:
    """Emits the loop over tasks."""
    spec, total = frame.spec, _accumulator(frame.spec)
    stage, axis, shape = spec.attr(STAGE), spec.attr("axis"), frame.shape(spec.operands[0].shape)
    lanes = rows.lanes_for(spec, frame.machine)
    nothing = emit.constant(emit.register_type(total), NOTHING, lanes)
    if stage == "parts":
        sums = _columns.Reduction(total, nothing, lambda a, b: a + b, lambda value, _: value)
        _columns.emit_columns(frame, sums)
        return
    count, between, length = shape[axis], sizes.product(shape[axis + 1 : -1]), shape[-1]
    parts = PARTS if stage == "joins" else 1
    each = sizes.ceildiv(count, parts)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    finish.stream = finish.stream.aligned([length])
    running = host.byte_buffer(WIDTH * emit.ITEM_SIZE[total])
    held = frame.pointers(len(spec.buffers), 1)[0] if stage == "joins" else None
    pitch = sizes.ceildiv(length, lanes) * lanes  # of totals of short rows

    def before(outer: Size, part: Size, middle: Size, column: Any, mask: Any) -> Any:
        """The totals of the parts before `part`."""

        def add(number: Any, so_far: Any) -> list[Any]:
            row = (outer * PARTS + number) * between + middle
            return [so_far + memory.load(held, row * length + column, total, lanes, mask)]

        return emit.carry(0, part, 1, [nothing], add)[0] if held is not None else nothing

    def down(outer: Size, part: Size, across: _Range, columns: _Range) -> None:
        """All of a part, for the rows `across` it and a range of their columns."""
        first, last = part * each, sizes.least((part + 1) * each, count)

        def totals(middle: Size) -> Iterator[tuple[Any, Any, Any]]:
            """For each vector of the row: column, mask, and where its totals are."""
            start = (middle - across[0]) * pitch
            for column, mask in host.vectors(*columns, lanes):
                yield column, mask, start + column - columns[0]

        for middle in emit.loop(*across):
            for column, mask, place in totals(middle):
                value = before(outer, part, middle, column, mask)
                memory.store(value, running, place, total)
        # Four rows at once were no faster from the caches, and up to five times as slow past them.
        for j in emit.loop(first, last):
            for middle in emit.loop(*across):
                number = (outer * count + j) * between + middle
                x_at, out_at = source.row(number), finish.row(number, streams=True)
                for column, mask, place in totals(middle):
                    value = memory.load(running, place, total, lanes) + x_at(column, mask)
                    out_at(column, mask, value)
                    memory.store(value, running, place, total)

    together = _together(spec)
    if together:
        most = WIDTH // max(1, pitch)
        for line, low, high in _columns.lines(
            frame.first, frame.last, sizes.ceildiv(between, together)
        ):
            outer, part = sizes.split(line, (1, parts))
            end = sizes.least(high * together, between)
            for middle in emit.loop(low * together, end, most):
                down(outer, part, (middle, sizes.least(middle + most, end)), (0, length))
    else:
        for line, low, high in _columns.lines(
            frame.first, frame.last, sizes.ceildiv(length, STRIP)
        ):
            outer, part, middle = sizes.split(line, (1, parts, between))
            end = sizes.least(high * STRIP, length)
            for start in emit.loop(low * STRIP, end, WIDTH):
                down(outer, part, (middle, middle + 1), (start, sizes.least(start + WIDTH, end)))
    finish.stream.fence()
