"""ONNX Runtime's operators of quantized tensors, as its quantizer and its optimizer write them.

A tensor of 8-bit integers has behind it a scale and a zero point, of one element each, and so has
the result. Source: onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

from heddle.graph import DType, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.activations import below_zero
from heddle.pipelines.onnx.operators.axes import channels_first, channels_last
from heddle.pipelines.onnx.operators.normalization import of_rows
from heddle.pipelines.onnx.operators.pooling import averaged
from heddle.pipelines.onnx.operators.quantization import (
    dequantized,
    dynamically_quantized,
    integer_product,
    requantized,
    saturated,
)
from heddle.pipelines.onnx.operators.reductions import reduced
from heddle.pipelines.onnx.operators.shaping import joined
from heddle.pipelines.onnx.table import operator

CONTRIB = "com.microsoft"


def scalar(node: Node, number: int) -> TensorValue:
    """The input `number`, of one element, without axes.

    Raises:
        GraphError: It has more elements, or is left out.
    """
    value = node(number)
    if value.shape.elements != 1:
        node.refuse(f"wanted one element of input {number}, got {value.shape}")
    return ops.reshape(value, ())


def _zero(node: Node, number: int) -> TensorValue:
    """The zero point that is the input `number`; where it is left out, 0 of the first's dtype."""
    return scalar(node, number) if node.has(number) else ops.constant(0, node(0).dtype)


def _real(node: Node, number: int) -> TensorValue:
    """The input `number` as float32."""
    return dequantized(node(number), scalar(node, number + 1), _zero(node, number + 2))


def _whole(node: Node, number: int, dtype: DType) -> TensorValue:
    """The input `number` less its zero point: a whole number of a wider `dtype`, without scale."""
    return ops.cast(node(number), dtype) - ops.cast(_zero(node, number + 2), dtype)


def _quantized(node: Node, x: TensorValue, number: int) -> TensorValue:
    """Floats as integers by the scale that is the input `number`."""
    zero = _zero(node, number + 1)
    return saturated(x / scalar(node, number), zero, zero.dtype)


def _unary(name: str, function: Callable[[Node, TensorValue], TensorValue]) -> None:
    """Says that a node is a function of floats, whose result is quantized."""
    operator(name, domain=CONTRIB)(lambda node: _quantized(node, function(node, _real(node, 0)), 3))


def _leaky_relu(node: Node, x: TensorValue) -> TensorValue:
    return below_zero(x, (0.01 if node["alpha"] is None else node["alpha"]) * x)


def _softmax(node: Node, x: TensorValue) -> TensorValue:
    [axis] = node.axes([-1 if node["axis"] is None else node["axis"]], x.rank)
    return of_rows(ops.softmax, x, axis, node["opset"])


_unary("QLinearSigmoid", lambda _, x: ops.sigmoid(x))
_unary("QLinearLeakyRelu", _leaky_relu)
_unary("QLinearSoftmax", _softmax)


@operator("QLinearAveragePool", domain=CONTRIB)
def average_pool(node: Node) -> TensorValue:
    """The mean of each window."""
    x = _whole(node, 0, DType.float32)
    if node["channels_last"]:
        means = channels_last(averaged(node, channels_first(x)))
    else:
        means = averaged(node, x)
    return requantized(means, scalar(node, 1), scalar(node, 3), _zero(node, 4))


@operator("QLinearGlobalAveragePool", domain=CONTRIB)
def global_average_pool(node: Node) -> TensorValue:
    """The mean of each channel, by an exact sum."""
    x = _whole(node, 0, DType.int32)
    axes = list(range(1, x.rank - 1) if node["channels_last"] else range(2, x.rank))
    total = reduced(x, axes, ops.sum, keep=True)
    count = ops.size(Shape([x.shape[axis] for axis in axes]).elements, DType.float32)
    return requantized(total, scalar(node, 1) / count, scalar(node, 3), _zero(node, 4))


@operator("QLinearAdd", domain=CONTRIB)
def add(node: Node) -> TensorValue:
    """The sum of two tensors, which broadcast."""
    total = (_real(node, 0) + _real(node, 3)) / scalar(node, 6)
    return _rounded_with_zero(total, _zero(node, 7))


@operator("QLinearMul", domain=CONTRIB)
def multiply(node: Node) -> TensorValue:
    """The product of two tensors, which broadcast: exact before it is scaled."""
    product = _whole(node, 0, DType.float32) * _whole(node, 3, DType.float32)
    factor = scalar(node, 1) * scalar(node, 4) / scalar(node, 6)
    return _rounded_with_zero(product * factor, _zero(node, 7))


def _rounded_with_zero(x: TensorValue, zero: TensorValue) -> TensorValue:
    """`round(x + zero point)`: of halves, other ones are even than in `round(x) + zero point`."""
    return saturated(x + ops.cast(zero, x.dtype), None, zero.dtype)


@operator("QLinearWhere", domain=CONTRIB)
def where(node: Node) -> TensorValue:
    """The elements of one tensor where a condition holds, elsewhere of another."""
    return _quantized(node, ops.where(node(0), _real(node, 1), _real(node, 4)), 7)


@operator("QLinearConcat", domain=CONTRIB)
def concat(node: Node) -> TensorValue:
    """One after another: inputs are the result's scale and zero point, and then the tensors'."""
    parts = [_quantized(node, _real(node, number), 0) for number in range(2, len(node.values), 3)]
    return joined(node, parts)


@operator("QGemm", domain=CONTRIB)
def gemm(node: Node) -> TensorValue:
    """`alpha * (a @ b + c)`, either side transposed; float32 where there is no scale for it.

    Inputs are a, scale, zero, b, scale, zero (one, or one for each column), c of int32 in units of
    the product, scale, zero.
    """
    a, b = node(0), node(3)
    a = a.T if node["transA"] else a
    b = b.T if node["transB"] else b
    total = integer_product(a, b, _zero(node, 2), node.optional(5))
    total = total + node(6) if node.has(6) else total
    scale = scalar(node, 1) * node(4)
    scale = scale if node["alpha"] is None else scale * node["alpha"]
    if not node.has(7):
        return ops.cast(total, DType.float32) * scale
    return requantized(total, scale, scalar(node, 7), _zero(node, 8))


@operator("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_to_float(node: Node) -> TensorValue:
    """The product of two quantized tensors as floats, and a bias.

    Inputs are a, b, their scales, their zero points and the bias; those of b are one, or one for
    each column.
    """
    a = node(0), scalar(node, 2), _zero(node, 4)
    return scaled_product(*a, node(1), node(3), node.optional(5), node.optional(6))


@operator("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_matmul(node: Node) -> TensorValue:
    """The product of floats, quantized by their range, and a quantized tensor; and a bias.

    Inputs are a, b, the scale and the zero point of b (one, or one for each column) and the bias.
    """
    x, scale, zero = dynamically_quantized(node(0))
    b = node(1), node(2), node.optional(3)
    return scaled_product(x, scale, zero, *b, node.optional(4))


def scaled_product(
    x: TensorValue,
    x_scale: TensorValue,
    x_zero: TensorValue | None,
    y: TensorValue,
    y_scale: TensorValue,
    y_zero: TensorValue | None,
    bias: TensorValue | None,
) -> TensorValue:
    """The product of quantized tensors, and a bias, in the dtype of the scales."""
    scale = ops.cast(x_scale, DType.float32) * ops.cast(y_scale, DType.float32)
    product = ops.cast(integer_product(x, y, x_zero, y_zero), DType.float32) * scale
    product = product if bias is None else product + ops.cast(bias, DType.float32)
    return ops.cast(product, x_scale.dtype)
