"""Functions that stand behind a layer, element by element."""

from __future__ import annotations

from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator


@operator("Relu")
def relu(node: Node) -> TensorValue:
    """`max(x, 0)`."""
    x = node(0)
    return ops.relu(x) if x.dtype.is_float else ops.maximum(x, 0)


@operator("Sigmoid")
def sigmoid(node: Node) -> TensorValue:
    """`1 / (1 + exp(-x))`."""
    return ops.sigmoid(node(0))


@operator("Tanh")
def tanh(node: Node) -> TensorValue:
    """The hyperbolic tangent."""
    return ops.tanh(node(0))


@operator("Gelu")
def gelu(node: Node) -> TensorValue:
    """By erf, or its approximation by tanh."""
    return ops.gelu(node(0), approximate=node["approximate"])


@operator("Gelu", domain="com.microsoft")
def gelu_by_erf(node: Node) -> TensorValue:
    """By erf."""
    return ops.gelu(node(0))


@operator("FastGelu", domain="com.microsoft")
def fast_gelu(node: Node) -> TensorValue:
    """The approximation by tanh, of x and a bias."""
    x = node(0) + node(1) if node.has(1) else node(0)
    return ops.gelu(x, approximate="tanh")


@operator("BiasGelu", domain="com.microsoft")
def bias_gelu(node: Node) -> TensorValue:
    """GELU of x and a bias."""
    return ops.gelu(node(0) + node(1))


@operator("QuickGelu", domain="com.microsoft")
def quick_gelu(node: Node) -> TensorValue:
    """`x * sigmoid(alpha * x)`."""
    return _swish(node(0), 1.702 if node["alpha"] is None else node["alpha"])


@operator("Swish")
def swish(node: Node) -> TensorValue:
    """`x * sigmoid(alpha * x)`."""
    return _swish(node(0), node["alpha"])


def _swish(x: TensorValue, alpha: float) -> TensorValue:
    return ops.silu(x) if alpha == 1 else x * ops.sigmoid(alpha * x)


@operator("LeakyRelu")
def leaky_relu(node: Node) -> TensorValue:
    """`alpha * x` below zero."""
    return below_zero(node(0), node["alpha"] * node(0))


@operator("PRelu")
def prelu(node: Node) -> TensorValue:
    """`slope * x` below zero, by a slope for each channel or the like."""
    return below_zero(node(0), node(1) * node(0))


@operator("ThresholdedRelu")
def thresholded_relu(node: Node) -> TensorValue:
    """`x` above alpha, else zero."""
    return ops.where(node(0) > node["alpha"], node(0), 0.0)


@operator("Elu")
def elu(node: Node) -> TensorValue:
    """`alpha * (exp(x) - 1)` below zero."""
    return below_zero(node(0), node["alpha"] * _expm1_of_negative(node(0)))


@operator("Celu")
def celu(node: Node) -> TensorValue:
    """`alpha * (exp(x / alpha) - 1)` below zero."""
    alpha = node["alpha"]
    return below_zero(node(0), alpha * _expm1_of_negative(node(0) / alpha))


@operator("Selu")
def selu(node: Node) -> TensorValue:
    """`gamma * elu(x)` (Klambauer et al., arXiv:1706.02515)."""
    low = node["alpha"] * _expm1_of_negative(node(0))
    return ops.mul(node["gamma"], below_zero(node(0), low))


@operator("HardSigmoid")
def hard_sigmoid(node: Node) -> TensorValue:
    """`alpha * x + beta` between 0 and 1."""
    return ops.clip(node["alpha"] * node(0) + node["beta"], 0.0, 1.0)


@operator("HardSwish")
def hard_swish(node: Node) -> TensorValue:
    """`x * clip(x / 6 + 1 / 2, 0, 1)`."""
    return node(0) * ops.clip(node(0) / 6 + 0.5, 0.0, 1.0)


@operator("Softplus")
def softplus(node: Node) -> TensorValue:
    """`log(1 + exp(x))`."""
    return ops.softplus(node(0))


@operator("Mish")
def mish(node: Node) -> TensorValue:
    """`x * tanh(softplus(x))`."""
    return node(0) * ops.tanh(ops.softplus(node(0)))


@operator("Softsign")
def softsign(node: Node) -> TensorValue:
    """`x / (1 + |x|)`."""
    return node(0) / (1 + ops.abs(node(0)))


@operator("Shrink")
def shrink(node: Node) -> TensorValue:
    """`x` nearer to zero by `bias`, zero within `lambd` of it."""
    x, bias, lambd = node(0), node["bias"], node["lambd"]
    wide = x if x.dtype.is_float else ops.cast(x, DType.float64)
    near = ops.where(wide > lambd, wide - bias, 0.0)
    return ops.cast(ops.where(wide < -lambd, wide + bias, near), x.dtype)


@operator("Dropout")
def dropout(node: Node) -> list[TensorValue]:
    """As it is: nothing is dropped when a model runs."""
    x = node(0)
    if node.has(2) and node.number(2, "training_mode"):
        node.refuse("wanted a model that runs, got one that trains")
    if len(node.outputs) < 2:
        return [x]
    dtype = DType.bool if node.version >= 10 else x.dtype
    return [x, ops.broadcast_to(ops.cast(ops.constant(True), dtype), x.shape)]


def below_zero(x: TensorValue, low: Any) -> TensorValue:
    """`low` where x is below zero."""
    return ops.where(x < 0, low, x)


def _expm1_of_negative(x: TensorValue) -> TensorValue:
    """`exp(x) - 1` of what is below zero, which overflows nowhere."""
    return ops.expm1(ops.minimum(x, 0.0))
