"""Attention over ragged rows: keys and values side by side, or in the blocks of a cache.

The tokens of all rows of a batch follow one another, and `row_offsets` says where each row begins,
as `heddle.contexts.StepBatch` writes them. A cache is `[blocks, block_size, heads, head size]`;
`block_tables` says which blocks hold a row, in order. (Kwon et al., arXiv:2309.06180.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.attention import check_window, default_scale, row_operations
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

_FLOATS = (DType.float32, DType.bfloat16, DType.float16)
_FLOATS8 = (DType.float8_e4m3fn, DType.float8_e5m2)


def _integers(names: dict[str, DType], types: Types) -> None:
    for (name, wanted), type in zip(names.items(), types, strict=True):
        if type.dtype is not wanted:
            raise GraphError(f"{name}: wanted {wanted}, got {type.dtype}; cast it first")


def _attended(types: Types) -> DType:
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
    _integers({"query_offsets": DType.int64, "key_offsets": DType.int64}, types[3:])
    return _attended(types)


_CACHE = {"row_offsets": DType.int64, "lengths": DType.int64, "block_tables": DType.int32}


def _paged_dtype(types: Types, attrs: Attrs) -> DType:
    """float32, bfloat16, float16; the query's. Caches have it, or fewer bits. Tables are int32."""
    _integers(_CACHE, types[3:])
    return _attended(types)


def _written(types: Types, attrs: Attrs) -> DType:
    """Any dtype; the cache's, which `new` has too. Tables are int32, the others int64."""
    _integers(_CACHE, types[2:])
    return rules.one_dtype(types[:2])


def _check_ranks(names: Sequence[str], types: Types, ranks: Sequence[int]) -> None:
    for name, type, rank in zip(names, types, ranks, strict=True):
        if type.rank != rank:
            raise GraphError(f"{name}: wanted rank {rank}, got {type.shape}")


def _check_heads(types: Types, attrs: Attrs) -> None:
    query, key, value = (type.shape for type in types[:3])
    if key != value:
        raise GraphError(f"wanted key and value of one shape, got {key} and {value}")
    if key[-1] != query[-1]:
        raise GraphError(f"wanted one head size, got query {query} and key {key}")
    if 0 in (query[1], query[2], key[-2]):
        raise GraphError(f"wanted heads, and a size of them, got query {query} and key {key}")
    if query[1].divided(key[-2]) is None:
        raise GraphError(f"wanted key heads that divide the query's {query[1]}, got {key[-2]}")
    check_window(attrs)


def _check_rows(row_offsets: TensorType, lengths: TensorType, tables: TensorType) -> None:
    rows = lengths.shape[0]
    if row_offsets.shape[0] != rows + 1:
        raise GraphError(f"row_offsets: wanted {Shape((rows + 1,))}, got {row_offsets.shape}")
    if tables.shape[0] != rows:
        raise GraphError(f"block_tables: wanted {rows} rows as in lengths, got {tables.shape}")


def _ragged_shape(types: Types, attrs: Attrs) -> Shape:
    """`[tokens, heads, size]`, the query's. Keys are `[keys, key heads, size]`."""
    names = ("query", "key", "value", "query_offsets", "key_offsets")
    _check_ranks(names, types, (3, 3, 3, 1, 1))
    _check_heads(types, attrs)
    if types[3].shape != types[4].shape:
        raise GraphError(
            f"wanted offsets of one shape, got {types[3].shape} for queries and {types[4].shape} "
            "for keys"
        )
    return types[0].shape


def _paged_shape(types: Types, attrs: Attrs) -> Shape:
    """`[tokens, heads, size]`, the query's. Caches are `[blocks, block size, key heads, size]`."""
    names = ("query", "key_cache", "value_cache", *_CACHE)
    _check_ranks(names, types, (3, 4, 4, 1, 1, 2))
    _check_heads(types, attrs)
    _check_rows(*types[3:])
    return types[0].shape


def _cache_shape(types: Types, attrs: Attrs) -> Shape:
    """The cache's, `[blocks, block size, heads, size]`; `new` is `[tokens, heads, size]`."""
    _check_ranks(("cache", "new", *_CACHE), types, (4, 3, 1, 1, 2))
    cache, new = types[0].shape, types[1].shape
    if new[1:] != cache[2:]:
        raise GraphError(f"wanted one number and size of heads, got cache {cache} and new {new}")
    _check_rows(*types[2:])
    return cache


def _of_a_row(total: Dim, rows: Dim) -> Dim:
    """As if all rows had as many."""
    return total // rows if rows != 0 else Dim(0)


def _ragged_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    (tokens, heads, size), keys, rows = types[0].shape, types[1].shape[0], types[3].shape[0] - 1
    sides = _of_a_row(tokens, rows), _of_a_row(keys, rows)
    return costs.computed(types, result, rows * row_operations(heads, *sides, size, attrs))


def _paged_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """As if every table were full."""
    (tokens, heads, size), (_, block, key_heads, _) = types[0].shape, types[1].shape
    rows, blocks = types[5].shape
    cached = rows * blocks * block * key_heads * size * types[1].dtype.size * 2
    others = sum((costs.nbytes(type) for type in (types[0], *types[3:])), cached)
    each = row_operations(heads, _of_a_row(tokens, rows), blocks * block, size, attrs)
    return Cost(others, costs.nbytes(result), rows * each)


_attrs = {"scale": 0.5, "causal": True, "window": 0}


@row(
    dtype=_ragged_dtype,
    shape=_ragged_shape,
    promotion="none",
    canonical=default_scale,
    follows_first=True,
    samples=(
        sample("t 6 8", "k 2 8", "k 2 8", "int64: n", "int64: n", **_attrs),
        sample("t h d", "k h d", "k h d", "int64: n", "int64: n", **{**_attrs, "causal": False}),
    ),
    cost=_ragged_cost,
)
def ragged_attention(
    query: Array,
    key: Array,
    value: Array,
    query_offsets: Array,
    key_offsets: Array,
    *,
    scale: float = None,  # type: ignore[assignment] # noqa: RUF013 - filled in by default_scale
    causal: bool = True,
    window: int = 0,
) -> Array:
    """`attention` within each row of a ragged batch.

    Row r has the queries from `query_offsets[r]` to `query_offsets[r + 1]`, and its keys likewise.
    Query i of q attends, where `causal`, to the keys up to number i + keys - q, of these to the
    last `window` where that is not 0. A query that sees no key, or is in no row, gets zeros.

    Offsets that fall or leave the tensors are an InputError of the call; those of a row without
    queries may go unnoticed.
    """
    return _by_row(
        query,
        query_offsets,
        [(key[start:stop], value[start:stop]) for start, stop in pairwise(key_offsets)],
        lambda q, k, v: _attend(q, k, v, scale, causal, window),
    )


@row(
    dtype=_paged_dtype,
    shape=_paged_shape,
    promotion="none",
    canonical=default_scale,
    follows_first=True,
    samples=(
        sample(
            "t 6 8",
            "4 4 2 8",
            "4 4 2 8",
            "int64: b+1",
            "int64: b",
            "int32: b m",
            **{**_attrs, "window": 2},
        ),
        sample(
            "float32: t 2 8",
            "4 4 2 8",
            "4 4 2 8",
            "int64: b+1",
            "int64: b",
            "int32: b m",
            **_attrs,
        ),
    ),
    cost=_paged_cost,
)
def paged_attention(
    query: Array,
    key_cache: Array,
    value_cache: Array,
    row_offsets: Array,
    lengths: Array,
    block_tables: Array,
    *,
    scale: float = None,  # type: ignore[assignment] # noqa: RUF013 - filled in by default_scale
    causal: bool = True,
    window: int = 0,
) -> Array:
    """`ragged_attention` whose keys and values lie in the blocks of a cache.

    `lengths` counts the keys of each row, those of this step included; key j of row r is place
    j % block size of block `block_tables[r, j // block size]`. What lies behind a row's length, in
    its table or its blocks, is not looked at.

    A length that its table does not hold, a block that the cache does not have, and offsets that
    fall or leave the tokens are an InputError of the call; those of a row without tokens may go
    unnoticed.
    """
    size = key_cache.shape[1]

    def cached(cache: Array, length: int, table: Array) -> Array:
        blocks = cache[table[: -(-length // size)]]
        return merged(blocks, 0, 1)[:length]

    rows = list(zip(lengths, block_tables, strict=True))
    return _by_row(
        query,
        row_offsets,
        [(cached(key_cache, n, table), cached(value_cache, n, table)) for n, table in rows],
        lambda q, k, v: _attend(q, k, v, scale, causal, window),
    )


def _by_row(
    query: Array,
    offsets: Array,
    keys: Sequence[tuple[Array, Array]],
    attend: Callable[[Array, Array, Array], Array],
) -> Array:
    result = np.zeros_like(query)
    for (key, value), start, stop in zip(keys, offsets, offsets[1:], strict=False):
        result[start:stop] = attend(query[start:stop], key, value)
    return result


def _attend(
    query: Array, key: Array, value: Array, scale: float, causal: bool, window: int
) -> Array:
    """`[queries, heads, size]` of one row, computed in float64."""
    group = query.shape[1] // max(key.shape[1], 1)
    q, k, v = (
        np.swapaxes(x.astype(np.float64), 0, 1)
        for x in (query, np.repeat(key, group, axis=1), np.repeat(value, group, axis=1))
    )
    scores = q @ np.swapaxes(k, 1, 2) * scale
    queries, keys = scores.shape[1:]
    if causal:
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        if window:
            seen &= ~np.tri(queries, keys, keys - queries - window, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    shares = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = np.sum(shares, axis=-1, keepdims=True)
    result = (shares / np.where(total == 0, 1, total)) @ v
    return np.swapaxes(result, 0, 1).astype(query.dtype)


@row(
    dtype=_written,
    shape=_cache_shape,
    promotion="none",
    samples=(
        sample("4 4 h d", "t h d", "int64: b+1", "int64: b", "int32: b m"),
        sample("4 4 2 3", "t 2 3", "int64: b+1", "int64: b", "int32: b m"),
    ),
)
def paged_write(
    cache: Array, new: Array, row_offsets: Array, lengths: Array, block_tables: Array
) -> Array:
    """The cache with the tokens of `new` as the last ones of their rows.

    Token i of q in row r goes to place p % block size of block `block_tables[r, p // block size]`,
    p = lengths[r] - q + i. Tokens in no row go nowhere; no two may go to one place.

    Where the caller passes the memory of the cache as the output too, nothing but the new tokens
    is written, as long as nothing reads the old cache afterwards. Errors are those of
    `paged_attention`, and a row of more new tokens than its length; after one, the rows of the step
    are undefined.
    """
    result, size = cache.copy(), cache.shape[1]
    rows = zip(row_offsets, row_offsets[1:], lengths, block_tables, strict=False)
    for start, stop, length, table in rows:
        tokens = new[start:stop]
        places = length - len(tokens) + np.arange(len(tokens))
        result[table[places // size], places % size] = tokens
    return result
