"""Reductions of several axes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.arithmetic import truncated
from heddle.pipelines.onnx.operators.axes import along
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
    behind: Callable[[TensorValue], Any] = lambda x: x,
) -> None:
    """Says that a node is `behind` of the reduction of `before` of its input."""

    def build(node: Node) -> TensorValue:
        x = node(0)
        total = reduced(before(x), _axes(node, x), function, bool(node["keepdims"]))
        result: TensorValue = behind(total)
        return result

    operator(name)(build)


def _largest(x: TensorValue, axis: int) -> TensorValue:
    return ops.cast(ops.max(_as_numbers(x), axis=axis), x.dtype)


def _smallest(x: TensorValue, axis: int) -> TensorValue:
    return ops.cast(ops.min(_as_numbers(x), axis=axis), x.dtype)


def _as_numbers(x: TensorValue) -> TensorValue:
    return ops.cast(x, DType.uint8) if x.dtype is DType.bool else x


def _mean(x: TensorValue, axis: int) -> Any:
    if x.dtype.is_float:
        return ops.mean(x, axis=axis)
    return truncated(ops.sum(x, axis=axis), ops.size(x.shape[axis], x.dtype))


def _product(x: TensorValue, axis: int) -> TensorValue:
    """One element after another: there is no kernel that multiplies a row."""
    ones = [x[along(axis, slice(i, i + 1))] for i in range(int(x.shape[axis]))]
    empty = [dim if i != axis else 1 for i, dim in enumerate(x.shape)]
    one = ops.constant(1, x.dtype)
    return reduce(ops.mul, ones) if ones else ops.broadcast_to(one, empty)


_reduction("ReduceSum", ops.sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceMax", _largest)
_reduction("ReduceMin", _smallest)
_reduction("ReduceProd", _product)
_reduction("ReduceL1", ops.sum, ops.abs)
_reduction("ReduceL2", ops.sum, lambda x: x * x, ops.sqrt)
_reduction("ReduceSumSquare", ops.sum, lambda x: x * x)
_reduction("ReduceLogSum", ops.sum, behind=ops.log)


@operator("ReduceLogSumExp")
def log_sum_exp(node: Node) -> TensorValue:
    """`log(sum(exp(x)))`, less the largest before, so that nothing overflows."""
    x = node(0)
    axes = _axes(node, x)
    top = reduced(x, axes, ops.max, keep=True)
    base = ops.where(ops.equal(ops.abs(top), float("inf")), 0.0, top)
    result = ops.log(reduced(ops.exp(x - base), axes, ops.sum, keep=True)) + base
    return result if node["keepdims"] else _squeezed(result, axes)
