"""Quantized tensors: integers of 8 or 16 bits with scales and zero points."""

from __future__ import annotations

import math
from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along, channels_first, channels_last
from heddle.pipelines.onnx.operators.normalization import by_channel
from heddle.pipelines.onnx.operators.windows import moves
from heddle.pipelines.onnx.table import operator


def _along(node: Node, x: TensorValue, value: TensorValue, axis: int) -> TensorValue:
    """A scale or a zero point as it broadcasts with x: one, or one for each place on an axis."""
    if value.rank == 0 or value.shape.elements == 1:
        return ops.reshape(value, ())
    if node["block_size"]:
        each = ops.repeat_interleave(value, node["block_size"], axis=axis)
        return each[along(axis, slice(0, x.shape[axis]))]  # the last block may be shorter
    shape: list[Any] = [1] * x.rank
    shape[axis] = value.shape[0]
    return ops.reshape(value, shape)


def _scales(node: Node) -> tuple[TensorValue, TensorValue | None]:
    """The scale and the zero point as they broadcast with the first input."""
    x = node(0)
    axis = node.axis(x.rank) if node["axis"] is not None and x.rank > 1 else 0
    zero = _along(node, x, node(2), axis) if node.has(2) else None
    return _along(node, x, node(1), axis), zero


def dequantized(
    x: TensorValue, scale: TensorValue, zero: TensorValue | None, dtype: DType | None = None
) -> TensorValue:
    """`(x - zero point) * scale`, in a dtype; None: that of the scale."""
    factor = at_least_float32(scale)  # float16 ends below 2**16
    whole = ops.cast(x, factor.dtype)
    result = (whole if zero is None else whole - ops.cast(zero, factor.dtype)) * factor
    return ops.cast(result, scale.dtype if dtype is None else dtype)


def saturated(x: TensorValue, zero: TensorValue | None, dtype: DType) -> TensorValue:
    """`round(x) + zero point`, within the dtype's range; halves are rounded to what is even."""
    rounded = at_least_float32(ops.round(x))  # float16 ends below 2**16
    if zero is not None:
        rounded = rounded + ops.cast(zero, rounded.dtype)
    low, high = dtype.range
    return ops.cast(ops.clip(rounded, float(low), float(high)), dtype)


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain="com.microsoft")
def dequantize(node: Node) -> TensorValue:
    """`(x - zero point) * scale`."""
    dtype = node.dtype("output_dtype") if node["output_dtype"] else None
    return dequantized(node(0), *_scales(node), dtype)


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain="com.microsoft")
def quantize(node: Node) -> TensorValue:
    """`round(x / scale) + zero point`, within the dtype's range."""
    x = node(0)
    scale, zero = _scales(node)
    given = node["output_dtype"]
    dtype = node(2).dtype if node.has(2) else node.dtype("output_dtype") if given else DType.uint8
    if not x.dtype.is_float:
        x = ops.cast(x, scale.dtype)
    if dtype.is_float8:
        return ops.saturating_cast(x / scale, dtype)
    return saturated(x / scale, zero, dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> list[TensorValue]:
    """To uint8 by the range of x, which holds 0: the integers, the scale and the zero point."""
    return dynamically_quantized(node(0))


def dynamically_quantized(x: TensorValue) -> list[TensorValue]:
    """Floats as uint8, their scale and their zero point.

    Of zeros alone the scale is 1 / 255, as ONNX's reference has it; its text would divide by 0.
    """
    flat = ops.reshape(x, (x.shape.elements,))
    low = ops.minimum(ops.squeeze(ops.min(flat), 0), 0.0)
    high = ops.maximum(ops.squeeze(ops.max(flat), 0), 0.0)
    scale = ops.where(ops.equal(low, high), 1.0, high - low) / 255
    zero = saturated(-low / scale, None, DType.uint8)
    return [saturated(x / scale, zero, DType.uint8), scale, zero]


@operator("MatMulInteger")
def matmul_integer(node: Node) -> TensorValue:
    """The exact product of 8-bit integers less their zero points, as int32."""
    return integer_product(node(0), node(1), node.optional(2), node.optional(3))


def integer_product(
    x: TensorValue, y: TensorValue, x_zero: TensorValue | None, y_zero: TensorValue | None
) -> TensorValue:
    """The product of 8-bit integers less their zero points, as int32.

    By integers where y is signed; zero points become sums of rows and columns. There is one, or one
    for each row of x, or for each column of y.
    """
    wide = DType.int32
    if y.dtype is DType.uint8:
        # y - 128 is signed, and so is its zero point less 128.
        y = ops.cast(ops.cast(y, wide) - 128, DType.int8)
        shift = 128
    else:
        shift = 0
    result = ops.integer_matmul(x, y)
    k = ops.size(x.shape[-1], wide)
    of_y: Any = None
    if y_zero is not None:
        of_y = ops.cast(y_zero, wide) - shift
    elif shift:
        of_y = ops.constant(-shift, wide)
    if of_y is not None:
        of_y = ops.reshape(of_y, (1, -1)) if of_y.rank == 1 else of_y
        rows = ops.sum(ops.cast(x, wide), axis=-1)
        result = result - rows * of_y
    if x_zero is not None:
        of_x = _by_row(ops.cast(x_zero, wide))
        columns = ops.sum(ops.cast(y, wide), axis=-2)
        result = result - of_x * columns
        if of_y is not None:
            result = result + of_x * of_y * k
    return result


@operator("QLinearMatMul")
def quantized_matmul(node: Node) -> TensorValue:
    """The product of quantized tensors, quantized: a, scale, zero, b, scale, zero, scale, zero."""
    product = integer_product(node(0), node(3), node(2), node(5))
    scale = ops.cast(_by_row(node(1)), DType.float32) * ops.cast(node(4), DType.float32)
    return requantized(product, scale, node(6), node(7))


def _by_row(value: TensorValue) -> TensorValue:
    """One number, or one for each row, as it broadcasts with a matrix."""
    return ops.reshape(value, (-1, 1)) if value.rank == 1 else value


def requantized(
    x: TensorValue, scale: TensorValue, new_scale: TensorValue, zero: TensorValue
) -> TensorValue:
    """Numbers in units of `scale` as integers of 8 bits in units of `new_scale`, by one factor."""
    factor = scale / ops.cast(new_scale, scale.dtype)
    return saturated(ops.cast(x, scale.dtype) * factor, zero, zero.dtype)


@operator("ConvInteger")
def conv_integer(node: Node) -> TensorValue:
    """The exact convolution of 8-bit integers less their zero points, as int32."""
    return ops.cast(_convolution(node, weights=1, weights_zero=3), DType.int32)


@operator("QLinearConv")
@operator("QLinearConv", domain="com.microsoft")
def quantized_conv(node: Node) -> TensorValue:
    """The convolution of quantized tensors, quantized: as in QLinearMatMul, and an int32 bias.

    That of ONNX Runtime's domain may have the channels of x and of the result last.
    """
    result = ops.cast(_convolution(node, weights=3, weights_zero=5), DType.int32)
    if node.has(8):
        result = result + by_channel(node(8), result.rank)
    scale = node(1) * _by_output(node(4), result.rank - 1)
    result = requantized(result, scale, node(6), node(7))
    return channels_last(result) if node["channels_last"] else result


def _convolution(node: Node, *, weights: int, weights_zero: int) -> TensorValue:
    """By floats, in which every sum is a whole number that they have; x is input 0, its zero 2."""
    _, each, *kernel = (int(dim) for dim in node(weights).shape)
    products = each * math.prod(kernel)
    dtype = DType.float32 if products * 255**2 <= 2**24 else DType.float64
    left, right = ops.cast(node(0), dtype), ops.cast(node(weights), dtype)
    left = channels_first(left) if node["channels_last"] else left
    if node.has(2):
        left = left - ops.reshape(ops.cast(node(2), dtype), ())
    if node.has(weights_zero):
        right = right - _by_output(ops.cast(node(weights_zero), dtype), right.rank)
    around = moves(node, left, kernel)
    return ops.conv(left, right, **around, groups=node["group"] or 1, layout="channels_first")


def _by_output(value: TensorValue, rank: int) -> TensorValue:
    """One number, or one for each channel, as it broadcasts along the first of `rank` axes."""
    if value.shape.elements == 1:
        return ops.reshape(value, ())
    return ops.reshape(value, [-1, *[1] * (rank - 1)])
