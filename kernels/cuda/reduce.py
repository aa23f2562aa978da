"""Sum, mean, max and min over one axis.

The last axis is reduced by the threads of a warp or block together; along another axis each thread
adds up its own vector of neighbouring results, so that accesses stay contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from heddle.kernels import bodies, convert, emit, sizes
from heddle.kernels.cuda import _frame, _rows
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the reduction that fits the axis."""
    frame = _frame.frame(spec, machine)
    if _is_last(spec):
        _emit_rows(frame, _Fold(frame))
    else:
        _emit_columns(frame, _Fold(frame))


class _Fold:
    """How elements are combined, and in which dtype."""

    def __init__(self, frame: _frame.Frame) -> None:
        spec = frame.spec
        self.kind = spec.attr("kind")
        self._source, self._target = spec.operands[0].dtype, spec.result.dtype
        self.dtype = _accumulator(self._source, self.kind)
        self.element = emit.register_type(self.dtype)
        self._count = frame.size(spec.operands[0].shape[spec.attr("axis")])

    @property
    def identity(self) -> float:
        if self.kind in ("sum", "mean"):
            return 0.0
        lowest, highest = _ends(self.dtype)
        return lowest if self.kind == "max" else highest

    def widen(self, value: Any) -> Any:
        """An element in the dtype that is accumulated."""
        return convert.cast(value, self._source, self.dtype)

    def combine(self, a: Any, b: Any) -> Any:
        if self.kind in ("sum", "mean"):
            return a + b
        unsigned = emit.is_unsigned(self.dtype)
        best = (emit.maximum if self.kind == "max" else emit.minimum)(a, b, unsigned)
        if not emit.is_float(self.dtype):
            return best
        return emit.select(emit.compare("not_equal", a, a), a, best)

    def finish(self, total: Any) -> Any:
        """The result for a total, in the result's dtype."""
        if self.kind == "mean":
            count = _rows.as_float(self._count, self.element)
            total = total / emit.splat(count, emit.lanes_of(total))
        return convert.cast(total, self.dtype, self._target)


def _emit_rows(frame: _frame.Frame, fold_: _Fold) -> None:
    x, write = frame.reader(0), frame.writer()
    shape = _row_shape(frame.spec)
    rows = _rows.Rows(frame, shape, fold_.element)

    def body(row: Any, lanes: int) -> None:
        start = row * rows.length
        values = rows.read(lanes, lambda c: fold_.widen(x(start + c, lanes)))
        total = values.reduce(fold_.identity, fold_.combine)
        with emit.when(emit.compare("equal", rows.member, 0)):
            write(fold_.finish(total), row)

    rows.each([x.inputs], body)


def _emit_columns(frame: _frame.Frame, fold_: _Fold) -> None:
    x, write = frame.reader(0), frame.writer()
    _, count, inner = (frame.size(n) for n in _around(frame.spec))
    total = frame.size(product(frame.spec.result.shape))

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            outer, column = sizes.floordiv(position, inner), sizes.mod(position, inner)
            start = outer * (inner * count) + column
            first = emit.constant(fold_.element, fold_.identity, lanes)

            def add(k: Any, so_far: Any, start: Any = start) -> list[Any]:
                return [fold_.combine(so_far, fold_.widen(x(start + k * inner, lanes)))]

            (result,) = emit.carry(0, count, 1, [first], add)
            write(fold_.finish(result), position)

    _frame.in_vectors(frame, [x.inputs, write.inputs], [inner], body)


def _is_last(spec: Spec) -> bool:
    return _around(spec)[2] == 1


def _around(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """The sizes before, of and after the axis."""
    return _rows.around(spec.operands[0].shape, spec.attr("axis"))


def _row_shape(spec: Spec) -> Sequence[Expr]:
    outer, count, _ = _around(spec)
    return outer, count


def _accumulator(dtype: str, kind: str) -> str:
    if kind in ("max", "min"):
        return "uint8" if dtype == "bool" else dtype  # No register shuffles a single bit.
    if emit.is_float(dtype):
        return "float64" if dtype == "float64" else "float32"
    return "uint64" if emit.is_unsigned(dtype) else "int64"


def _ends(dtype: str) -> tuple[float, float]:
    if emit.is_float(dtype):
        return -math.inf, math.inf
    bits = 8 * emit.ITEM_SIZE[dtype]
    if emit.is_unsigned(dtype):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def launch(spec: Spec) -> Launch:
    """A group of threads for each row, or a thread for each vector of results."""
    grid = _rows.grid(_row_shape(spec)) if _is_last(spec) else _frame.sweep_grid(spec.result.shape)
    work = fold("mul", product(spec.operands[0].shape), 4)
    return Launch(grid, work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Every dtype and body; a mean of floating dtypes alone."""
    if spec.attr("kind") == "mean" and not emit.is_float(spec.operands[0].dtype):
        return f"mean of {spec.operands[0].dtype}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel("reduce", "cuda", emit_reduce, launch, supports)
