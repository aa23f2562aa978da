"""sum, mean, max and min along one axis, which stays with size 1.

Along the last axis a task is one row, reduced in a few independent chains; along another one it is
a strip of columns (`_columns`). Integers are added in int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, emit, host, memory, row_totals, rows, sections
from heddle.kernels.cpu import _columns
from heddle.kernels.registry import Kernel, Machine, Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row, or for each strip of columns."""
    if _along_rows(spec):
        return rows.launch(spec, 4)
    return _columns.launch(spec, _accumulator(spec.attr("kind"), spec.operands[0].dtype))


def split(spec: Spec) -> tuple[Portion, ...]:
    """See `_columns.split`; rows are reduced by one kernel."""
    return (Portion(spec),) if _along_rows(spec) else _columns.split(spec)


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine)
    dtype, kind = spec.operands[0].dtype, spec.attr("kind")
    total = _accumulator(kind, dtype)
    lanes = host.lanes_for(machine, [dtype, total], [spec.prologue, spec.epilogue])
    nothing = emit.constant(emit.register_type(total), neutral(kind, total), lanes)

    def combine(a: Any, b: Any) -> Any:
        if kind in ("sum", "mean"):
            return a + b
        return (bodies.maximum if kind == "max" else bodies.minimum)(total, a, b)

    def finished(value: Any, count: Size) -> Any:
        if kind == "mean":
            return value / rows.as_float(count, dtype)
        return value if emit.is_float(dtype) else convert.cast(value, total, dtype)

    if not _along_rows(spec):
        _columns.emit_columns(frame, _columns.Reduction(total, nothing, combine, finished))
        return
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, 1)

    def reduce_rows(numbers: Sequence[Any], asks: Sequence[memory.Ask] = rows.ONCE) -> None:
        x_ats = [source.row(number, asks) for number in numbers]

        def wide_at(column: Any, mask: Any) -> list[Any]:
            return [convert.cast(x_at(column, mask), dtype, total) for x_at in x_ats]

        values = row_totals.reduce_each(source.length, [nothing] * len(numbers), wide_at, combine)
        for number, value in zip(numbers, values, strict=True):
            finish.row(number)(0, None, finished(value, source.length))

    rest = sections.rows_together(frame, partial(reduce_rows, asks=()))
    for row in emit.loop(rest, frame.last):
        reduce_rows([row])


def _along_rows(spec: Spec) -> bool:
    return bool(spec.attr("axis") == len(spec.operands[0].shape) - 1)


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
    return bodies.unsupported_in(spec)


KERNEL = Kernel("reduce", "cpu", emit_reduce, launch, supports, split=split)
