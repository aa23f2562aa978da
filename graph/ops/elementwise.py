"""Ops that compute each element on its own; broadcasting is NumPy's."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import rules
from heddle.graph.ops.arguments import rank_of
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.rounding import held
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError

unary = partial(row, shape=rules.unchanged, elementwise=True, samples=(sample("m n"), sample("")))
broadcast = partial(
    row,
    shape=rules.broadcast,
    elementwise=True,
    samples=(
        sample("m n", "m n"),
        sample("m n", "n"),
        sample("m 1", "1 n"),
        sample("", "k m n"),
    ),
)


def _true_division(types: Types, attrs: Attrs) -> DType:
    """Floats; the operands' own. Integers are refused: cast first."""
    return rules.floating(types, attrs)


@broadcast(dtype=rules.numeric)
def add(x: Array, y: Array) -> Array:
    """`x + y`; integers wrap."""
    return x + y


@broadcast(dtype=rules.numeric)
def sub(x: Array, y: Array) -> Array:
    """`x - y`; integers wrap."""
    return x - y


@broadcast(dtype=rules.numeric)
def mul(x: Array, y: Array) -> Array:
    """`x * y`; integers wrap."""
    return x * y


@broadcast(dtype=_true_division)
def div(x: Array, y: Array) -> Array:
    """`x / y`."""
    return x / y


@broadcast(dtype=rules.numeric)
def maximum(x: Array, y: Array) -> Array:
    """The larger of `x` and `y`; NaN where one of them is."""
    return np.maximum(x, y)


@broadcast(dtype=rules.numeric)
def minimum(x: Array, y: Array) -> Array:
    """The smaller of `x` and `y`; NaN where one of them is."""
    return np.minimum(x, y)


@unary(dtype=rules.signed)
def neg(x: Array) -> Array:
    """`-x`."""
    return -x


@unary(dtype=rules.numeric, name="abs")
def absolute(x: Array) -> Array:
    """The magnitude of `x`."""
    return np.abs(x)


@unary(dtype=rules.floating)
def sqrt(x: Array) -> Array:
    """The square root; NaN below zero."""
    return np.sqrt(x)


@unary(dtype=rules.floating)
def rsqrt(x: Array) -> Array:
    """`1 / sqrt(x)`."""
    return np.divide(1, np.sqrt(x), dtype=x.dtype)


@unary(dtype=rules.floating)
def exp(x: Array) -> Array:
    """The exponential function."""
    return np.exp(x)


@unary(dtype=rules.floating)
def expm1(x: Array) -> Array:
    """`exp(x) - 1`, which keeps its digits near 0."""
    return np.expm1(x)


@unary(dtype=rules.floating)
def log(x: Array) -> Array:
    """The natural logarithm; NaN below zero."""
    return np.log(x)


@unary(dtype=rules.floating)
def log1p(x: Array) -> Array:
    """`log(1 + x)`, which keeps its digits near 0; NaN below -1."""
    return np.log1p(x)


@unary(dtype=rules.floating)
def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return np.tanh(x)


@unary(dtype=rules.floating)
def erf(x: Array) -> Array:
    """The error function."""
    return _erf(x)


def _gelu_forms(types: Types, attrs: Attrs) -> DType:
    """Floats; the operands' own."""
    if attrs["approximate"] not in ("none", "tanh"):
        raise GraphError(f"wanted approximate 'none' or 'tanh', got {attrs['approximate']!r}")
    return rules.floating(types, attrs)


@unary(
    dtype=_gelu_forms,
    samples=(sample("m n", approximate="none"), sample("m n", approximate="tanh")),
)
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """`x * Phi(x)`, by erf or by tanh (Hendrycks and Gimpel, arXiv:1606.08415).

    0 at -inf, where compiled code is within 1e-28 of it.
    """
    x = np.maximum(x, np.finfo(x.dtype).min)  # not infinity times zero
    if approximate == "none":
        return (x * (0.5 + 0.5 * _erf(x / math.sqrt(2)))).astype(x.dtype)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return (0.5 * x * (1 + np.tanh(inner))).astype(x.dtype)


@unary(dtype=rules.numeric)
def relu(x: Array) -> Array:
    """`max(x, 0)`."""
    return np.maximum(x, np.zeros((), x.dtype))


@unary(dtype=rules.floating)
def silu(x: Array) -> Array:
    """`x * sigmoid(x)`."""
    return x * _sigmoid(x)


@unary(dtype=rules.floating)
def sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))`."""
    return _sigmoid(x)


@unary(dtype=rules.floating)
def softplus(x: Array) -> Array:
    """`log(1 + exp(x))`, which overflows nowhere."""
    return np.logaddexp(np.zeros((), x.dtype), x)


@unary(dtype=rules.floating)
def sin(x: Array) -> Array:
    """The sine of `x` radians."""
    return np.sin(x)


@unary(dtype=rules.floating)
def cos(x: Array) -> Array:
    """The cosine of `x` radians."""
    return np.cos(x)


@broadcast(dtype=rules.floating, name="pow")
def power(x: Array, y: Array) -> Array:
    """`x ** y`; NaN where `x` is negative and `y` no whole number."""
    return np.power(x, y)


@broadcast(dtype=rules.numeric)
def floor_divide(x: Array, y: Array) -> Array:
    """`x // y`, rounded down; of integers 0 where `y` is 0."""
    return np.floor_divide(x, y)


@broadcast(dtype=rules.numeric)
def mod(x: Array, y: Array) -> Array:
    """`x % y`, with the sign of `y`; of integers 0 where `y` is 0."""
    return np.remainder(x, y)


@unary(dtype=rules.floating)
def floor(x: Array) -> Array:
    """`x` rounded down."""
    return np.floor(x)


@unary(dtype=rules.floating)
def ceil(x: Array) -> Array:
    """`x` rounded up."""
    return np.ceil(x)


@unary(dtype=rules.floating, name="round")
def round_even(x: Array) -> Array:
    """`x` rounded to the nearest whole number, to the even one of two."""
    return np.rint(x)


def _chosen(types: Types, attrs: Attrs) -> DType:
    """A bool condition, then any dtype; that of `x` and `y`."""
    if types[0].dtype is not DType.bool:
        raise GraphError(f"condition: wanted bool, got {types[0].dtype}")
    return rules.one_dtype(types[1:])


@broadcast(
    dtype=_chosen,
    promotion="values",
    samples=(sample("bool: m n", "m n", "m n"), sample("bool: m 1", "n", "")),
)
def where(condition: Array, x: Array, y: Array) -> Array:
    """`x` where the condition holds, else `y`."""
    return np.where(condition, x, y)


def _requested(types: Types, attrs: Attrs) -> DType:
    """From any dtype to any other."""
    dtype = attrs["dtype"]
    if not isinstance(dtype, DType):
        raise GraphError(f"wanted a DType, got {dtype!r}")
    return dtype


@unary(
    dtype=_requested,
    promotion="none",
    samples=[sample("m n", dtype=dtype) for dtype in DType],
)
def cast(x: Array, *, dtype: DType) -> Array:
    """`x` in another dtype.

    Floats round to nearest even; to an integer they lose their fraction, what does not fit becomes
    the nearest integer that does, and NaN 0. Integers wrap. To bool: whether it is not zero. What
    is too large for a float becomes infinity, or NaN in float8_e4m3fn, which has none.
    """
    return held(x, dtype)


def clip(x: Any, low: Any, high: Any) -> TensorValue:
    """`x` from `low` to `high`: the smaller of `high` and the larger of `x` and `low`."""
    return minimum(maximum(x, low), high)


def at_least_float32(x: TensorValue) -> TensorValue:
    """`x`, or in float32 where it is a narrower float: what several ops compute loses nothing."""
    if x.dtype.is_float and x.dtype.size < DType.float32.size:
        return cast(x, dtype=DType.float32)
    return x


def saturating_cast(x: TensorValue, dtype: DType) -> TensorValue:
    """`x` in a float `dtype`: what is too large becomes its largest number; NaN stays NaN."""
    if not isinstance(dtype, DType):
        raise graph_error(f"saturating_cast: wanted a DType, got {dtype!r}")
    rank_of("saturating_cast", x)
    for wanted in (x.dtype, dtype):
        if not wanted.is_float:
            raise graph_error(f"saturating_cast: wanted floats, got {wanted}")
    low, high = dtype.range
    if x.dtype.is_float8 or (x.dtype is DType.bfloat16 and dtype is DType.float16):
        x = cast(x, dtype=DType.float32)  # to compute in, and to hold the limit: 65504
    if high > x.dtype.range[1]:  # there infinity alone is too large
        return clip(cast(x, dtype=dtype), low, high)
    result: TensorValue = cast(clip(x, low, high), dtype=dtype)
    return result


def _erf(x: Array) -> Array:
    values: Any = np.frompyfunc(math.erf, 1, 1)(x)
    return np.asarray(values, x.dtype)


def _sigmoid(x: Array) -> Array:
    # exp of a positive number could overflow.
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)
