"""Rotary position embedding."""

from __future__ import annotations

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError


def _turned(types: Types, attrs: Attrs) -> DType:
    """Floats; that of x. cos and sin have the same, or float32."""
    dtype = rules.floating(types[:1], attrs)
    wanted = {dtype, DType.float32}
    for name, type in zip(("cos", "sin"), types[1:], strict=True):
        if type.dtype not in wanted:
            text = " or ".join(sorted(map(str, wanted)))
            raise GraphError(f"{name}: wanted {text}, got {type.dtype}; cast it first")
    if types[1].dtype is not types[2].dtype:
        raise GraphError(
            f"wanted cos and sin of one dtype, got {types[1].dtype} and {types[2].dtype}"
        )
    return dtype


def _pairs(types: Types, attrs: Attrs) -> Shape:
    """`[..., d]`, d even; cos and sin have one shape, which broadcasts to `[..., d / 2]`."""
    x, cos, sin = types
    rules.check_rank("x", x, 1)
    size = x.shape[-1].static
    if size is None or size % 2 or not size:
        raise GraphError(f"x: wanted an even number as the last dim, got {x.shape[-1]}")
    full = Shape((*x.shape[:-1], size // 2))
    for name, table in (("cos", cos), ("sin", sin)):
        if table.rank == 0 or table.shape[-1] != size // 2 or table.rank > x.rank:
            raise GraphError(f"{name}: wanted a shape that broadcasts to {full}, got {table.shape}")
    if cos.shape != sin.shape:
        raise GraphError(f"wanted cos and sin of one shape, got {cos.shape} and {sin.shape}")
    if rules.broadcast_shapes([cos.shape, full]) != full:
        raise GraphError(f"cos: wanted a shape that broadcasts to {full}, got {cos.shape}")
    return x.shape


def _three(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    return costs.computed(types, result, result.shape.elements * 3)


@row(
    dtype=_turned,
    shape=_pairs,
    samples=(
        sample("b s h 16", "s 1 8", "s 1 8", interleaved=False),
        sample("b s h 6", "b s 1 3", "b s 1 3", interleaved=True),
        sample("m 70", "float32: 35", "float32: 35", interleaved=False),
        sample("m 70", "float32: 35", "float32: 35", interleaved=True),
    ),
    promotion="none",
    cost=_three,
)
def rope(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Pairs (a, b) of the last dim as (a cos - b sin, b cos + a sin) (Su et al., arXiv:2104.09864).

    Pair i is elements i and i + d / 2, or 2i and 2i + 1 where `interleaved`. The tables hold the
    angles' cosines and sines at the positions of x: rows gathered from tables of all positions,
    with a dim of 1 where x has its heads.
    """
    half = x.shape[-1] // 2
    parts = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    )
    a, b = (x[..., part] for part in parts)
    result = np.empty_like(x)
    result[..., parts[0]] = a * cos - b * sin
    result[..., parts[1]] = b * cos + a * sin
    return result
