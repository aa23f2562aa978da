"""Numbers, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from heddle.graph import DType, TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along, backwards
from heddle.pipelines.onnx.table import direct, operator
from heddle.runtime.errors import GraphError


def _unary(name: str, function: Callable[[TensorValue], Any]) -> None:
    operator(name)(lambda node: function(node(0)))


direct("Add", ops.add)
direct("Sub", ops.sub)
direct("Mul", ops.mul)
_unary("Sqrt", ops.sqrt)
_unary("Exp", ops.exp)
_unary("Log", ops.log)
_unary("Sin", ops.sin)
_unary("Cos", ops.cos)
_unary("Erf", ops.erf)
_unary("Neg", ops.neg)
_unary("Abs", ops.abs)
_unary("Floor", ops.floor)
_unary("Ceil", ops.ceil)
_unary("Round", ops.round)
_unary("Identity", lambda x: x)
_unary("OptionalGetElement", lambda x: x)
_unary("Reciprocal", lambda x: 1 / x)


@operator("Div")
def div(node: Node) -> TensorValue:
    """Integers are divided towards zero."""
    x, y = node.tensors()
    return truncated(x, y) if x.dtype.is_integer else ops.div(x, y)


def truncated(x: TensorValue, y: TensorValue) -> TensorValue:
    """The quotient of integers, rounded towards zero."""
    quotient = ops.floor_divide(x, y)
    if not x.dtype.is_signed:
        return quotient
    inexact = ops.logical_and(ops.not_equal(ops.mod(x, y), 0), quotient < 0)
    return quotient + ops.cast(inexact, x.dtype)


@operator("Mod")
def mod(node: Node) -> TensorValue:
    """With the divisor's sign, or with `fmod` that of what is divided."""
    x, y = node.tensors()
    if not node["fmod"] or not x.dtype.is_signed:
        return ops.mod(x, y)
    if x.dtype.is_integer:  # the least one has no magnitude
        rest = ops.mod(x, y)
        other_sign = ops.logical_and(ops.not_equal(rest, 0), ops.logical_xor(x < 0, rest < 0))
        return ops.where(other_sign, rest - y, rest)
    magnitude = ops.mod(ops.abs(x), ops.abs(y))
    return ops.where(x < 0, -magnitude, magnitude)


@operator("Pow")
def power(node: Node) -> TensorValue:
    """In the base's dtype; a small whole exponent of floats is multiplied out by the compiler."""
    x, y = node.tensors()
    exponent = node.values[1]
    known = exponent.known if exponent is not None else None
    if known is not None and known.size == 1 and known.dtype != object:
        number = known.reshape(())[()].item()
        more = [1] * (known.ndim - x.rank)
        x = ops.reshape(x, [*more, *x.shape]) if more else x
        if number == 2:
            return x * x
        if x.dtype.is_float:
            return ops.pow(x, float(number))
        if number >= 0 and float(number).is_integer():
            return _multiplied(x, int(number))
    if x.dtype.is_float:
        return ops.pow(x, ops.cast(y, x.dtype))
    wide = DType.float64
    exponents = ops.cast(y, wide)
    powers = ops.pow(ops.cast(x, wide), exponents)
    if y.dtype.is_float:  # what is no whole number loses its fraction
        whole = ops.equal(exponents, ops.round(exponents))
        return ops.cast(ops.where(whole, ops.round(powers), powers), x.dtype)
    return ops.cast(ops.round(powers), x.dtype)


def _multiplied(x: TensorValue, exponent: int) -> TensorValue:
    """The power of an integer, by squares: floats hold no more than 53 bits of it."""
    power = ops.broadcast_to(ops.constant(1, x.dtype), x.shape)
    while exponent:
        if exponent % 2:
            power = power * x
        exponent //= 2
        x = x * x
    return power


@operator("Max")
def largest(node: Node) -> TensorValue:
    """The largest of all inputs."""
    return reduce(ops.maximum, node.tensors())


@operator("Min")
def smallest(node: Node) -> TensorValue:
    """The smallest of all inputs."""
    return reduce(ops.minimum, node.tensors())


@operator("Sum")
def total(node: Node) -> TensorValue:
    """The sum of all inputs."""
    return reduce(ops.add, node.tensors())


@operator("Mean")
def mean(node: Node) -> TensorValue:
    """The mean of all inputs."""
    return reduce(ops.add, node.tensors()) / len(node.values)


@operator("Sign")
def sign(node: Node) -> TensorValue:
    """-1, 0 or 1; NaN of NaN."""
    x = node(0)
    found = ops.cast(x > 0, x.dtype)
    if x.dtype.is_signed:
        found = found - ops.cast(x < 0, x.dtype)
    return ops.where(ops.isnan(x), x, found) if x.dtype.is_float else found


@operator("Clip")
def clip(node: Node) -> TensorValue:
    """Between bounds that are attributes or inputs; either may be left out."""
    x = node(0)
    low: Any = node["min"] if node.version < 11 else node.optional(1)
    high: Any = node["max"] if node.version < 11 else node.optional(2)
    if node.version < 11:  # where one that is left out is that of float32
        least, most = x.dtype.range
        low = None if low is None or low < least else low
        high = None if high is None or high > most else high
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@operator("Cast")
def cast(node: Node) -> TensorValue:
    """To a dtype; floats of 8 bits saturate unless the node says otherwise."""
    return _cast(node, node.dtype("to"))


@operator("CastLike")
def cast_like(node: Node) -> TensorValue:
    """To the dtype of the second input."""
    return _cast(node, node(1).dtype)


def _cast(node: Node, dtype: DType) -> TensorValue:
    if dtype.is_float8 and node["saturate"] != 0:
        return ops.saturating_cast(node(0), dtype)
    return ops.cast(node(0), dtype)


@operator("BitCast")
def bit_cast(node: Node) -> TensorValue:
    """Integers of as many bits, which wrap; no op of Heddle reads those of a float."""
    x, dtype = node(0), node.dtype("to")
    if x.dtype.size != dtype.size:
        node.refuse(f"wanted a dtype of {x.dtype.size} bytes, as {x.dtype}, got {dtype}")
    if x.dtype is not dtype and (x.dtype.is_float or dtype.is_float):
        node.refuse(f"wanted integers, whose bits a cast keeps, got {x.dtype} as {dtype}")
    return ops.cast(x, dtype)


@operator("CumSum")
def cumsum(node: Node) -> TensorValue:
    """The sum of each element along an axis and all before it."""
    return _running(node, ops.cumsum, 0)


@operator("CumProd")
def cumprod(node: Node) -> TensorValue:
    """The product of each element along an axis, whose size is known, and all before it."""
    return _running(node, _running_products, 1)


def _running(node: Node, function: Callable[..., TensorValue], first: int) -> TensorValue:
    """The other way round with `reverse`, from `first` on without the element with `exclusive`."""
    x = node(0)
    axis = node.axes([node.number(1, "the axis")], x.rank)[0]
    found = function(backwards(x, axis) if node["reverse"] else x, axis=axis)
    if node["exclusive"]:
        shape = [dim if i != axis else 1 for i, dim in enumerate(x.shape)]
        before = ops.broadcast_to(ops.constant(first, x.dtype), shape)
        found = ops.concat([before, found], axis=axis)[along(axis, slice(0, x.shape[axis]))]
    return backwards(found, axis) if node["reverse"] else found


def _running_products(x: TensorValue, axis: int) -> TensorValue:
    """Of 2 elements, times those of the 2 before, and so on (Hillis and Steele, 1986).

    Raises:
        GraphError: The size is not known, and with it the number of products.
    """
    size = x.shape[axis].static
    if size is None:
        raise GraphError(f"wanted a known size along axis {axis} (give it by --dim), got {x.shape}")
    found, count = at_least_float32(x), 1
    while count < size:
        first, rest = ops.split(found, [count, size - count], axis)
        before = found[along(axis, slice(0, size - count))]
        found, count = ops.concat([first, before * rest], axis=axis), 2 * count
    return ops.cast(found, x.dtype)
