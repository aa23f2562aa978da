"""Comparisons, and what is made of them."""

from __future__ import annotations

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import direct, operator

direct("Equal", ops.equal)
direct("Greater", ops.greater)
direct("GreaterOrEqual", ops.greater_equal)
direct("Less", ops.less)
direct("LessOrEqual", ops.less_equal)
direct("And", ops.logical_and)
direct("Or", ops.logical_or)
direct("Xor", ops.logical_xor)
direct("Not", ops.logical_not)
direct("BitwiseAnd", ops.bitwise_and)
direct("BitwiseOr", ops.bitwise_or)
direct("BitwiseXor", ops.bitwise_xor)
direct("BitwiseNot", ops.bitwise_not)
direct("Where", ops.where)
direct("IsNaN", ops.isnan)


@operator("BitShift")
def bit_shift(node: Node) -> TensorValue:
    """The bits moved up or down."""
    return (ops.left_shift if node["direction"] == "LEFT" else ops.right_shift)(*node.tensors())


@operator("IsInf")
def is_infinite(node: Node) -> TensorValue:
    """Whether an element is infinite, of the signs that are asked for."""
    x = node(0)
    signs = [
        ops.equal(x, sign * float("inf"))
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if node[name]
    ]
    if not signs:
        return ops.broadcast_to(ops.constant(False), x.shape)
    return signs[0] if len(signs) == 1 else ops.logical_or(*signs)
