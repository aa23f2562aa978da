"""Reductions along an axis that is not the last.

A task is a strip of columns; neighbouring ones are worked on together, so that memory is read in
long pieces, in a few places at once, with running totals in the first cache. Few long columns of an
array that no cache holds are reduced in two steps: totals of `PARTS` runs of rows, which lie in
memory as one piece each, go to the workspace, and a second kernel combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import convert, emit, host, memory, rows, sections, sizes
from heddle.kernels.emit import compare
from heddle.kernels.registry import Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

STRIP = 128
"""Columns of a task."""

WIDTH = 32 * STRIP
"""Columns that are worked on together, at most: their totals stay in the first cache."""

PARTS = 16
"""Runs of rows that are reduced apart: so many on every machine, for sums have one order."""

LARGE, LONG, FEW = 4 << 20, 16 * PARTS, 128
"""Two steps are for arrays of so many bytes, of so many rows, and fewer tasks than this else."""

STAGE = "stage"
"""The attribute of specs that share calls: `whole`, or first `parts`, then what `joins` them."""


def split(spec: Spec) -> tuple[Portion, ...]:
    """Those of calls that are reduced at once, and of others both steps."""
    return in_steps(spec, _strips(spec), FEW)


def in_steps(spec: Spec, tasks: Expr, few: int) -> tuple[Portion, ...]:
    """One step of so many `tasks`, and two for large arrays where these are less than `few`."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    nbytes = product((*shape, emit.ITEM_SIZE[spec.operands[0].dtype]))
    fewer = fold("sub", 1, fold("min", 1, fold("floordiv", tasks, few)))
    reached = (fold("floordiv", nbytes, LARGE), fold("floordiv", shape[axis], LONG))
    factors = (fewer, *(fold("min", 1, size) for size in reached))
    both = 0 if 0 in factors else product(factors)
    found = (("whole", fold("sub", 1, both)), ("parts", both), ("joins", both))
    return tuple(
        Portion(spec.with_attr(STAGE, stage), condition)
        for stage, condition in found
        if condition != 0
    )


def launch(spec: Spec, total: str) -> Launch:
    """One task for each strip of columns, of each part; totals are of dtype `total`."""
    stage, tasks, together = spec.attr(STAGE), _strips(spec), WIDTH // STRIP
    held = workspace(spec, total)
    if stage == "joins":
        return Launch((tasks, together, 1), held, workspace=held)
    work = rows.launch(spec, 4).work
    if stage == "parts":
        return Launch((fold("mul", tasks, PARTS), together, 1), work, workspace=held)
    return Launch((tasks, together, 1), work)


def workspace(spec: Spec, total: str) -> Expr:
    """The bytes of the totals of all parts, of dtype `total`."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    return product((*shape[:axis], PARTS, *shape[axis + 1 :], emit.ITEM_SIZE[total]))


def _strips(spec: Spec) -> Expr:
    """The strips of all lines of columns."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    return product((*shape[:axis], *shape[axis + 1 : -1], fold("ceildiv", shape[-1], STRIP)))


@dataclass(frozen=True)
class Reduction:
    """How numbers are combined: in `dtype`, from vectors of what is `neutral` on.

    `finished(value, count)` is the result of so many.
    """

    dtype: str
    neutral: Any
    combine: Callable[[Any, Any], Any]
    finished: Callable[[Any, Size], Any]


def emit_columns(frame: host.Frame, reduction: Reduction) -> None:
    """Emits the loop over tasks."""
    spec, lanes, stage = frame.spec, emit.lanes_of(reduction.neutral), frame.spec.attr(STAGE)
    axis, shape = spec.attr("axis"), frame.shape(spec.operands[0].shape)
    count, between, length = shape[axis], sizes.product(shape[axis + 1 : -1]), shape[-1]
    source, parts = rows.Source(frame, lanes), PARTS if stage == "parts" else 1
    strips, each = sizes.ceildiv(length, STRIP), sizes.ceildiv(count, parts)
    running = host.byte_buffer(WIDTH * emit.ITEM_SIZE[reduction.dtype])
    held = frame.pointers(len(spec.buffers), 1)[0] if stage in ("parts", "joins") else None

    def held_at(row: Size, column: Any, mask: Any) -> Any:
        return memory.load(held, row * length + column, reduction.dtype, lanes, mask)

    def wide_at(x_at: rows.At, column: Any, mask: Any) -> Any:
        return convert.cast(x_at(column, mask), spec.operands[0].dtype, reduction.dtype)

    def row_of(outer: Size, j: Size, middle: Size) -> rows.At:
        """Row `j` of the axis."""
        if stage == "joins":
            return partial(held_at, (outer * PARTS + j) * between + middle)
        number = (outer * count + j) * between + middle
        return partial(wide_at, source.row(number, ()))

    def written_at(outer: Size, part: Size, middle: Size) -> Callable[[Any, Any, Any], None]:
        """Where totals go."""
        if stage == "parts":
            row = (outer * PARTS + part) * between + middle

            def put(column: Any, mask: Any, value: Any) -> None:
                memory.store(value, held, row * length + column, reduction.dtype, mask)

            return put
        out_at = rows.Finish(frame, lanes).row(outer * between + middle)
        return lambda column, mask, value: out_at(column, mask, reduction.finished(value, count))

    def down(line: Size, start: Size, stop: Size) -> None:
        outer, part, middle = sizes.split(line, (1, parts, between))
        for place in emit.loop(0, stop - start, lanes):
            memory.store(reduction.neutral, running, place, reduction.dtype)
        first, last = (0, PARTS) if stage == "joins" else (part * each, (part + 1) * each)
        last = sizes.least(last, count)
        columns = partial(host.vectors, start, stop, lanes)

        def add(numbers: Sequence[Any]) -> None:
            x_ats = [row_of(outer, j, middle) for j in numbers]
            for column, mask in columns():
                value = memory.load(running, column - start, reduction.dtype, lanes)
                for x_at in x_ats:
                    value = reduction.combine(value, x_at(column, mask))
                memory.store(value, running, column - start, reduction.dtype)

        for j in emit.loop(sections.in_places(first, last, add), last):
            add([j])
        put = written_at(outer, part, middle)
        for column, mask in columns():
            put(column, mask, memory.load(running, column - start, reduction.dtype, lanes))

    for line, low, high in lines(frame.first, frame.last, strips):
        end = sizes.least(high * STRIP, length)
        for start in emit.loop(low * STRIP, end, WIDTH):
            down(line, start, sizes.least(start + WIDTH, end))


def lines(first: Any, last: Any, strips: Size) -> Iterator[tuple[Any, Any, Any]]:
    """Emits the Python body of a `for line, low, high in` this: a line's strips among the tasks."""
    with emit.when(compare("less", first, last)):  # else there may be no strips
        for line in emit.loop(sizes.floordiv(first, strips), sizes.ceildiv(last, strips)):
            before = line * strips
            low = sizes.greatest(first - before, 0)
            yield line, low, sizes.least(last - before, strips)
