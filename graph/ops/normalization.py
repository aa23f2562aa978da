"""Normalization of the last axis."""

from __future__ import annotations

import numpy as np

from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape
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
