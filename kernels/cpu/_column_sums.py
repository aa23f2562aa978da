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
    total = _accumulator(frame.spec)
    lanes = rows.lanes_for(frame.spec, frame.machine)
    nothing = emit.constant(emit.register_type(total), NOTHING, lanes)
    if frame.spec.attr(STAGE) == "parts":
        sums = _columns.Reduction(total, nothing, lambda a, b: a + b, lambda value, _: value)
        _columns.emit_columns(frame, sums)
    else:
        _Running(frame, total, nothing).emit()


class _Running:
    """The running sums, of `total`, of the tasks' columns; made at the function's start.

    They begin with `nothing`, those of a part with what the parts before it hold.
    """

    def __init__(self, frame: host.Frame, total: str, nothing: Any) -> None:
        spec, axis = frame.spec, frame.spec.attr("axis")
        shape, joins = frame.shape(spec.operands[0].shape), spec.attr(STAGE) == "joins"
        self._frame, self._total, self._nothing = frame, total, nothing
        self._lanes = lanes = emit.lanes_of(nothing)
        self._count, self._length = shape[axis], shape[-1]
        self._between = sizes.product(shape[axis + 1 : -1])
        self._parts = PARTS if joins else 1
        self._each = sizes.ceildiv(self._count, self._parts)
        self._source, self._finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
        self._finish.stream = self._finish.stream.aligned([self._length])
        self._running = host.byte_buffer(WIDTH * emit.ITEM_SIZE[total])
        self._held = frame.pointers(len(spec.buffers), 1)[0] if joins else None
        self._pitch = sizes.ceildiv(self._length, lanes) * lanes  # of totals of short rows

    def emit(self) -> None:
        """Emits the loop over tasks: groups of short rows, or strips of columns."""
        together = _together(self._frame.spec)
        if together:
            self._emit_groups(together)
        else:
            self._emit_strips()
        self._finish.stream.fence()

    def _emit_groups(self, together: int) -> None:
        most, first, last = WIDTH // max(1, self._pitch), self._frame.first, self._frame.last
        groups = sizes.ceildiv(self._between, together)
        for line, low, high in _columns.lines(first, last, groups):
            outer, part = sizes.split(line, (1, self._parts))
            end = sizes.least(high * together, self._between)
            for middle in emit.loop(low * together, end, most):
                across = middle, sizes.least(middle + most, end)
                self._down(outer, part, across, (0, self._length))

    def _emit_strips(self) -> None:
        first, last = self._frame.first, self._frame.last
        strips = sizes.ceildiv(self._length, STRIP)
        for line, low, high in _columns.lines(first, last, strips):
            outer, part, middle = sizes.split(line, (1, self._parts, self._between))
            end = sizes.least(high * STRIP, self._length)
            for start in emit.loop(low * STRIP, end, WIDTH):
                across, columns = (middle, middle + 1), (start, sizes.least(start + WIDTH, end))
                self._down(outer, part, across, columns)

    def _down(self, outer: Size, part: Size, across: _Range, columns: _Range) -> None:
        """All of a part, for the rows `across` it and a range of their columns."""
        first, last = part * self._each, sizes.least((part + 1) * self._each, self._count)
        for middle in emit.loop(*across):
            for column, mask, place in self._totals(middle, across, columns):
                value = self._before(outer, part, middle, column, mask)
                memory.store(value, self._running, place, self._total)
        # Four rows at once were no faster from the caches, and up to five times as slow past them.
        for j in emit.loop(first, last):
            for middle in emit.loop(*across):
                number = (outer * self._count + j) * self._between + middle
                x_at = self._source.row(number)
                out_at = self._finish.row(number, streams=True)
                for column, mask, place in self._totals(middle, across, columns):
                    total = memory.load(self._running, place, self._total, self._lanes)
                    total = total + x_at(column, mask)
                    out_at(column, mask, total)
                    memory.store(total, self._running, place, self._total)

    def _totals(
        self, middle: Size, across: _Range, columns: _Range
    ) -> Iterator[tuple[Any, Any, Any]]:
        """For each vector of a row: column, mask, and where its totals are."""
        start = (middle - across[0]) * self._pitch
        for column, mask in host.vectors(*columns, self._lanes):
            yield column, mask, start + column - columns[0]

    def _before(self, outer: Size, part: Size, middle: Size, column: Any, mask: Any) -> Any:
        """The totals of the parts before `part`."""
        if self._held is None:
            return self._nothing

        def add(number: Any, so_far: Any) -> list[Any]:
            place = ((outer * PARTS + number) * self._between + middle) * self._length + column
            return [so_far + memory.load(self._held, place, self._total, self._lanes, mask)]

        return emit.carry(0, part, 1, [self._nothing], add)[0]
