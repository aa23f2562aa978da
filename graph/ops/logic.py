"""Ops that give or take bool: comparisons and what is made of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import rules
from heddle.graph.ops.elementwise import broadcast, unary
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.runtime.errors import GraphError


def _asked(types: Types, attrs: Attrs) -> DType:
    """Floats; the result is bool."""
    rules.floating(types, attrs)
    return DType.bool


@unary(dtype=_asked)
def isnan(x: Array) -> Array:
    """Whether `x` is not a number."""
    return np.isnan(x)


def _flags(types: Types, attrs: Attrs) -> DType:
    """Bool."""
    dtype = rules.one_dtype(types)
    if dtype is not DType.bool:
        raise GraphError(f"wanted bool, got {dtype}; compare it first")
    return dtype


_logical = partial(broadcast, dtype=_flags, samples=(sample("bool: m n", "bool: m 1"),))


@_logical()
def logical_and(x: Array, y: Array) -> Array:
    """Whether both hold."""
    return np.logical_and(x, y)


@_logical()
def logical_or(x: Array, y: Array) -> Array:
    """Whether one of them holds, or both."""
    return np.logical_or(x, y)


@_logical()
def logical_xor(x: Array, y: Array) -> Array:
    """Whether one of them holds and the other does not."""
    return np.logical_xor(x, y)


@unary(dtype=_flags, samples=(sample("bool: m n"),))
def logical_not(x: Array) -> Array:
    """Whether it does not hold."""
    return np.logical_not(x)


@broadcast(dtype=rules.compared)
def equal(x: Array, y: Array) -> Array:
    """Whether `x == y`."""
    return x == y


@broadcast(dtype=rules.compared)
def not_equal(x: Array, y: Array) -> Array:
    """Whether `x != y`."""
    return x != y


@broadcast(dtype=rules.ordered)
def less(x: Array, y: Array) -> Array:
    """Whether `x < y`."""
    return x < y


@broadcast(dtype=rules.ordered)
def less_equal(x: Array, y: Array) -> Array:
    """Whether `x <= y`."""
    return x <= y


@broadcast(dtype=rules.ordered)
def greater(x: Array, y: Array) -> Array:
    """Whether `x > y`."""
    return x > y


@broadcast(dtype=rules.ordered)
def greater_equal(x: Array, y: Array) -> Array:
    """Whether `x >= y`."""
    return x >= y
