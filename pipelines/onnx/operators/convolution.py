"""Convolutions: channels come first in ONNX, and the compiler moves them where it helps."""

from __future__ import annotations

from heddle.graph import Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along, backwards
from heddle.pipelines.onnx.operators.normalization import by_channel
from heddle.pipelines.onnx.operators.windows import moves
from heddle.pipelines.onnx.table import operator


@operator("Conv")
def conv(node: Node) -> TensorValue:
    """With a bias for each channel, if there is one."""
    x, weights = node(0), node(1)
    kernel = [int(dim) for dim in weights.shape[2:]]
    result = ops.conv(
        x, weights, **moves(node, x, kernel), groups=node["group"], layout="channels_first"
    )
    return result + by_channel(node(2), x.rank) if node.has(2) else result


@operator("ConvTranspose")
def conv_transpose(node: Node) -> TensorValue:
    """The convolution of x with zeros between its pixels by the weights turned around.

    Weights are `[channels, n / groups, *kernel]`.
    """
    x, weights, groups = node(0), node(1), node["group"]
    kernel = [int(dim) for dim in weights.shape[2:]]
    rank = len(kernel)
    strides = node["strides"] or [1] * rank
    dilations = node["dilations"] or [1] * rank
    reaches = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    starts, ends = _transposed_pads(node, x, strides, reaches)
    spread = _with_zeros(x, strides)
    padding = []
    for reach, start, end in zip(reaches, starts, ends, strict=True):
        padding += [reach - start, reach - end]
    cut = [slice(None), slice(None)]
    for axis, dim in enumerate(spread.shape[2:]):
        before, behind = padding[2 * axis : 2 * axis + 2]
        cut.append(slice(max(-before, 0), dim - max(-behind, 0)))
    if any(size < 0 for size in padding):
        spread = spread[tuple(cut)]
        padding = [max(size, 0) for size in padding]
    result = ops.conv(
        spread,
        _turned(weights, groups),
        dilations=tuple(dilations),
        padding=tuple(padding),
        groups=groups,
        layout="channels_first",
    )
    return result + by_channel(node(2), x.rank) if node.has(2) else result


def _transposed_pads(
    node: Node, x: TensorValue, strides: list[int], reaches: list[int]
) -> tuple[list[int], list[int]]:
    """What is cut off the full result at each axis' start and end; less than 0 adds zeros."""
    rank = len(strides)
    more = node["output_padding"] or [0] * rank
    mode = node["auto_pad"] or "NOTSET"
    wanted = node["output_shape"]
    if wanted is None and mode.startswith("SAME"):
        wanted = [int(dim) * stride for dim, stride in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        pads = node["pads"] if mode == "NOTSET" and node["pads"] else [0] * (2 * rank)
        return pads[:rank], [pads[rank + axis] - more[axis] for axis in range(rank)]
    starts, ends = [], []
    for axis, (dim, stride, reach) in enumerate(zip(x.shape[2:], strides, reaches, strict=True)):
        total = stride * (int(dim) - 1) + more[axis] + reach + 1 - wanted[axis - rank]
        less = max(total, 0) // 2
        start = less if mode == "SAME_UPPER" else max(total, 0) - less
        starts.append(start)
        ends.append(total - start - more[axis])
    return starts, ends


def _with_zeros(x: TensorValue, strides: list[int]) -> TensorValue:
    """`stride - 1` zeros between the elements of each spatial axis."""
    for axis, stride in enumerate(strides, 2):
        if stride == 1:
            continue
        dim = x.shape[axis]
        around = [0] * (2 * (x.rank + 1))
        around[2 * axis + 3] = stride - 1
        wide = ops.pad(ops.unsqueeze(x, axis + 1), around)
        flat = ops.reshape(wide, [*x.shape[:axis], dim * stride, *x.shape[axis + 1 :]])
        x = flat[along(axis, slice(0, dim * stride - (stride - 1)))]
    return x


def _turned(weights: TensorValue, groups: int) -> TensorValue:
    """`[channels, n / groups, *kernel]` as `[n, channels / groups, *kernel]`, turned around."""
    channels, each, *kernel = weights.shape
    for axis in range(2, weights.rank):
        weights = backwards(weights, axis)
    inner = int(channels) // groups
    split = ops.reshape(weights, [groups, inner, each, *kernel])
    swapped = ops.permute(split, [0, 2, 1, *range(3, split.rank)])
    return ops.reshape(swapped, Shape([groups * each, inner, *kernel]))
