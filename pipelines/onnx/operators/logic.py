"""Comparisons, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator


def _binary(name: str, function: Callable[..., Any]) -> None:
    operator(name)(lambda node: function(*node.tensors()))


_binary("Equal", ops.equal)
_binary("Greater", ops.greater)
_binary("GreaterOrEqual", ops.greater_equal)
_binary("Less", ops.less)
_binary("LessOrEqual", ops.less_equal)
_binary("And", ops.logical_and)
_binary("Or", ops.logical_or)
_binary("Xor", ops.logical_xor)
_binary("Not", ops.logical_not)
_binary("BitwiseAnd", ops.bitwise_and)
_binary("BitwiseOr", ops.bitwise_or)
_binary("BitwiseXor", ops.bitwise_xor)
_binary("BitwiseNot", ops.bitwise_not)
_binary("Where", ops.where)
_binary("IsNaN", ops.isnan)


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
