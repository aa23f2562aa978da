"""Ops that order the elements of an axis, or pick single ones by index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heddle.graph.bounds import bounds
from heddle.graph.dim import MAXIMUM, Dim
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arguments import axis_of, rank_of
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.ops.shaping import permute
from heddle.graph.types import Shape, TensorType
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError


def _places(types: Types, attrs: Attrs) -> DType:
    """Integers and floats; the result is int64."""
    rules.numeric(types, attrs)
    return DType.int64


def _one_of_some(types: Types, attrs: Attrs) -> Shape:
    """The operand's, with size 1 at the axis, which has at least one element."""
    shape = rules.kept_of_some(types, attrs)
    _check_length(types[0], types[0].shape[attrs["axis"]])
    return shape


def _check_length(x: TensorType, size: Dim) -> None:
    """Kernels count places in 32 bits."""
    if size.static is not None and size.static > MAXIMUM:
        raise GraphError(f"wanted at most {MAXIMUM} elements along the axis, got {x}")


_SAMPLES = (sample("k m n", axis=2), sample("k m n", axis=0), sample("n", axis=0))


@row(
    dtype=_places,
    shape=_one_of_some,
    canonical=rules.positive_axis,
    samples=_SAMPLES,
    cost=costs.each_operand(2),
)
def argmax(x: Array, *, axis: int = -1) -> Array:
    """Where the largest value along `axis` is; the first of equal ones, of NaNs where there are.

    Where a symbolic axis is empty at run time: 0.
    """
    return _first(np.argmax, x, axis)


@row(
    dtype=_places,
    shape=_one_of_some,
    canonical=rules.positive_axis,
    samples=_SAMPLES,
    cost=costs.each_operand(2),
)
def argmin(x: Array, *, axis: int = -1) -> Array:
    """Where the smallest value along `axis` is, as `argmax`: the first of equal ones or NaNs.

    Where a symbolic axis is empty at run time: 0.
    """
    return _first(np.argmin, x, axis)


def _first(best: Callable[..., Array], x: Array, axis: int) -> Array:
    """`best` along the axis, where NumPy raises for an empty one."""
    if x.shape[axis] == 0:
        return np.zeros_like(np.sum(x, axis=axis, keepdims=True), np.int64)
    return best(x, axis=axis, keepdims=True)


def _as_many(types: Types, attrs: Attrs) -> Shape:
    """`[..., n]` gives `[..., k]`; k is at most n."""
    (x,), k = types, attrs["k"]
    rules.check_rank("x", x, 1)
    size = x.shape[-1]
    _check_length(x, size)
    if k < 1 or (size.static is not None and k > size.static):
        raise GraphError(f"k: wanted 1 to {size}, got {k}")
    return Shape((*x.shape[:-1], Dim(k)))


@row(
    dtype=_places,
    shape=_as_many,
    samples=(sample("m 9", k=4), sample("40", k=40), sample("k m 300", k=2)),
    public=False,
    cost=costs.each_operand(2),
)
def top_k_indices(x: Array, *, k: int) -> Array:
    """Where the `k` largest values of the last axis are, the largest first; see `top_k`."""
    # Backwards and stably, a last one of equals comes first: so does NaN, which sorts last.
    last = x.shape[-1] - 1
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    return (last - backwards[..., ::-1])[..., :k]


def _picked(types: Types, attrs: Attrs) -> Shape:
    """`[..., n]` and indices `[..., k]` give `[..., k]`."""
    x, indices = types
    rules.check_rank("x", x, 1)
    if indices.rank != x.rank or indices.shape[:-1] != x.shape[:-1]:
        raise GraphError(
            f"indices: wanted {x.shape} except along the last axis, got {indices.shape}"
        )
    return indices.shape


@row(
    dtype=rules.indexed,
    shape=_picked,
    samples=(sample("m 4", "int64: m n"), sample("4", "uint8: 3")),
    promotion="none",
    cost=costs.selected,
)
def take_along(x: Array, indices: Array) -> Array:
    """For each row of the last axis the elements that its own row of indices names.

    An index below 0 or beyond the axis is an error when the model runs.
    """
    limit = x.shape[-1]
    if indices.size and (indices.min() < 0 or indices.max() >= limit):
        raise IndexError(f"take_along: wanted indices from 0 to {limit - 1}")
    return np.take_along_axis(x, indices.astype(np.int64), axis=-1)


def top_k(x: TensorValue, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The `k` largest values along `axis` and their int64 indices, the largest first.

    NaN counts as larger than every number. Of equal values the first one comes first.
    """
    axis = axis_of("top_k", axis, rank_of("top_k", x))
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    moved = order != sorted(order)
    rows = permute(x, permutation=tuple(order)) if moved else x
    size = rows.shape[-1]
    least = bounds(size, x.graph.symbols)[0]
    if isinstance(k, int) and k > least:
        raise graph_error(f"top_k: k: wanted at most {least}, the least size of {size}, got {k}")
    indices = top_k_indices(rows, k=k)
    values = take_along(rows, indices)
    if moved:
        return tuple(permute(value, permutation=tuple(order)) for value in (values, indices))  # type: ignore[return-value]
    return values, indices
