"""Pools of windows, and of whole pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from heddle.graph import Dim, DType, Shape, TensorValue, ops
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
def max_pool(node: Node) -> list[TensorValue]:
    """The largest number in each window, and, where that is asked for, which of all it was."""
    x, kernel = node(0), node["kernel_shape"]
    given = moves(node, x, kernel)
    given = _padded(given, rounded_up(node, x, kernel, given))
    wide = x if x.dtype.is_float else ops.cast(x, DType.float32)  # exact: ONNX has 8 bits here
    result = ops.max_pool(wide, tuple(kernel), **given, layout="channels_first")
    results = [result if wide is x else ops.cast(result, x.dtype)]
    if len(node.outputs) > 1 and node.outputs[1]:
        counts = result.shape[2:]
        results.append(_places(wide, kernel, counts, given, bool(node["storage_order"])))
    return results


def _places(
    x: TensorValue,
    kernel: list[int],
    counts: Sequence[Dim],
    given: dict[str, Any],
    by_columns: bool,
) -> TensorValue:
    """The number, among all elements of x, of the first of the largest ones of each window.

    There are `counts` windows along each axis. `by_columns`: elements of a picture are counted with
    the first axis innermost.
    """
    strides, dilations, padding = (given[name] for name in ("strides", "dilations", "padding"))
    around = ops.pad(x, [0, 0, 0, 0, *padding], value=-math.inf)
    rank, sizes = len(kernel), x.shape[2:]
    taps = list(itertools.product(*map(range, kernel)))

    def of_each_window(tap: tuple[int, ...]) -> TensorValue:
        axes = zip(tap, dilations, counts, strides, strict=True)
        starts = [(place * apart, count, stride) for place, apart, count, stride in axes]
        moved = (..., *(slice(a, a + (n - 1) * step + 1, step) for a, n, step in starts))
        return around[moved]

    windows = list(map(of_each_window, taps))
    best = ops.squeeze(ops.argmax(ops.stack(windows, axis=-1), axis=-1), -1)
    images = Shape(x.shape[:2]).elements
    place = ops.reshape(ops.range(images), [*x.shape[:2], *[1] * rank])
    place = place * ops.size(Shape(sizes).elements)
    within = None
    for axis in range(rank)[:: -1 if by_columns else 1]:
        offsets = ops.constant(np.array([each[axis] * dilations[axis] for each in taps]))
        steps = ops.range(counts[axis]) * strides[axis] - padding[2 * axis]
        steps = ops.reshape(steps, [counts[axis], *[1] * (rank - 1 - axis)])
        # Padding is as large as elements of -inf: what lies there is the window's first element.
        here = ops.maximum(
            steps + ops.gather(offsets, best, axis=0), ops.mod(steps, dilations[axis])
        )
        within = here if within is None else within * ops.size(sizes[axis]) + here
    assert within is not None, "a picture has an axis"
    return place + within


@operator("MaxUnpool")
def max_unpool(node: Node) -> TensorValue:
    """The elements where `MaxPool` has found them, among zeros."""
    x, kernel = node(0), node["kernel_shape"]
    rank = len(kernel)
    strides, pads = node["strides"] or [1] * rank, node["pads"] or [0] * (2 * rank)
    sizes = [
        (size - 1) * stride + width - before - behind
        for size, stride, width, before, behind in zip(
            x.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True
        )
    ]
    shape = Shape([*x.shape[:2], *sizes])
    count = x.shape.elements
    zeros = ops.broadcast_to(ops.constant(0, x.dtype), [shape.elements])
    flat = ops.scatter(zeros, ops.reshape(node(1), [count]), ops.reshape(x, [count]))
    found = ops.reshape(flat, shape)
    if not node.has(2):
        return found
    behind = [0] * (2 * found.rank)
    for axis, size in enumerate(node.sizes(2, "the shape of the result")):
        more = (Dim(size) - shape[axis]).static
        if more is None or more < 0:
            node.refuse(f"wanted a shape of at least {shape}, got {size} along axis {axis}")
        behind[2 * axis + 1] = more
    return ops.pad(found, behind)


@operator("AveragePool")
def average_pool(node: Node) -> TensorValue:
    """The mean of each window, padding counted or not; what hangs over never counts."""
    return averaged(node, node(0))


def averaged(node: Node, x: TensorValue) -> TensorValue:
    """The mean of each window of x, as the attributes of `AveragePool` say."""
    kernel = node["kernel_shape"]
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
