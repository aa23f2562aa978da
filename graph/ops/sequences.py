"""Ops that run along an axis: counting and cumulative sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heddle.graph.bounds import bounds
from heddle.graph.dim import Dim, DimLike
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
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
    samples=(sample("", "", size=Dim(300)), sample("", "", size=Dim(1))),
    public=False,
)
def iota(start: Array, step: Array, *, size: Dim) -> Array:
    """`start + i * step` for i from 0 to `size - 1`; see `range`."""
    return start + np.arange(int(size)).astype(start.dtype) * step


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

    `stop` may be a dim: then start and step are ints, and step is positive.
    """
    if stop is None:
        start, stop = 0, start
    for name, number in (("start", start), ("step", step)):
        if not _is_finite(number):
            raise graph_error(f"range: {name}: wanted a finite number, got {number!r}")
    if step == 0:
        raise graph_error("range: step: wanted a number other than 0, got 0")
    size = _dim(start, stop, step) if isinstance(stop, (Dim, str)) else _count(start, stop, step)
    value: TensorValue = iota(
        constant(start, dtype, device), constant(step, dtype, device), size=size
    )
    return value


def _is_finite(number: Any) -> bool:
    if isinstance(number, float):
        return math.isfinite(number)
    return isinstance(number, int) and not isinstance(number, bool)


def _count(start: Any, stop: Any, step: Any) -> Dim:
    if not _is_finite(stop):
        raise graph_error(f"range: stop: wanted a finite number or a dim, got {stop!r}")
    return Dim(max(0, int(-((start - stop) // step))))


def _dim(start: Any, stop: Dim | str, step: Any) -> Dim:
    stop = Dim(stop)
    if not isinstance(start, int) or not isinstance(step, int) or step < 0:
        raise graph_error(
            f"range: wanted an int as start and a positive one as step below the dim {stop}, got "
            f"{start!r} and {step!r}"
        )
    symbols = current_graph().symbols
    if stop.names <= symbols.keys() and bounds(stop - start, symbols)[0] < 0:
        raise graph_error(f"range: wanted start <= stop for all sizes of {stop}, got {start}")
    return (stop - start + (step - 1)) // step
