"""Attention over ragged rows: keys and values of all rows side by side.

The tokens of all rows of a batch follow one another, and offsets say where each row begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs
from heddle.graph.ops.attention import check_scores, default_scale, row_operations
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

_FLOATS = (DType.float32, DType.bfloat16, DType.float16)
_FLOATS8 = (DType.float8_e4m3fn, DType.float8_e5m2)


def check_integers(names: dict[str, DType], types: Types) -> None:
    """Raises a GraphError unless the operands have the dtypes that `names` says."""
    for (name, wanted), type in zip(names.items(), types, strict=True):
        if type.dtype is not wanted:
            raise GraphError(f"{name}: wanted {wanted}, got {type.dtype}; cast it first")


def attended(types: Types) -> DType:
    """The query's dtype; keys and values have it, or one that is widened to it."""
    query, key, value = (type.dtype for type in types[:3])
    if query not in _FLOATS:
        raise GraphError(f"query: wanted float32, bfloat16 or float16, got {query}; cast it first")
    narrow = (*((query,) if query is not DType.float32 else _FLOATS), *_FLOATS8)
    if key not in narrow:
        wanted = " or ".join(map(str, narrow))
        raise GraphError(f"key: wanted {wanted} for a query of {query}, got {key}; cast it first")
    if key is not value:
        raise GraphError(f"wanted key and value of one dtype, got {key} and {value}")
    return query


def _ragged_dtype(types: Types, attrs: Attrs) -> DType:
    """float32, bfloat16, float16; the query's. Keys have it, or fewer bits. Offsets are int64."""
    check_integers({"query_offsets": DType.int64, "key_offsets": DType.int64}, types[3:5])
    check_sinks(types[5:])
    return attended(types)


def check_sinks(sinks: Types) -> None:
    """Raises a GraphError unless the last operand, if there is one, is float32."""
    for type in sinks:
        if type.dtype is not DType.float32:
            raise GraphError(f"sinks: wanted float32, got {type.dtype}; cast it first")


def check_ranks(names: Sequence[str], types: Types, ranks: Sequence[int]) -> None:
    """Raises a GraphError unless the operands called `names` have `ranks`; there may be more."""
    for name, type, rank in zip(names, types, ranks, strict=False):
        if type.rank != rank:
            raise GraphError(f"{name}: wanted rank {rank}, got {type.shape}")


def check_attention(names: Sequence[str], types: Types, ranks: Sequence[int], attrs: Attrs) -> None:
    """Checks the operands called `names`, of `ranks`, and the sinks behind them."""
    check_ranks(names, types, ranks)
    query, key, value = (type.shape for type in types[:3])
    if key != value:
        raise GraphError(f"wanted key and value of one shape, got {key} and {value}")
    if key[-1] != query[-1]:
        raise GraphError(f"wanted one head size, got query {query} and key {key}")
    if 0 in (query[1], query[2], key[-2]):
        raise GraphError(f"wanted heads, and a size of them, got query {query} and key {key}")
    if query[1].divided(key[-2]) is None:
        raise GraphError(f"wanted key heads that divide the query's {query[1]}, got {key[-2]}")
    most = key[-1].static or attrs["value_size"]
    if not 0 <= attrs["value_size"] <= most:
        raise GraphError(
            f"value_size: wanted 0, or 1 to the head size {key[-1]}, got {attrs['value_size']}"
        )
    for sinks in types[len(names) :]:
        if sinks.shape != (query[1],):
            raise GraphError(
                f"sinks: wanted {Shape((query[1],))}, one for each head, got {sinks.shape}"
            )
    check_scores(attrs)


def attended_shape(query: TensorType, attrs: Attrs) -> Shape:
    """The query's, with heads of values."""
    *before, size = query.shape
    return Shape((*before, attrs["value_size"] or size))


def _ragged_shape(types: Types, attrs: Attrs) -> Shape:
    """`[tokens, heads, value size]`. Keys are `[keys, key heads, size]`."""
    names = ("query", "key", "value", "query_offsets", "key_offsets")
    check_attention(names, types, (3, 3, 3, 1, 1), attrs)
    if types[3].shape != types[4].shape:
        raise GraphError(
            f"wanted offsets of one shape, got {types[3].shape} for queries and {types[4].shape} "
            "for keys"
        )
    return attended_shape(types[0], attrs)


def of_a_row(total: Dim, rows: Dim) -> Dim:
    """As if all rows had as many."""
    return total // rows if rows != 0 else Dim(0)


def _ragged_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    (tokens, heads, size), keys, rows = types[0].shape, types[1].shape[0], types[3].shape[0] - 1
    columns = size + result.shape[-1]
    sides = of_a_row(tokens, rows), of_a_row(keys, rows)
    return costs.computed(types, result, rows * row_operations(heads, *sides, columns, attrs))


PLAIN = {"scale": 0.5, "causal": True, "window": 0, "softcap": 0.0, "value_size": 0}
"""Attributes of samples."""

CAPPED = {**PLAIN, "softcap": 2.5}

NARROW = {**PLAIN, "value_size": 6}


@row(
    dtype=_ragged_dtype,
    shape=_ragged_shape,
    promotion="none",
    canonical=default_scale,
    follows_first=True,
    samples=(
        sample("t 6 8", "k 2 8", "k 2 8", "int64: n", "int64: n", **PLAIN),
        sample("t h d", "k h d", "k h d", "int64: n", "int64: n", **{**PLAIN, "causal": False}),
        sample("t 6 8", "k 2 8", "k 2 8", "int64: n", "int64: n", "float32: 6", **CAPPED),
        sample("t 6 8", "k 1 8", "k 1 8", "int64: n", "int64: n", **NARROW),
    ),
    cost=_ragged_cost,
)
def ragged_attention(
    query: Array,
    key: Array,
    value: Array,
    query_offsets: Array,
    key_offsets: Array,
    sinks: Array | None = None,
    *,
    scale: float = None,  # type: ignore[assignment] # noqa: RUF013 - filled in by default_scale
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    value_size: int = 0,
) -> Array:
    """`attention` within each row of a ragged batch.

    Row r has the queries from `query_offsets[r]` to `query_offsets[r + 1]`, and its keys likewise.
    Query i of q attends, where `causal`, to the keys up to number i + keys - q, of these to the
    last `window` where that is not 0. A query that sees no key, or is in no row, gets zeros.
    `softcap` is that of `attention`. `sinks`, float32 [heads], are scores of one more key each,
    whose value is zeros: they take a share of each softmax (gpt-oss, arXiv:2508.10925).
    Where `value_size` is not 0, values are the first so many elements of each head of `value`,
    which may be `key` itself: so one latent is both (DeepSeek-V2, arXiv:2405.04434).

    Offsets that fall or leave the tensors are an InputError of the call; those of a row without
    queries may go unnoticed.
    """
    attrs = {"scale": scale, "causal": causal, "window": window, "softcap": softcap}
    value = value[..., : value_size or None]
    return by_row(
        query,
        query_offsets,
        [(key[start:stop], value[start:stop]) for start, stop in pairwise(key_offsets)],
        value.shape[-1],
        lambda q, k, v: attend(q, k, v, sinks, attrs),
    )


def by_row(
    query: Array,
    offsets: Array,
    keys: Sequence[tuple[Array, Array]],
    size: int,
    attend: Callable[[Array, Array, Array], Array],
) -> Array:
    """What `attend` makes of each row's queries, keys and values of `size`; zeros in no row."""
    result = np.zeros((*query.shape[:-1], size), query.dtype)
    for (key, value), start, stop in zip(keys, offsets, offsets[1:], strict=False):
        result[start:stop] = attend(query[start:stop], key, value)
    return result


def attend(query: Array, key: Array, value: Array, sinks: Array | None, attrs: Attrs) -> Array:
    """`[queries, heads, value size]` of one row, computed in float64."""
    group = query.shape[1] // max(key.shape[1], 1)
    q, k, v = (
        np.swapaxes(x.astype(np.float64), 0, 1)
        for x in (query, np.repeat(key, group, axis=1), np.repeat(value, group, axis=1))
    )
    scores = q @ np.swapaxes(k, 1, 2) * attrs["scale"]
    cap, window = attrs["softcap"], attrs["window"]
    if cap:
        scores = np.tanh(scores / cap) * cap
    queries, keys = scores.shape[1:]
    if attrs["causal"]:
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        if window:
            seen &= ~np.tri(queries, keys, keys - queries - window, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    shift = np.where(np.isneginf(top), 0, top)
    shares = np.exp(scores - shift)
    total = np.sum(shares, axis=-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks[:, None, None] - shift)
    result = (shares / np.where(total == 0, 1, total)) @ v
    return np.swapaxes(result, 0, 1).astype(query.dtype)
