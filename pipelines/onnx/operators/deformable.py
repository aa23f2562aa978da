"""Convolutions whose windows are read at places that the model computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from heddle.graph import TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import channels_first
from heddle.pipelines.onnx.operators.normalization import by_channel
from heddle.pipelines.onnx.operators.sampling import sampled
from heddle.pipelines.onnx.operators.windows import moves
from heddle.pipelines.onnx.table import operator


@operator("DeformConv")
def deform_conv(node: Node) -> TensorValue:
    """Linear samples around each element of a window, times a mask, times the weights.

    x is `[batch, channels, *sizes]`, weights `[n, channels / groups, *kernel]`, offsets
    `[batch, parts * taps * axes, *windows]`, a mask `[batch, parts * taps, *windows]`, where each
    of the parts of the channels has its own offsets, and a tap is an element of the kernel
    (arXiv:1703.06211, arXiv:1811.11168).
    """
    x, weights, groups = node(0), node(1), node["group"]
    taps = math.prod(int(dim) for dim in weights.shape[2:])
    read = ops.cast(_samples(node), x.dtype)  # [batch, *windows, taps, channels]
    around, channels = read.shape[:-2], int(x.shape[1])
    split = ops.reshape(read, [*around, taps, groups, channels // groups])
    columns = ops.reshape(ops.transpose(split, -2, -3), [*around, taps * channels])
    flat = ops.transpose(ops.flatten(weights, 2), 1, 2)  # [n, taps, channels / groups]
    flat = ops.reshape(ops.flatten(flat, 1), [flat.shape[0], -1, *[1] * (x.rank - 2)])
    found = ops.conv(columns, flat, groups=groups)
    found = channels_first(found)
    return found + by_channel(node(3), x.rank) if node.has(3) else found


def _samples(node: Node) -> TensorValue:
    """What is read for each tap of each window, `[batch, *windows, taps, channels]`."""
    x, offsets, parts = node(0), node(2), node["offset_group"]
    kernel = [int(dim) for dim in node(1).shape[2:]]
    rank, taps = len(kernel), math.prod(kernel)
    batch, channels, *sizes = x.shape
    windows = offsets.shape[2:]
    given = moves(node, x, kernel)
    if int(channels) % parts or offsets.shape[1] != parts * taps * rank:
        node.refuse(
            f"wanted channels that offset_group divides, and {parts * taps * rank} numbers of "
            f"each window as offsets, got {channels} channels by {parts} and {offsets.shape}"
        )
    _check_windows(node, x, kernel, given)
    inner = [*range(3, 3 + rank), 2, 1]  # of [batch, parts, taps, *windows]
    moved = ops.reshape(at_least_float32(offsets), [batch, parts, taps, rank, *windows])
    picture = ops.reshape(ops.range(batch * parts), [batch, *[1] * (rank + 1), parts])
    places = []
    for axis, within in enumerate(np.indices(kernel).reshape(rank, taps, 1)):
        start, reach = given["padding"][2 * axis], given["dilations"][axis]
        steps = ops.range(windows[axis]) * given["strides"][axis] - start
        steps = ops.reshape(steps, [windows[axis], *[1] * (rank - axis + 1)])
        regular = ops.cast(steps + ops.constant(within * reach), moved.dtype)
        places.append(ops.permute(moved[:, :, :, axis], [0, *inner]) + regular)
    pictures = ops.reshape(x, [batch * parts, int(channels) // parts, *sizes])
    read = sampled(pictures, picture, places, zeros=True)
    if node.has(4):
        mask = ops.reshape(node(4), [batch, parts, taps, *windows])
        read = read * ops.cast(ops.unsqueeze(ops.permute(mask, [0, *inner]), -1), read.dtype)
    return ops.reshape(read, [batch, *windows, taps, channels])


def _check_windows(node: Node, x: TensorValue, kernel: list[int], given: dict[str, Any]) -> None:
    """Refuses offsets for more or fewer windows than there are, where that can be told."""
    for axis, (size, width) in enumerate(zip(x.shape[2:], kernel, strict=True)):
        before, behind = given["padding"][2 * axis : 2 * axis + 2]
        reach = given["dilations"][axis] * (width - 1) + 1
        count = (size + (before + behind - reach)) // given["strides"][axis] + 1
        windows = node(2).shape[2 + axis]
        if (count - windows).static not in (None, 0):
            node.refuse(f"wanted offsets for {count} windows along axis {axis + 2}, got {windows}")
