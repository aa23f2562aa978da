"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

LAYOUTS = {"bhsd": (1, 2), "bshd": (2, 1)}
"""The axes of the heads and of the sequence, by the layout."""


def default_scale(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form of `scale`: 1 / sqrt of the head size, unless given."""
    if attrs["scale"] is not None:
        return attrs
    rules.check_rank("query", types[0], 1)
    size = types[0].shape[-1].static
    if not size:
        raise GraphError(f"scale: wanted a number for the head size {types[0].shape[-1]}, got none")
    return {**attrs, "scale": 1 / math.sqrt(size)}


def _attended(types: Types, attrs: Attrs) -> DType:
    """Floats; that of query, key and value. The mask is bool or has the same."""
    dtype = rules.floating(types[:3], attrs)
    if len(types) > 3 and types[3].dtype not in (DType.bool, dtype):
        raise GraphError(f"mask: wanted bool or {dtype}, got {types[3].dtype}; cast it first")
    return dtype


def _query_shape(types: Types, attrs: Attrs) -> Shape:
    """The query's. Key and value have its batch and head size, and heads that divide its heads."""
    check_scores(attrs)
    layout = attrs["layout"]
    if layout not in LAYOUTS:
        raise GraphError(f"layout: wanted 'bhsd' or 'bshd', got {layout!r}")
    head, sequence = LAYOUTS[layout]
    query, key, value = (type.shape for type in types[:3])
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) != 4:
            raise GraphError(f"{name}: wanted rank 4 ({layout}), got {shape}")
    if key != value:
        raise GraphError(f"wanted key and value of one shape, got {key} and {value}")
    if key[0] != query[0] or key[3] != query[3]:
        raise GraphError(f"wanted one batch and one head size, got query {query} and key {key}")
    if query[head] == 0 and key[head] != 0:
        raise GraphError(f"wanted heads of queries for {key[head]} of keys, got {types[0].shape}")
    if query[head].divided(key[head]) is None:
        raise GraphError(f"wanted key heads that divide the query's {query[head]}, got {key[head]}")
    if len(types) > 3:
        full, mask = Shape((query[0], query[head], query[sequence], key[sequence])), types[3].shape
        if len(mask) > 4 or rules.broadcast_shapes([mask, full]) != full:
            raise GraphError(f"mask: wanted a shape that broadcasts to {full}, got {mask}")
    return query


def check_scores(attrs: Attrs) -> None:
    """Raises a GraphError where `window` is none, attention is not causal, or `softcap` is none."""
    if attrs["window"] < 0 or (attrs["window"] and not attrs["causal"]):
        raise GraphError(
            f"window: wanted 0, or 1 and more of causal attention, got {attrs['window']}"
        )
    if not 0 <= attrs["softcap"] < math.inf:
        raise GraphError(f"softcap: wanted 0, or a finite number above it, got {attrs['softcap']}")


def pairs(queries: Dim, keys: Dim, attrs: Attrs) -> Dim:
    """The pairs of a query and a key that it may attend to.

    Where a size is known only at run time, queries are taken to be no more than keys, and the
    window to be as long.
    """
    if not attrs["causal"]:
        return queries * keys
    several, length = queries.static, keys.static
    if several is None or length is None:
        return queries * keys - queries * (queries - 1) // 2

    def behind(length: int) -> int:
        """The sum of 1, 2, ... `length`, of which only the last ones have a query."""
        first = max(length - several, 0)
        return (length * (length + 1) - first * (first + 1)) // 2 if length > 0 else 0

    return Dim(behind(length) - (behind(length - attrs["window"]) if attrs["window"] else 0))


def row_operations(heads: Dim, queries: Dim, keys: Dim, columns: Dim, attrs: Attrs) -> Dim:
    """Two products and one softmax for each pair of a query and a key that it may attend to.

    `columns` are those of a key and of its value.
    """
    capped = costs.EXP + 2 if attrs["softcap"] else 0
    return pairs(queries, keys, attrs) * heads * (columns * 2 + costs.EXP + 4 + capped)


def _scores(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    head, sequence = LAYOUTS[attrs["layout"]]
    query, key = types[0].shape, types[1].shape
    each = row_operations(query[head], query[sequence], key[sequence], query[3] * 2, attrs)
    return costs.computed(types, result, query[0] * each)


_plain = {"scale": 0.5, "causal": False, "window": 0, "softcap": 0.0, "layout": "bhsd"}
_local = {"scale": 0.5, "causal": True, "window": 2, "softcap": 0.0, "layout": "bhsd"}
_capped = {**_plain, "softcap": 2.5}


@row(
    dtype=_attended,
    shape=_query_shape,
    promotion="none",
    canonical=default_scale,
    samples=(
        sample("b h s d", "b h t d", "b h t d", **_plain),
        sample("b h s d", "b h t d", "b h t d", "b h s t", **_plain),
        sample("b 6 s d", "b 2 t d", "b 2 t d", "bool: s t", **_plain),
        sample("b s h d", "b s h d", "b s h d", **{**_plain, "layout": "bshd", "causal": True}),
        sample("b h s d", "b h t d", "b h t d", **_local),
        sample("b h s d", "b h t d", "b h t d", **_capped),
    ),
    cost=_scores,
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    scale: float = None,  # type: ignore[assignment] # noqa: RUF013 - filled in by default_scale
    causal: bool = False,
    window: int = 0,
    softcap: float = 0.0,
    layout: str = "bhsd",
) -> Array:
    """`softmax(query @ key.T * scale + mask) @ value` (Vaswani et al., arXiv:1706.03762).

    A bool mask says which keys to attend to, another one is added; it broadcasts to [batch, heads,
    queries, keys]. `causal`: query i attends to keys up to i + keys - queries, of these to the
    last `window` where that is not 0. `softcap`, where it is not 0: a scaled score s becomes
    `softcap * tanh(s / softcap)`, before a mask (Gemma 2, arXiv:2408.00118). Each key head serves
    as many consecutive query heads; a query that sees no key gets zeros. `layout` is the order of
    batch, heads, sequence and head size.
    """
    if layout == "bshd":
        query, key, value = (np.swapaxes(x, 1, 2) for x in (query, key, value))
    groups = query.shape[1] // max(key.shape[1], 1)
    key, value = (np.repeat(x, groups, axis=1) for x in (key, value))
    scores = np.matmul(query, np.swapaxes(key, -1, -2)) * query.dtype.type(scale)
    if softcap:
        cap = query.dtype.type(softcap)
        scores = np.tanh(scores / cap) * cap
    queries, keys = scores.shape[-2:]
    if causal:
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        if window:
            seen &= ~np.tri(queries, keys, keys - queries - window, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    shares = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = np.sum(shares, axis=-1, keepdims=True)
    shares = shares / np.where(total == 0, 1, total)
    result = np.matmul(shares.astype(query.dtype), value)
    return np.swapaxes(result, 1, 2) if layout == "bshd" else result
