"""What convolutions and pools say of their windows."""

from __future__ import annotations

from typing import Any

from heddle.graph import TensorValue
from heddle.pipelines.onnx.node import Node


def moves(node: Node, x: TensorValue, kernel: list[int]) -> dict[str, Any]:
    """Strides, dilations and padding as Heddle's ops take them.

    ONNX lists the padding before all axes and then that behind them.
    """
    rank = len(kernel)
    strides = node["strides"] or [1] * rank
    dilations = node["dilations"] or [1] * rank
    mode = node["auto_pad"] or "NOTSET"
    if mode == "NOTSET":
        pads = node["pads"] or [0] * (2 * rank)
        padding = [size for axis in range(rank) for size in (pads[axis], pads[axis + rank])]
    elif mode == "VALID":
        padding = [0] * (2 * rank)
    else:
        padding = _same(node, x, kernel, strides, dilations, upper=mode == "SAME_UPPER")
    return {
        "strides": tuple(strides),
        "padding": tuple(padding),
        "dilations": tuple(dilations),
    }


def _same(
    node: Node,
    x: TensorValue,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    upper: bool,
) -> list[int]:
    """As many windows as there are steps in the input; the odd zero is behind, or before."""
    padding = []
    for axis, (width, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        size, reach = x.shape[2 + axis].static, dilation * (width - 1) + 1
        if size is None:
            if stride != 1:
                node.refuse(f"wanted a known size along axis {2 + axis}, got {x.shape}")
            total = reach - 1
        else:
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        less, more = total // 2, total - total // 2
        padding += [less, more] if upper else [more, less]
    return padding


def rounded_up(node: Node, x: TensorValue, kernel: list[int], given: dict[str, Any]) -> list[int]:
    """How much more padding there is behind each axis where windows may hang over (`ceil_mode`)."""
    if not node["ceil_mode"]:
        return [0] * len(kernel)
    more = []
    for axis, width in enumerate(kernel):
        size, stride = x.shape[2 + axis].static, given["strides"][axis]
        if size is None:
            node.refuse(f"wanted a known size along axis {2 + axis} for ceil_mode, got {x.shape}")
        before, behind = given["padding"][2 * axis : 2 * axis + 2]
        reach = given["dilations"][axis] * (width - 1) + 1
        count = -(-(size + before + behind - reach) // stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1  # a window does not start behind the input
        more.append(max((count - 1) * stride + reach - size - before - behind, 0))
    return more
