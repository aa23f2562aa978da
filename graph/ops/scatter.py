"""Rows put, or gathered up, at the places of an axis that indices name."""

from __future__ import annotations

from math import prod

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""What becomes of an element and its update, but for "none", which replaces it."""


def _dtype(types: Types, attrs: Attrs) -> DType:
    """Any dtype, of x and updates alike, with integer indices; numbers where they are reduced."""
    x, indices, updates = types
    kinds = ("none", *REDUCTIONS)
    if attrs["reduce"] not in kinds:
        raise GraphError(f"reduce: wanted one of {', '.join(kinds)}, got {attrs['reduce']!r}")
    rules.check_indices(indices)
    rule = rules.same if attrs["reduce"] == "none" else rules.numeric
    return rule((x, updates), attrs)


def _shape(types: Types, attrs: Attrs) -> Shape:
    """`[..., n, *row]`, indices `[..., k]` and updates `[..., k, *row]` give `[..., n, *row]`."""
    x, indices, updates = types
    axis = rules.check_axis(attrs["axis"], x.rank)
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    if indices.rank != axis + 1 or indices.shape[:axis] != outer:
        wanted = Shape((*outer, "k"))
        raise GraphError(f"indices: wanted {wanted} for any k, got {indices.shape}")
    wanted = Shape((*indices.shape, *inner))
    if updates.shape != wanted:
        raise GraphError(f"updates: wanted {wanted}, got {updates.shape}")
    return x.shape


def _cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    reduced = 0 if attrs["reduce"] == "none" else 1
    return costs.computed(types, result, types[2].shape.elements * reduced)


@row(
    dtype=_dtype,
    shape=_shape,
    samples=(
        sample("4 n", "int64: k", "k n", axis=0, reduce="none"),
        sample("m 5 n", "int32: m k", "m k n", axis=1, reduce="none"),
        sample("m 4", "uint8: m 3", "m 3", axis=1, reduce="none"),
        *(sample("m 4 3", "int64: m k", "m k 3", axis=1, reduce=kind) for kind in REDUCTIONS),
    ),
    promotion="none",
    canonical=rules.positive_axis,
    cost=_cost,
)
def scatter(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduce: str = "none"
) -> Array:
    """The rows of `updates` in x, at the places along `axis` that the indices name.

    Where places are the same, updates are taken in their order, on every target: the last one
    stays, or with a `reduce` of "add", "mul", "max" or "min" each is combined with what is there.
    Sums and products of 16 bits are computed in float32 and rounded once. An index below 0 or
    beyond the axis is an error when the model runs.
    """
    limit, count = x.shape[axis], indices.shape[axis]
    if indices.size and (indices.min() < 0 or indices.max() >= limit):
        raise IndexError(f"scatter: wanted indices from 0 to {limit - 1}")
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    starts = np.repeat(np.arange(outer) * limit, count)
    places = starts + indices.reshape(outer * count).astype(np.int64)
    rows, new = x.reshape(outer * limit, inner).copy(), updates.reshape(outer * count, inner)
    if reduce == "none":
        rows[places] = new
    else:
        REDUCTIONS[reduce].at(rows, places, new)
    return rows.reshape(x.shape)
