"""Attention over ragged rows whose keys and values are in the blocks of a cache.

The tokens of all rows of a batch follow one another, and `row_offsets` says where each row begins,
as `heddle.contexts.StepBatch` writes them. A cache is `[blocks, block_size, heads, head size]`;
`block_tables` says which blocks hold a row, in order. (Kwon et al., arXiv:2309.06180.)
"""

from __future__ import annotations

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.attention import default_scale, row_operations
from heddle.graph.ops.declare import row
from heddle.graph.ops.ragged import (
    CAPPED,
    NARROW,
    PLAIN,
    attend,
    attended,
    attended_shape,
    by_row,
    check_attention,
    check_integers,
    check_ranks,
    check_sinks,
    of_a_row,
)
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

_CACHE = {"row_offsets": DType.int64, "lengths": DType.int64, "block_tables": DType.int32}


def _paged_dtype(types: Types, attrs: Attrs) -> DType:
    """float32, bfloat16, float16; the query's. Caches have it, or fewer bits. Tables are int32."""
    check_integers(_CACHE, types[3:6])
    check_sinks(types[6:])
    return attended(types)


def _written(types: Types, attrs: Attrs) -> DType:
    """Any dtype; the cache's, which `new` has too. Tables are int32, the others int64."""
    check_integers(_CACHE, types[2:])
    return rules.one_dtype(types[:2])


def _check_rows(row_offsets: TensorType, lengths: TensorType, tables: TensorType) -> None:
    rows = lengths.shape[0]
    if row_offsets.shape[0] != rows + 1:
        raise GraphError(f"row_offsets: wanted {Shape((rows + 1,))}, got {row_offsets.shape}")
    if tables.shape[0] != rows:
        raise GraphError(f"block_tables: wanted {rows} rows as in lengths, got {tables.shape}")


def _paged_shape(types: Types, attrs: Attrs) -> Shape:
    """`[tokens, heads, value size]`; caches are `[blocks, block size, key heads, size]`."""
    names = ("query", "key_cache", "value_cache", *_CACHE)
    check_attention(names, types, (3, 4, 4, 1, 1, 2), attrs)
    _check_rows(*types[3:6])
    return attended_shape(types[0], attrs)


def _cache_shape(types: Types, attrs: Attrs) -> Shape:
    """The cache's, `[blocks, block size, heads, size]`; `new` is `[tokens, heads, size]`."""
    check_ranks(("cache", "new", *_CACHE), types, (4, 3, 1, 1, 2))
    cache, new = types[0].shape, types[1].shape
    if new[1:] != cache[2:]:
        raise GraphError(f"wanted one number and size of heads, got cache {cache} and new {new}")
    _check_rows(*types[2:])
    return cache


def _paged_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """As if every table were full, and values that are a part of heads the same as keys."""
    (tokens, heads, size), (_, block, key_heads, _) = types[0].shape, types[1].shape
    rows, blocks = types[5].shape
    columns = size + result.shape[-1]
    held = size if attrs["value_size"] else columns
    cached = rows * blocks * block * key_heads * held * types[1].dtype.size
    others = sum((costs.nbytes(type) for type in (types[0], *types[3:])), cached)
    each = row_operations(heads, of_a_row(tokens, rows), blocks * block, columns, attrs)
    return Cost(others, costs.nbytes(result), rows * each)


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
            **{**PLAIN, "window": 2},
        ),
        sample(
            "float32: t 2 8",
            "4 4 2 8",
            "4 4 2 8",
            "int64: b+1",
            "int64: b",
            "int32: b m",
            **PLAIN,
        ),
        sample(
            "t 6 8",
            "4 4 2 8",
            "4 4 2 8",
            "int64: b+1",
            "int64: b",
            "int32: b m",
            "float32: 6",
            **CAPPED,
        ),
        sample(
            "t 6 8",
            "4 4 1 8",
            "4 4 1 8",
            "int64: b+1",
            "int64: b",
            "int32: b m",
            **NARROW,
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
    sinks: Array | None = None,
    *,
    scale: float = None,  # type: ignore[assignment] # noqa: RUF013 - filled in by default_scale
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    value_size: int = 0,
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
    attrs = {"scale": scale, "causal": causal, "window": window, "softcap": softcap}
    value_cache = value_cache[..., : value_size or None]
    return by_row(
        query,
        row_offsets,
        [(cached(key_cache, n, table), cached(value_cache, n, table)) for n, table in rows],
        value_cache.shape[-1],
        lambda q, k, v: attend(q, k, v, sinks, attrs),
    )


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
