"""Norms and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.graph import DType, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import channels_first, channels_last
from heddle.pipelines.onnx.operators.reductions import reduced
from heddle.pipelines.onnx.table import operator

SKIP_EPSILON = 1e-12
"""That of norms of a sum, where the node says none; that of others is 1e-5."""


@operator("Softmax", "LogSoftmax")
def softmax(node: Node) -> TensorValue:
    """Along an axis; before opset 13 along all from it on, as one."""
    function = ops.softmax if node.kind == "Softmax" else ops.logsoftmax
    return of_rows(function, node(0), node.axis(node(0).rank), node.version)


def of_rows(function: Callable[..., Any], x: TensorValue, axis: int, version: int) -> TensorValue:
    """A function of rows along an axis, or, as of a version before 13, along all from it on."""
    if version >= 13 or axis == x.rank - 1:
        result: TensorValue = function(x, axis=axis)
        return result
    rows = Shape(x.shape[:axis]).elements, Shape(x.shape[axis:]).elements
    return ops.reshape(function(ops.reshape(x, rows), axis=-1), x.shape)


@operator("LayerNormalization")
def layer_norm(node: Node) -> list[TensorValue | None]:
    """Of the axes from `axis` on; mean and 1 / deviation where they are asked for."""
    x = node(0)
    return _layer_norm(node, x, node(1), node.optional(2), node["epsilon"])


def _layer_norm(
    node: Node, x: TensorValue, gamma: TensorValue, beta: TensorValue | None, epsilon: float
) -> list[TensorValue | None]:
    axis, rows = _rows(node, x)
    beta = ops.constant(0, x.dtype) if beta is None else beta
    gamma, beta = (_of_row(value, x, axis) for value in (gamma, beta))
    result = ops.reshape(ops.layer_norm(rows, gamma, beta, epsilon=epsilon), x.shape)
    if not any(node.outputs[1:3]):
        return [result]
    wide = ops.cast(rows, DType.float32)
    mean = ops.mean(wide, axis=-1)
    centered = wide - mean
    deviation = ops.rsqrt(ops.mean(centered * centered, axis=-1) + epsilon)
    shape = [*x.shape[:axis], *[1] * (x.rank - axis)]
    return [result, ops.reshape(mean, shape), ops.reshape(deviation, shape)]


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node) -> TensorValue:
    """Of the axes from `axis` on; the second name is ONNX Runtime's."""
    return _rms_norm(node, node(0), node(1))


def _rms_norm(
    node: Node, x: TensorValue, gamma: TensorValue, otherwise: float = 1e-5
) -> TensorValue:
    axis, rows = _rows(node, x)
    epsilon = otherwise if node["epsilon"] is None else node["epsilon"]
    result = ops.rms_norm(rows, _of_row(gamma, x, axis), epsilon=epsilon)
    return ops.reshape(result, x.shape)


def _rows(node: Node, x: TensorValue) -> tuple[int, TensorValue]:
    """The first axis that is normalized, by default the last one, and x with all from it as one."""
    axis = node.axis(x.rank) if node["axis"] is not None else x.rank - 1
    return axis, ops.reshape(x, [*x.shape[:axis], Shape(x.shape[axis:]).elements])


def _of_row(value: TensorValue, x: TensorValue, axis: int) -> TensorValue:
    """A parameter of the axes of x from `axis` on, as these are in a row."""
    tail = Shape(x.shape[axis:])
    return ops.reshape(ops.broadcast_to(value, tail), [tail.elements])


@operator("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(node: Node) -> list[TensorValue | None]:
    """The layer norm of x + skip + bias: inputs x, skip, gamma, beta, bias; output 3 is the sum."""
    x = node(0) + node(1)
    if node.has(4):
        x = x + node(4)
    epsilon = SKIP_EPSILON if node["epsilon"] is None else node["epsilon"]
    [result, *_] = _layer_norm(node, x, node(2), node.optional(3), epsilon)
    return [result, None, None, x]


@operator("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_rms_norm(node: Node) -> list[TensorValue | None]:
    """The RMS norm of x + skip + bias: inputs x, skip, gamma, bias; output 3 is the sum."""
    x = node(0) + node(1)
    if node.has(3):
        x = x + node(3)
    return [_rms_norm(node, x, node(2), SKIP_EPSILON), None, None, x]


def by_channel(value: TensorValue, rank: int) -> TensorValue:
    """`[channels]` as it broadcasts with `[batch, channels, ...]`."""
    return ops.reshape(value, [value.shape[0], *[1] * (rank - 2)])


@operator("BatchNormalization")
def batch_norm(node: Node) -> TensorValue:
    """By means and variances that are known: a factor and a term for each channel."""
    if node["training_mode"] or node["spatial"] == 0:
        node.refuse("wanted a model that runs, with one mean for a channel")
    x, gamma, beta, mean, variance = node.tensors()
    factor = gamma * ops.rsqrt(variance + node["epsilon"])
    term = beta - mean * factor
    result = x * by_channel(ops.cast(factor, x.dtype), x.rank)
    return result + by_channel(ops.cast(term, x.dtype), x.rank)


@operator("InstanceNormalization")
def instance_norm(node: Node) -> TensorValue:
    """Each channel of each picture by itself."""
    x, gamma, beta = node.tensors()
    return _group_norm(node, x, int(x.shape[1]), gamma, beta)


@operator("GroupNormalization")
def group_norm(node: Node) -> TensorValue:
    """Groups of channels; before opset 21 a factor for each group."""
    x, gamma, beta = node.tensors()
    groups = node["num_groups"]
    if node.version < 21:
        each = int(x.shape[1]) // groups
        gamma, beta = (ops.repeat_interleave(value, each) for value in (gamma, beta))
    return _group_norm(node, x, groups, gamma, beta)


@operator("GroupNorm", domain="com.microsoft")
def group_norm_last(node: Node) -> TensorValue:
    """Of pictures with channels last, with silu behind it where `activation` is 1."""
    x, gamma, beta = node.tensors()
    if node["channels_last"] == 0:
        result = _group_norm(node, x, node["groups"], gamma, beta)
    else:
        result = _group_norm(node, channels_first(x), node["groups"], gamma, beta)
        result = channels_last(result)
    return ops.silu(result) if node["activation"] else result


def _group_norm(
    node: Node, x: TensorValue, groups: int, gamma: TensorValue, beta: TensorValue
) -> TensorValue:
    epsilon = 1e-5 if node["epsilon"] is None else node["epsilon"]
    gamma, beta = (ops.cast(value, x.dtype) for value in (gamma, beta))
    return ops.group_norm(x, gamma, beta, groups, epsilon)


@operator("LpNormalization")
def lp_norm(node: Node) -> TensorValue:
    """Over the sum of magnitudes, or the root of that of squares; 0 where that is 0."""
    x = node(0)
    axis = node.axis(x.rank)
    squares = node["p"] != 1
    size = ops.sqrt(ops.sum(x * x, axis=axis)) if squares else ops.sum(ops.abs(x), axis=axis)
    return ops.where(ops.equal(size, 0), 0.0, x / size)


@operator("LRN")
def local_response(node: Node) -> TensorValue:
    """Over the squares of the channels around each (Krizhevsky et al., 2012)."""
    x, size = node(0), node["size"]
    around: list[Any] = [0] * (2 * x.rank)
    around[2:4] = (size - 1) // 2, size // 2
    squares = ops.pad(x * x, around)
    total = None
    for place in range(size):
        one = squares[:, place : place + int(x.shape[1])]
        total = one if total is None else total + one
    base = node["bias"] + (node["alpha"] / size) * total
    if node["beta"] == 0.75:
        root = ops.sqrt(base)
        return x / (root * ops.sqrt(root))
    return x / ops.pow(base, node["beta"])


@operator("MeanVarianceNormalization")
def mean_variance(node: Node) -> TensorValue:
    """Less the mean, over the deviation, along some axes."""
    x = node(0)
    axes = node.axes(node["axes"] or [0, 2, 3], x.rank)
    centered = x - reduced(x, axes, ops.mean, keep=True)
    deviation = ops.sqrt(reduced(centered * centered, axes, ops.mean, keep=True))
    return centered / (deviation + 1e-9)
