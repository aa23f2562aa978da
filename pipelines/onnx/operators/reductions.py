"""Reductions of several axes at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from heddle.graph import DType, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.arithmetic import truncated
from heddle.pipelines.onnx.table import operator


def reduced(
    x: TensorValue, axes: Sequence[int], function: Callable[..., Any], keep: bool
) -> TensorValue:
    """`function` along one axis after another, the last one first."""
    for axis in sorted(axes, reverse=True):
        x = function(x, axis=axis)
    return x if keep else _squeezed(x, axes)


def _squeezed(x: TensorValue, axes: Sequence[int]) -> TensorValue:
    for axis in sorted(axes, reverse=True):
        x = ops.squeeze(x, axis)
    return x


def _axes(node: Node, x: TensorValue) -> list[int]:
    """The axes: an attribute, in newer opsets an input. Without them it is all, or none."""
    given = node["axes"] or node.ints(1, "the axes")
    if not given and node["noop_with_empty_axes"]:
        return []
    return node.axes(given or range(x.rank), x.rank)


def _reduction(
    name: str,
    function: Callable[..., Any],
    before: Callable[[TensorValue], Any] = lambda x: x,
    behind: Callable[[TensorValue], Any] | None = None,
) -> None:
    """Says that a node is `behind` of the reduction of `before` of its input.

    With a `behind` it is one of floats: integers are floats meanwhile.
    """

    def build(node: Node) -> TensorValue:
        x = node(0)
        numbers = x if behind is None else _as_floats(x)
        total = reduced(before(numbers), _axes(node, x), function, bool(node["keepdims"]))
        return total if behind is None else ops.cast(behind(total), x.dtype)

    operator(name)(build)


def _largest(x: TensorValue, axis: int) -> TensorValue:
    """That of none is the least number."""
    numbers = _as_numbers(x)
    if x.shape[axis] == 0:
        return ops.cast(_one(numbers, axis, _ends(numbers.dtype)[0]), x.dtype)
    return ops.cast(ops.max(numbers, axis=axis), x.dtype)


def _smallest(x: TensorValue, axis: int) -> TensorValue:
    """That of none is the greatest number."""
    numbers = _as_numbers(x)
    if x.shape[axis] == 0:
        return ops.cast(_one(numbers, axis, _ends(numbers.dtype)[1]), x.dtype)
    return ops.cast(ops.min(numbers, axis=axis), x.dtype)


def _ends(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number of a dtype."""
    return (-math.inf, math.inf) if dtype.is_float else dtype.range


def _one(x: TensorValue, axis: int, value: float) -> TensorValue:
    """A number in the place of each row along an axis."""
    shape = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
    return ops.broadcast_to(ops.constant(value, x.dtype), shape)


def _as_numbers(x: TensorValue) -> TensorValue:
    return ops.cast(x, DType.uint8) if x.dtype is DType.bool else x


def _as_floats(x: TensorValue) -> TensorValue:
    return ops.cast(x, DType.float64) if x.dtype.is_integer else x


_reduction("ReduceSum", ops.sum)
_reduction("ReduceMax", _largest)
_reduction("ReduceMin", _smallest)
_reduction("ReduceL1", ops.sum, ops.abs)
_reduction("ReduceL2", ops.sum, lambda x: x * x, ops.sqrt)
_reduction("ReduceSumSquare", ops.sum, lambda x: x * x)
_reduction("ReduceLogSum", ops.sum, behind=ops.log)


@operator("ReduceMean")
def mean(node: Node) -> TensorValue:
    """That of integers is their sum in 64 bits, divided once, towards zero."""
    x, keep = node(0), bool(node["keepdims"])
    axes = _axes(node, x)
    if x.dtype.is_float:
        return reduced(x, axes, ops.mean, keep)
    wide = DType.int64 if x.dtype.is_signed else DType.uint64
    count = ops.size(Shape([x.shape[axis] for axis in axes]).elements, wide)
    return ops.cast(truncated(reduced(ops.cast(x, wide), axes, ops.sum, keep), count), x.dtype)


@operator("ReduceProd")
def product(node: Node) -> TensorValue:
    """Of sizes that are known: there is no kernel that multiplies a row."""
    x = node(0)
    axes = _axes(node, x)
    for axis in axes:
        if x.shape[axis].static is None:
            node.refuse(f"wanted a known size along axis {axis} (give it by --dim), got {x.shape}")
    return reduced(x, axes, _product, bool(node["keepdims"]))


def _product(x: TensorValue, axis: int) -> TensorValue:
    """The halves multiplied, and their halves, until one is left; odd ones are left for the end."""
    if x.shape[axis] == 0:
        return _one(x, axis, 1)
    odd = []
    while (size := int(x.shape[axis])) > 1:
        half = size // 2
        first, second, rest = ops.split(x, [half, half, size % 2], axis)
        odd += [rest] * (size % 2)
        x = first * second
    return reduce(ops.mul, odd, x)


@operator("ReduceLogSumExp")
def log_sum_exp(node: Node) -> TensorValue:
    """`log(sum(exp(x)))`, less the largest before, so that nothing overflows."""
    x = _as_floats(node(0))
    axes = _axes(node, x)
    top = reduced(x, axes, _largest, keep=True)
    base = ops.where(ops.equal(ops.abs(top), float("inf")), 0.0, top)
    result = ops.log(reduced(ops.exp(x - base), axes, ops.sum, keep=True)) + base
    result = result if node["keepdims"] else _squeezed(result, axes)
    return ops.cast(result, node(0).dtype)
