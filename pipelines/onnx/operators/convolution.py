"""Convolutions: channels come first in ONNX, and the compiler moves them where it helps."""

from __future__ import annotations

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
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
