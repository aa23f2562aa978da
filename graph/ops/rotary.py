"""Rotary position embedding."""

from __future__ import annotations

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
    """`[..., d]`, d even; cos and sin have one shape: it broadcasts to `[..., h]`, h <= d / 2."""
    x, cos, sin = types
    rules.check_rank("x", x, 1)
    size = x.shape[-1].static
    if size is None or size % 2 or not size:
        raise GraphError(f"x: wanted an even number as the last dim, got {x.shape[-1]}")
    for name, table in (("cos", cos), ("sin", sin)):
        columns = table.shape[-1].static if table.rank else None
        if columns is None or not 0 < columns <= size // 2:
            raise GraphError(f"{name}: wanted 1 to {size // 2} columns, got {table.shape}")
    full = Shape((*x.shape[:-1], cos.shape[-1]))
    if cos.shape != sin.shape:
        raise GraphError(f"wanted cos and sin of one shape, got {cos.shape} and {sin.shape}")
    if cos.rank > x.rank or rules.broadcast_shapes([cos.shape, full]) != full:
        raise GraphError(f"cos: wanted a shape that broadcasts to {full}, got {cos.shape}")
    return x.shape


def _six(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    x, cos, _ = types
    return costs.computed(types, result, Shape((*x.shape[:-1], cos.shape[-1])).elements * 6)


@row(
    dtype=_turned,
    shape=_pairs,
    samples=(
        sample("b s h 16", "s 1 8", "s 1 8", interleaved=False),
        sample("b s h 6", "b s 1 3", "b s 1 3", interleaved=True),
        sample("m 70", "float32: 35", "float32: 35", interleaved=False),
        sample("m 70", "float32: 35", "float32: 35", interleaved=True),
        sample("b s h 24", "s 1 9", "s 1 9", interleaved=False),
        sample("b s h 24", "s 1 9", "s 1 9", interleaved=True),
    ),
    promotion="none",
    cost=_six,
)
def rope(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Pairs (a, b) of the last dim as (a cos - b sin, b cos + a sin) (Su et al., arXiv:2104.09864).

    Pair i is elements i and i + h, or 2i and 2i + 1 where `interleaved`; elements from 2h on stay.
    The tables hold the angles' cosines and sines at the positions of x: rows gathered from tables
    of all positions, with a dim of 1 where x has its heads.
    """
    h = cos.shape[-1]
    parts = (slice(0, 2 * h, 2), slice(1, 2 * h, 2)) if interleaved else (slice(h), slice(h, 2 * h))
    a, b = (x[..., part] for part in parts)
    result = x.copy()
    result[..., parts[0]] = a * cos - b * sin
    result[..., parts[1]] = b * cos + a * sin
    return result
