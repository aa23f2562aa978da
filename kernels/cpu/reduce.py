"""sum, mean, max and min along one axis, which stays with size 1.

Along the last axis a task is one row, reduced in a few independent chains; along another one a
task is a strip of columns, with a running vector for each. Integers are added in int64.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import bodies, convert, emit, host, rows, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

STRIP = 128
"""Columns of a task where the axis is not the last."""

GROUP = 8
"""Running vectors at a time, neighbours, so that more than one line of a row is read."""


def launch(spec: Spec) -> Launch:
    """One task for each row, or for each strip of columns."""
    shape, axis = spec.operands[0].shape, spec.attr("axis")
    if axis == len(shape) - 1:
        return rows.launch(spec, 4)
    strips = fold("ceildiv", shape[-1], STRIP)
    tasks = product((*shape[:axis], *shape[axis + 1 : -1], strips))
    return Launch((tasks, 1, 1), rows.launch(spec, 4).work)


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine)
    dtype, kind = spec.operands[0].dtype, spec.attr("kind")
    total = _accumulator(kind, dtype)
    lanes = host.lanes_for(machine, [dtype, total], [spec.prologue, spec.epilogue])
    neutral = emit.constant(emit.register_type(total), _neutral(kind, total), lanes)
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

        value = rows.reduce(source.length, neutral, wide_at, combine)
        out_at(0, None, finished(value, source.length))

    def down_strip(task: Any) -> None:
        axis, shape = spec.attr("axis"), frame.shape(spec.operands[0].shape)
        count, between = shape[axis], sizes.product(shape[axis + 1 : -1])
        strips = sizes.ceildiv(source.length, STRIP)
        outer, middle, strip = sizes.split(task, (1, between, strips))
        out_at = rows.Finish(frame, lanes).row(outer * between + middle)
        start = strip * STRIP
        stop = sizes.least(start + STRIP, source.length)

        def down(column: Any, mask: Any, vectors: int) -> None:
            def further(j: Any, *values: Any) -> list[Any]:
                x_at = source.row((outer * count + j) * between + middle)
                found = [x_at(column + n * lanes, mask) for n in range(vectors)]
                return [
                    combine(value, convert.cast(x, dtype, total))
                    for value, x in zip(values, found, strict=True)
                ]

            for n, value in enumerate(emit.carry(0, count, 1, [neutral] * vectors, further)):
                out_at(column + n * lanes, mask, finished(value, count))

        single = stop - sizes.mod(stop - start, GROUP * lanes)
        for column in emit.loop(start, single, GROUP * lanes):
            down(column, None, GROUP)
        for column, mask in host.vectors(single, stop, lanes):
            down(column, mask, 1)

    last = spec.attr("axis") == len(spec.operands[0].shape) - 1
    for task in emit.loop(frame.first, frame.last):
        (along_row if last else down_strip)(task)


def _accumulator(kind: str, dtype: str) -> str:
    if emit.is_float(dtype):
        return "float64" if dtype == "float64" else "float32"
    return "int64" if kind == "sum" else dtype


def _neutral(kind: str, dtype: str) -> float:
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
