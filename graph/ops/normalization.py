"""Normalization of the last axis."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.location import graph_error
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arguments import is_int, rank_of
from heddle.graph.ops.declare import row
from heddle.graph.ops.elementwise import add, at_least_float32, cast, mul, rsqrt, sub
from heddle.graph.ops.reductions import mean
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.ops.shaping import reshape
from heddle.graph.types import Shape
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError


def _scaled(types: Types, attrs: Attrs) -> Shape:
    """`[..., n]`, with parameters of shape `[n]`."""
    x, *parameters = types
    rules.check_rank("x", x, 1)
    for name, parameter in zip(("gamma", "beta"), parameters, strict=False):
        if parameter.shape != x.shape[-1:]:
            raise GraphError(f"{name}: wanted shape [{x.shape[-1]}], got {parameter.shape}")
    if attrs["epsilon"] <= 0:
        raise GraphError(f"epsilon: wanted a positive number, got {attrs['epsilon']}")
    return x.shape


@row(
    dtype=rules.floating,
    shape=_scaled,
    samples=(sample("m n", "n", "n", epsilon=1e-5), sample("n", "n", "n", epsilon=0.1)),
    cost=costs.each_operand(7),
)
def layer_norm(x: Array, gamma: Array, beta: Array, *, epsilon: float = 1e-5) -> Array:
    """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` (Ba et al., arXiv:1607.06450).

    Kernels add squares up in float32 (float64 of float64), which rows of about 1e19 overflow.
    """
    centered = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    return (centered / np.sqrt(variance + epsilon) * gamma + beta).astype(x.dtype)


@row(
    dtype=rules.floating,
    shape=_scaled,
    samples=(sample("m n", "n", epsilon=1e-6), sample("n", "n", epsilon=0.1)),
    cost=costs.each_operand(4),
)
def rms_norm(x: Array, gamma: Array, *, epsilon: float = 1e-6) -> Array:
    """`x / sqrt(mean(x^2) + epsilon) * gamma` (Zhang and Sennrich, arXiv:1910.07467).

    Kernels add squares up in float32 (float64 of float64), which rows of about 1e19 overflow.
    """
    square = np.mean(x * x, axis=-1, keepdims=True)
    return (x / np.sqrt(square + epsilon) * gamma).astype(x.dtype)


def group_norm(
    x: TensorValue, gamma: TensorValue, beta: TensorValue, num_groups: int, epsilon: float = 1e-5
) -> TensorValue:
    """`layer_norm` of each group of channels of `x`, `[batch, channels, ...]` (arXiv:1803.08494).

    `gamma` and `beta` are `[channels]`. Of 16 bits it is computed in float32.
    """
    if rank_of("group_norm", x) < 3:
        raise graph_error(f"group_norm: wanted [batch, channels, ...], got {x.shape}")
    batch, channels, *sizes = x.shape
    each = channels.divided(Dim(num_groups)) if is_int(num_groups) and num_groups > 0 else None
    if each is None:
        raise graph_error(
            f"group_norm: wanted a number of groups that divides {channels}, got {num_groups!r}"
        )
    rows = reshape(
        at_least_float32(x), shape=Shape((batch, num_groups, each * Shape(sizes).elements))
    )
    centered = sub(rows, mean(rows, axis=-1))
    scale = rsqrt(add(mean(mul(centered, centered), axis=-1), epsilon))
    normal = reshape(mul(centered, scale), shape=x.shape)
    for name, value in (("gamma", gamma), ("beta", beta)):
        rank_of("group_norm", value)
        if value.shape != (channels,):
            raise graph_error(f"group_norm: {name}: wanted shape [{channels}], got {value.shape}")
    along = Shape((channels, *(1 for _ in sizes)))
    gamma, beta = (reshape(value, shape=along) for value in (gamma, beta))
    result: TensorValue = cast(add(mul(normal, gamma), beta), dtype=x.dtype)
    return result
