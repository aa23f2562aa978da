"""Ops that reduce one axis; the result keeps it with size 1, as in MAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from heddle.graph.ops import costs, rules
from heddle.graph.ops.arguments import rank_of
from heddle.graph.ops.declare import row
from heddle.graph.ops.elementwise import (
    at_least_float32,
    cast,
    exp,
    log,
    maximum,
    minimum,
    sub,
    where,
)
from heddle.graph.ops.logic import equal
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape
from heddle.graph.value import TensorValue


def _along_some(types: Types, attrs: Attrs) -> Shape:
    """The operand's; the axis has at least one element."""
    rules.kept_of_some(types, attrs)
    return types[0].shape


_reduction = partial(
    row,
    canonical=rules.positive_axis,
    samples=(sample("k m n", axis=0), sample("k m n", axis=2), sample("n", axis=0)),
    cost=costs.each_operand(1),
)


@_reduction(dtype=rules.numeric, shape=rules.kept)
def sum(x: Array, *, axis: int = -1) -> Array:
    """The sum along `axis`; integers wrap."""
    return np.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


@_reduction(dtype=rules.floating, shape=rules.kept_of_some)
def mean(x: Array, *, axis: int = -1) -> Array:
    """The mean along `axis`; NaN where a symbolic axis is empty at run time."""
    return np.mean(x, axis=axis, keepdims=True, dtype=x.dtype)


@_reduction(dtype=rules.numeric, shape=rules.kept_of_some, name="max")
def reduce_max(x: Array, *, axis: int = -1) -> Array:
    """The largest value along `axis`; NaN where there is one.

    Where a symbolic axis is empty at run time: -inf, or the least integer.
    """
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return np.max(x, axis=axis, keepdims=True, initial=least)


@_reduction(dtype=rules.numeric, shape=rules.kept_of_some, name="min")
def reduce_min(x: Array, *, axis: int = -1) -> Array:
    """The smallest value along `axis`; NaN where there is one.

    Where a symbolic axis is empty at run time: inf, or the greatest integer.
    """
    greatest = np.iinfo(x.dtype).max if x.dtype.kind in "iu" else np.inf
    return np.min(x, axis=axis, keepdims=True, initial=greatest)


@_reduction(dtype=rules.floating, shape=_along_some, cost=costs.each_operand(costs.EXP + 4))
def softmax(x: Array, *, axis: int = -1) -> Array:
    """`exp(x)` over its sum along `axis`; zeros where all is -inf."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    shares = np.exp(x - np.where(top == -np.inf, 0, top))
    total = np.sum(shares, axis=axis, keepdims=True)
    return shares / np.where(total == 0, 1, total)


def max(x: Any, y: Any = None, axis: int = -1) -> TensorValue:
    """With `y` the larger of the two, element by element; else the largest along `axis`."""
    return reduce_max(x, axis=axis) if y is None else maximum(x, y)


def min(x: Any, y: Any = None, axis: int = -1) -> TensorValue:
    """With `y` the smaller of the two, element by element; else the smallest along `axis`."""
    return reduce_min(x, axis=axis) if y is None else minimum(x, y)


def logsoftmax(x: TensorValue, axis: int = -1) -> TensorValue:
    """The logarithm of `softmax`, as exact where a share is small; of 16 bits by way of float32."""
    rank_of("logsoftmax", x)
    wide = at_least_float32(x)
    top = reduce_max(wide, axis=axis)
    less = sub(wide, where(equal(top, float("-inf")), 0.0, top))
    total = sum(exp(less), axis=axis)  # at least 1, but where all is -inf
    logs = sub(less, log(maximum(total, 1.0)))
    result: TensorValue = logs if wide is x else cast(logs, dtype=x.dtype)
    return result
