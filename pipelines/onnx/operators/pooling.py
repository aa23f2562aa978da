"""Pools of windows, and of whole pictures."""

from __future__ import annotations

import math
from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.reductions import reduced
from heddle.pipelines.onnx.operators.windows import moves, rounded_up
from heddle.pipelines.onnx.table import operator


def _padded(given: dict[str, Any], more: list[int]) -> dict[str, Any]:
    """With more padding behind each axis."""
    padding = list(given["padding"])
    for axis, size in enumerate(more):
        padding[2 * axis + 1] += size
    return {**given, "padding": tuple(padding)}


@operator("MaxPool")
def max_pool(node: Node) -> TensorValue:
    """The largest number in each window; where it was is not known to Heddle's kernels."""
    if len(node.outputs) > 1 and node.outputs[1]:
        node.refuse("wanted one output, got the indices, too")
    x, kernel = node(0), node["kernel_shape"]
    given = moves(node, x, kernel)
    given = _padded(given, rounded_up(node, x, kernel, given))
    wide = x if x.dtype.is_float else ops.cast(x, DType.float32)  # exact: ONNX has 8 bits here
    result = ops.max_pool(wide, tuple(kernel), **given, layout="channels_first")
    return result if wide is x else ops.cast(result, x.dtype)


@operator("AveragePool")
def average_pool(node: Node) -> TensorValue:
    """The mean of each window, padding counted or not; what hangs over never counts."""
    x, kernel = node(0), node["kernel_shape"]
    given = moves(node, x, kernel)
    more = rounded_up(node, x, kernel, given)
    counts = bool(node["count_include_pad"])
    if counts and any(more):
        around = [0, 0, 0, 0, *given["padding"]]
        x = ops.pad(x, around)
        given = {**given, "padding": (0,) * (2 * len(kernel))}
        counts = False
    return ops.avg_pool(
        x, tuple(kernel), **_padded(given, more), counts_padding=counts, layout="channels_first"
    )


@operator("GlobalAveragePool")
def global_average_pool(node: Node) -> TensorValue:
    """The mean of each channel."""
    x = node(0)
    return reduced(x, list(range(2, x.rank)), ops.mean, keep=True)


@operator("GlobalMaxPool")
def global_max_pool(node: Node) -> TensorValue:
    """The largest number of each channel."""
    x = node(0)
    return reduced(x, list(range(2, x.rank)), ops.max, keep=True)


@operator("LpPool", "GlobalLpPool")
def lp_pool(node: Node) -> TensorValue:
    """The root of the sum of powers in each window."""
    x, p = node(0), node["p"]
    powers = ops.pow(ops.abs(x), float(p)) if p != 2 else x * x
    if node.kind == "GlobalLpPool":
        total = reduced(powers, list(range(2, x.rank)), ops.sum, keep=True)
    else:
        kernel = node["kernel_shape"]
        given = moves(node, x, kernel)
        given = _padded(given, rounded_up(node, x, kernel, given))
        means = ops.avg_pool(powers, tuple(kernel), **given, layout="channels_first")
        total = means * math.prod(kernel)
    return ops.sqrt(total) if p == 2 else ops.pow(total, 1 / p)
