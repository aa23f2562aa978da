"""Ops on the bits of integers."""

from __future__ import annotations

from functools import partial

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import rules
from heddle.graph.ops.elementwise import broadcast, unary
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.runtime.errors import GraphError


def _integers(types: Types, attrs: Attrs) -> DType:
    """Integers; the operands' own."""
    dtype = rules.one_dtype(types)
    if not dtype.is_integer:
        hint = "; use logical_and and the like" if dtype is DType.bool else ""
        raise GraphError(f"wanted an integer dtype, got {dtype}{hint}")
    return dtype


_bitwise = partial(
    broadcast,
    dtype=_integers,
    samples=(sample("int32: m n", "int32: n"), sample("uint8: m", "uint8: ")),
)


@_bitwise()
def bitwise_and(x: Array, y: Array) -> Array:
    """The bits that both have."""
    return np.bitwise_and(x, y)


@_bitwise()
def bitwise_or(x: Array, y: Array) -> Array:
    """The bits that one of them has, or both."""
    return np.bitwise_or(x, y)


@_bitwise()
def bitwise_xor(x: Array, y: Array) -> Array:
    """The bits that one of them has and the other has not."""
    return np.bitwise_xor(x, y)


@unary(dtype=_integers, samples=(sample("int32: m n"), sample("uint8: ")))
def bitwise_not(x: Array) -> Array:
    """The bits that it has not."""
    return np.bitwise_not(x)


@_bitwise()
def left_shift(x: Array, y: Array) -> Array:
    """`x` with its bits moved up by `y` places; by as many as there are, or below 0: 0."""
    return np.left_shift(x, y)


@_bitwise()
def right_shift(x: Array, y: Array) -> Array:
    """`x` with its bits moved down by `y` places, and its sign kept.

    By as many places as there are, or below 0: 0, of a negative number -1.
    """
    return np.right_shift(x, y)
