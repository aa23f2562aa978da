"""Quantized tensors: integers of 8 bits, or weights of 4, with scales and zero points."""

from __future__ import annotations

import math
from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.normalization import by_channel
from heddle.pipelines.onnx.operators.windows import moves
from heddle.pipelines.onnx.table import operator


def _along(node: Node, x: TensorValue, value: TensorValue, axis: int) -> TensorValue:
    """A scale or a zero point as it broadcasts with x: one, or one for each place on an axis."""
    if value.rank == 0 or value.shape.elements == 1:
        return ops.reshape(value, ())
    if node["block_size"]:
        repeats = node["block_size"]
        return ops.repeat_interleave(value, repeats, axis=axis)
    shape: list[Any] = [1] * x.rank
    shape[axis] = value.shape[0]
    return ops.reshape(value, shape)


@operator("DequantizeLinear")
def dequantize(node: Node) -> TensorValue:
    """`(x - zero point) * scale`."""
    x = node(0)
    axis = node.axis(x.rank) if node["axis"] is not None and x.rank > 1 else 0
    scale = _along(node, x, node(1), axis)
    whole = ops.cast(x, scale.dtype)
    if node.has(2):
        whole = whole - ops.cast(_along(node, x, node(2), axis), scale.dtype)
    return whole * scale


@operator("QuantizeLinear")
def quantize(node: Node) -> TensorValue:
    """`round(x / scale) + zero point`, within the dtype's range."""
    x = node(0)
    axis = node.axis(x.rank) if node["axis"] is not None and x.rank > 1 else 0
    scale = _along(node, x, node(1), axis)
    given = node["output_dtype"]
    dtype = node(2).dtype if node.has(2) else node.dtype("output_dtype") if given else DType.uint8
    if not x.dtype.is_float:
        x = ops.cast(x, scale.dtype)
    if dtype.is_float8:
        return ops.saturating_cast(x / scale, dtype)
    rounded = at_least_float32(ops.round(x / scale))  # float16 ends below 2**16
    if node.has(2):
        rounded = rounded + ops.cast(_along(node, x, node(2), axis), rounded.dtype)
    low, high = dtype.range
    return ops.cast(ops.clip(rounded, float(low), float(high)), dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> list[TensorValue]:
    """To uint8 by the range of x, which holds 0: the integers, the scale and the zero point.

    Of zeros alone the scale is 1 / 255, as ONNX's reference has it; its text would divide by 0.
    """
    x = node(0)
    flat = ops.reshape(x, (x.shape.elements,))
    low = ops.minimum(ops.squeeze(ops.min(flat), 0), 0.0)
    high = ops.maximum(ops.squeeze(ops.max(flat), 0), 0.0)
    scale = ops.where(ops.equal(low, high), 1.0, high - low) / 255
    zero = ops.clip(ops.round(-low / scale), 0.0, 255.0)
    whole = ops.clip(ops.round(x / scale) + zero, 0.0, 255.0)
    return [ops.cast(whole, DType.uint8), scale, ops.cast(zero, DType.uint8)]


@operator("MatMulInteger")
def matmul_integer(node: Node) -> TensorValue:
    """The exact product of 8-bit integers less their zero points, as int32."""
    return _product(node, 0, 1, 2, 3)


def _product(node: Node, a: int, b: int, a_zero: int, b_zero: int) -> TensorValue:
    """By integers where b is signed; zero points become sums of rows and columns."""
    x, y = node(a), node(b)
    wide = DType.int32
    if y.dtype is DType.uint8:
        # b - 128 is signed, and so is its zero point less 128.
        y = ops.cast(ops.cast(y, wide) - 128, DType.int8)
        shift = 128
    else:
        shift = 0
    result = ops.integer_matmul(x, y)
    k = ops.size(x.shape[-1], wide)
    of_y: Any = None
    if node.has(b_zero):
        of_y = ops.cast(node(b_zero), wide) - shift
    elif shift:
        of_y = ops.constant(-shift, wide)
    if of_y is not None:
        of_y = of_y if of_y.rank == 0 else ops.reshape(of_y, (1, -1)) if of_y.rank == 1 else of_y
        rows = ops.sum(ops.cast(x, wide), axis=-1)
        result = result - rows * of_y
    if node.has(a_zero):
        of_x = ops.cast(node(a_zero), wide)
        of_x = of_x if of_x.rank == 0 else ops.reshape(of_x, (-1, 1)) if of_x.rank == 1 else of_x
        columns = ops.sum(ops.cast(y, wide), axis=-2)
        result = result - of_x * columns
        if of_y is not None:
            result = result + of_x * of_y * k
    return result


@operator("QLinearMatMul")
def quantized_matmul(node: Node) -> TensorValue:
    """The product of quantized tensors, quantized: a, scale, zero, b, scale, zero, scale, zero."""
    product = ops.cast(_product(node, 0, 3, 2, 5), DType.float32)
    scale = ops.cast(node(1), DType.float32) * ops.cast(node(4), DType.float32)
    return _requantized(product * scale, node(6), node(7))


def _requantized(x: TensorValue, scale: TensorValue, zero: TensorValue) -> TensorValue:
    rounded = ops.round(x / ops.cast(scale, x.dtype)) + ops.cast(zero, x.dtype)
    low, high = zero.dtype.range
    return ops.cast(ops.clip(rounded, float(low), float(high)), zero.dtype)


@operator("ConvInteger")
def conv_integer(node: Node) -> TensorValue:
    """The exact convolution of 8-bit integers less their zero points, as int32."""
    return ops.cast(_convolution(node, 0, 1, 2, 3), DType.int32)


@operator("QLinearConv")
def quantized_conv(node: Node) -> TensorValue:
    """The convolution of quantized tensors, quantized: as in QLinearMatMul, and an int32 bias."""
    result = ops.cast(_convolution(node, 0, 3, 2, 5), DType.int32)
    if node.has(8):
        result = result + by_channel(node(8), result.rank)
    scale = node(1) * _by_output(node(4), result.rank - 1)
    return _requantized(ops.cast(result, DType.float32) * scale, node(6), node(7))


def _convolution(node: Node, x: int, weights: int, x_zero: int, weights_zero: int) -> TensorValue:
    """By floats, in which every sum is a whole number that they have."""
    _, each, *kernel = (int(dim) for dim in node(weights).shape)
    products = each * math.prod(kernel)
    dtype = DType.float32 if products * 255**2 <= 2**24 else DType.float64
    left, right = ops.cast(node(x), dtype), ops.cast(node(weights), dtype)
    if node.has(x_zero):
        left = left - ops.reshape(ops.cast(node(x_zero), dtype), ())
    if node.has(weights_zero):
        right = right - _by_output(ops.cast(node(weights_zero), dtype), right.rank)
    around = moves(node, left, kernel)
    return ops.conv(left, right, **around, groups=node["group"], layout="channels_first")


def _by_output(value: TensorValue, rank: int) -> TensorValue:
    """One number, or one for each channel, as it broadcasts along the first of `rank` axes."""
    if value.shape.elements == 1:
        return ops.reshape(value, ())
    return ops.reshape(value, [-1, *[1] * (rank - 1)])


@operator("MatMulNBits", domain="com.microsoft")
def matmul_blocks(node: Node) -> TensorValue:
    """ONNX Runtime's `x @ w.T + bias` for `w = (q - zero point) * scale`, by blocks of k.

    Inputs are x, q `[n, blocks, bytes]`, scales `[n, blocks]`, zero points and, as the sixth, the
    bias. Zero points other than the middle add the product of the blocks' sums of x by
    `(middle - zero point) * scale`, which is exact but for rounding.
    """
    node.refuse_set("weight_prepacked")
    node.refuse_inputs(g_idx=4)
    x, bits, size = node(0), node["bits"] or 4, node["block_size"]
    n, k = node["N"], node["K"]
    if bits not in (4, 8) or size % 32 or k % size:
        node.refuse(
            "wanted bits of 4 or 8, and a block_size that 32 divides and that divides K, "
            f"got {bits}, {size} and K of {k}"
        )
    blocks = k // size
    scales = ops.reshape(node(2), [n, blocks])
    held = ops.reshape(node(1), [n, k * bits // 8])
    if bits == 8:
        held = ops.cast(ops.cast(held, DType.int32) - 128, DType.int8)
    rows = ops.unsqueeze(x, 0) if x.rank == 1 else x
    result = ops.quantized_matmul(rows, held, scales, bits=bits, group=size)
    if node.has(3):
        parts = ops.reshape(ops.cast(rows, DType.float32), [*rows.shape[:-1], blocks, size])
        sums = ops.squeeze(ops.sum(parts), -1)
        shift = 2 ** (bits - 1) - _zero_points(node, n, blocks, bits)
        more = sums @ (shift * ops.cast(scales, DType.float32)).T
        result = ops.cast(ops.cast(result, DType.float32) + more, x.dtype)
    if node.has(5):
        result = result + node(5)
    return ops.squeeze(result, 0) if x.rank == 1 else result


def _zero_points(node: Node, n: int, blocks: int, bits: int) -> TensorValue:
    """The zero points as float32 `[n, blocks]`: floats, or integers packed as the weights are."""
    given = node(3)
    if given.dtype is not DType.uint8:
        return ops.reshape(ops.cast(given, DType.float32), [n, blocks])
    each = -(-blocks * bits // 8)
    packed = ops.cast(ops.reshape(given, [n, each]), DType.int32)
    if bits == 4:
        high = ops.floor_divide(packed, 16)
        pairs = ops.stack([packed - high * 16, high], axis=2)
        packed = ops.reshape(pairs, [n, 2 * each])[:, :blocks]
    return ops.cast(packed, DType.float32)
