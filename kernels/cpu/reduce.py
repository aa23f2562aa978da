"""sum, mean, max and min along one axis, which stays with size 1.

Along the last axis a task is one row, reduced in a few independent chains. Along another one a task
is a strip of columns; neighbouring ones are worked on together, so that memory is read in long
pieces, with running totals in the first cache. Integers are added in int64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, emit, host, memory, rows, sizes
from heddle.kernels.emit import compare
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

STRIP = 128
"""Columns of a task where the axis is not the last."""

WIDTH = 32 * STRIP
"""Columns that are worked on together, at most. One row after another: those that are a power of
two apart would push each other out of the first cache."""

AHEAD = 2
"""So many rows below the one that is read, memory is asked for."""


def launch(spec: Spec) -> Launch:
    """One task for each row, or for each strip of columns."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    if axis == len(shape) - 1:
        return rows.launch(spec, 4)
    strips = fold("ceildiv", shape[-1], STRIP)
    tasks = product((*shape[:axis], *shape[axis + 1 : -1], strips))
    return Launch((tasks, WIDTH // STRIP, 1), rows.launch(spec, 4).work)


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine)
    dtype, kind = spec.operands[0].dtype, spec.attr("kind")
    total = _accumulator(kind, dtype)
    lanes = host.lanes_for(machine, [dtype, total], [spec.prologue, spec.epilogue])
    nothing = emit.constant(emit.register_type(total), neutral(kind, total), lanes)
    source = rows.Source(frame, lanes)

    def combine(a: Any, b: Any) -> Any:
        if kind in ("sum", "mean"):
            return a + b
        return (bodies.maximum if kind == "max" else bodies.minimum)(total, a, b)

    def finished(value: Any, count: Size) -> Any:
        if kind == "mean":
            return value / rows.as_float(count, dtype)
        return value if emit.is_float(dtype) else convert.cast(value, total, dtype)

    def along_row(row: Any) -> None:
        x_at, out_at = source.row(row, ahead=True), rows.Finish(frame, 1).row(row)

        def wide_at(column: Any, mask: Any) -> Any:
            return convert.cast(x_at(column, mask), dtype, total)

        value = rows.reduce(source.length, nothing, wide_at, combine)
        out_at(0, None, finished(value, source.length))

    def down(outer: Size, middle: Size, start: Size, stop: Size) -> None:
        columns = partial(host.vectors, start, stop, lanes)
        for place in emit.loop(0, stop - start, lanes):
            memory.store(nothing, running, place, total)

        for j in emit.loop(0, count):
            number = (outer * count + j) * between + middle
            x_at = source.row(number, ahead=True, distance=AHEAD * between * source.length)
            for column, mask in columns():
                value = memory.load(running, column - start, total, lanes)
                value = combine(value, convert.cast(x_at(column, mask), dtype, total))
                memory.store(value, running, column - start, total)
        out_at = rows.Finish(frame, lanes).row(outer * between + middle)
        for column, mask in columns():
            value = memory.load(running, column - start, total, lanes)
            out_at(column, mask, finished(value, count))

    axis, shape = spec.attr("axis"), frame.shape(spec.operands[0].shape)
    if axis == len(shape) - 1:
        for row in emit.loop(frame.first, frame.last):
            along_row(row)
        return
    count, between = shape[axis], sizes.product(shape[axis + 1 : -1])
    strips = sizes.ceildiv(source.length, STRIP)
    running = host.byte_buffer(WIDTH * emit.ITEM_SIZE[total])
    for line, low, high in _lines(frame.first, frame.last, strips):
        outer, middle = sizes.split(line, (1, between))
        end = sizes.least(high * STRIP, source.length)
        for start in emit.loop(low * STRIP, end, WIDTH):
            down(outer, middle, start, sizes.least(start + WIDTH, end))


def _lines(first: Any, last: Any, strips: Size) -> Iterator[tuple[Any, Any, Any]]:
    """Emits the Python body of a `for line, low, high in` this: a line's strips among the tasks."""
    with emit.when(compare("less", first, last)):  # else there may be no strips
        for line in emit.loop(sizes.floordiv(first, strips), sizes.ceildiv(last, strips)):
            before = line * strips
            low = sizes.greatest(first - before, 0)
            yield line, low, sizes.least(last - before, strips)


def _accumulator(kind: str, dtype: str) -> str:
    if emit.is_float(dtype):
        return "float64" if dtype == "float64" else "float32"
    return "int64" if kind == "sum" else dtype


def neutral(kind: str, dtype: str) -> float:
    """What changes nothing: 0, or the dtype's least or greatest value."""
    if kind in ("sum", "mean"):
        return 0
    if emit.is_float(dtype):
        return -math.inf if kind == "max" else math.inf
    bits = 8 * emit.ITEM_SIZE[dtype]
    low, high = (0, 2**bits) if emit.is_unsigned(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return low if kind == "max" else high - 1


def supports(spec: Spec) -> str | None:
    """Numbers; the mean of floats alone."""
    dtype, kind = spec.operands[0].dtype, spec.attr("kind")
    if dtype == "bool" or (kind == "mean" and not emit.is_float(dtype)):
        return f"no {kind} of {dtype}"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("reduce", "cpu", emit_reduce, launch, supports)
