"""Ops that run along an axis: counting and cumulative sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heddle.graph.bounds import never_negative
from heddle.graph.dim import Dim, DimLike
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.ops.shaping import reshape
from heddle.graph.ops.source import constant
from heddle.graph.types import DeviceRef, Shape
from heddle.graph.value import TensorValue, current_graph
from heddle.runtime.errors import GraphError


def _counted(types: Types, attrs: Attrs) -> Shape:
    """`[size]`, for scalars."""
    for name, type in zip(("start", "step"), types, strict=True):
        if type.rank:
            raise GraphError(f"{name}: wanted a scalar, got {type.shape}")
    return Shape((attrs["size"],))


@row(
    dtype=rules.numeric,
    shape=_counted,
    samples=(
        sample("", "", size=Dim(300), first=Dim(0)),
        sample("", "", size=Dim(1), first=Dim(7)),
    ),
    public=False,
)
def iota(start: Array, step: Array, *, size: Dim, first: Dim) -> Array:
    """`start + first + i * step` for i from 0 to `size - 1`; see `range`."""
    begin = start + np.asarray(int(first)).astype(start.dtype)
    return begin + np.arange(int(size)).astype(start.dtype) * step


def _along(types: Types, attrs: Attrs) -> Shape:
    """The operand's."""
    rules.check_axis(attrs["axis"], types[0].rank)
    return types[0].shape


@row(
    dtype=rules.numeric,
    shape=_along,
    canonical=rules.positive_axis,
    samples=(sample("k m n", axis=2), sample("k m n", axis=0), sample("n", axis=0)),
    cost=costs.each_operand(1),
)
def cumsum(x: Array, *, axis: int = -1) -> Array:
    """The sum of each element along `axis` and all before it; integers wrap."""
    return np.cumsum(x, axis=axis, dtype=x.dtype)


def range(
    start: DimLike | float,
    stop: DimLike | float | None = None,
    step: float = 1,
    dtype: DType = DType.int64,
    device: DeviceRef | None = None,
) -> TensorValue:
    """`start`, `start + step`, ... below `stop` (`range(stop)` starts at 0), as NumPy's arange.

    Both ends may be dims: then they are ints or dims, and the step is a positive int.
    """
    if stop is None:
        start, stop = 0, start
    if not _is_finite(step) or step == 0:
        raise graph_error(f"range: step: wanted a finite number other than 0, got {step!r}")
    first = Dim(0)
    if isinstance(start, (Dim, str)) or isinstance(stop, (Dim, str)):
        count = _below(start, stop, step)
        start, first = (0, Dim(start)) if isinstance(start, (Dim, str)) else (start, first)
    else:
        count = _count(start, stop, step)
    begin, by = constant(start, dtype, device), constant(step, dtype, device)
    value: TensorValue = iota(begin, by, size=count, first=first)
    return value


def size(dim: DimLike, dtype: DType = DType.int64, device: DeviceRef | None = None) -> TensorValue:
    """A dim as a scalar: how many elements it has when the model runs."""
    zero, one = constant(0, dtype, device), constant(1, dtype, device)
    value: TensorValue = reshape(iota(zero, one, size=Dim(1), first=Dim(dim)), shape=())
    return value


def _is_finite(number: Any) -> bool:
    if isinstance(number, float):
        return math.isfinite(number)
    return isinstance(number, int) and not isinstance(number, bool)


def _count(start: Any, stop: Any, step: Any) -> Dim:
    for name, number in (("start", start), ("stop", stop)):
        if not _is_finite(number):
            raise graph_error(f"range: {name}: wanted a finite number or a dim, got {number!r}")
    if all(isinstance(number, int) for number in (start, stop, step)):
        return Dim(max(0, -((start - stop) // step)))
    count = (stop - start) / step
    if not math.isfinite(count):
        raise graph_error(f"range: wanted a finite number of elements, got {count}")
    return Dim(max(0, math.ceil(count)))


def _below(start: Any, stop: Any, step: Any) -> Dim:
    """How many numbers there are where an end is a dim."""
    for name, end in (("start", start), ("stop", stop)):
        if not isinstance(end, (int, Dim, str)) or isinstance(end, bool):
            raise graph_error(f"range: {name}: wanted an int or a dim beside a dim, got {end!r}")
    if not isinstance(step, int) or step < 0:
        raise graph_error(f"range: step: wanted a positive int beside a dim, got {step!r}")
    length: Dim = Dim(0) + stop - start
    symbols = current_graph().symbols
    if length.names <= symbols.keys() and not never_negative(length, symbols):
        raise graph_error(
            f"range: wanted start <= stop for all sizes in range, got {start} and {stop}"
        )
    return (length + (step - 1)) // step
