"""Rows that go to one of several matrices each: the products of a mixture of experts.

Rows are sorted by group, and `offsets` says where each group begins, as for ragged rows. What sorts
them is here as well (Shazeer et al., arXiv:1701.06538, has the layer).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import PAIRS, left_of_panels, packed_shape, unpacked
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

MOST_GROUPS = 4096
"""Groups that rows can be sorted by: a kernel counts them all at once."""


def check_offsets(offsets: TensorType, groups: Dim) -> None:
    """Raises GraphError unless these say where so many groups begin and end."""
    if offsets.dtype not in (DType.int32, DType.int64):
        raise GraphError(f"offsets: wanted int32 or int64, got {offsets.dtype}; cast it first")
    if offsets.shape != Shape((groups + 1,)):
        raise GraphError(f"offsets: wanted {Shape((groups + 1,))}, got {offsets.shape}")


def check_rows(x: TensorType) -> None:
    """Raises GraphError unless these are rows."""
    if x.rank != 2:
        raise GraphError(f"x: wanted rank 2, got {x.shape}")


def by_group(result: Array, offsets: Array, product: Callable[[int, slice], Array]) -> Array:
    """`result` with `product(group, rows)` in the rows of each group."""
    for group, (start, stop) in enumerate(pairwise(offsets)):
        rows = slice(start, stop)
        result[rows] = product(group, rows)
    return result


def _grouped_dtype(types: Types, attrs: Attrs) -> DType:
    """Floats; x's, which weights has too. Offsets are int32 or int64."""
    return rules.floating(types[:2], attrs)


def _grouped_shape(types: Types, attrs: Attrs) -> Shape:
    """`[rows, k]`, `[groups, k, n]` and offsets `[groups + 1]` give `[rows, n]`."""
    x, weights, offsets = types
    check_rows(x)
    if weights.rank != 3:
        raise GraphError(f"weights: wanted rank 3, got {weights.shape}")
    groups, k, n = weights.shape
    if x.shape[-1] != k:
        raise GraphError(f"wanted [rows, k] and [groups, k, n], got {x.shape} and {weights.shape}")
    check_offsets(offsets, groups)
    return Shape((x.shape[0], n))


@row(
    dtype=_grouped_dtype,
    shape=_grouped_shape,
    samples=(
        sample("m k", "b k n", "int64: b+1"),
        sample("m 3", "2 3 n", "int32: 3"),
    ),
    promotion="none",
    cost=costs.product,
)
def grouped_matmul(x: Array, weights: Array, offsets: Array) -> Array:
    """`x @ weights[g]` for the rows of each group g; rows in no group give zeros.

    Group g has the rows from `offsets[g]` to `offsets[g + 1]`. A transposed right side is read as
    it is, as by `matmul`. Offsets that fall or leave the rows are an InputError of the call.
    """
    zeros = np.zeros((len(x), weights.shape[-1]), x.dtype)
    return by_group(zeros, offsets, lambda group, rows: x[rows] @ weights[group])


def _packed_shape(types: Types, attrs: Attrs) -> Shape:
    """`[rows, k]`, panels of `[groups, k, n]` and offsets `[groups + 1]` give `[rows, n]`."""
    a, b, offsets = types
    check_rows(a)
    rules.check_rank("b", b, 1)
    check_offsets(offsets, b.shape[0])
    one = TensorType(b.dtype, b.shape[1:], b.device)
    return packed_shape((a, one), attrs, PAIRS if a.dtype is DType.bfloat16 else 1)


@row(
    dtype=left_of_panels,
    shape=_packed_shape,
    samples=(
        sample("float32: m k", "b 3 k 32", "int64: b+1", columns=Dim(70)),
        sample("bfloat16: m 7", "bfloat16: 2 3 4 32 2", "int32: 3", columns=Dim(70)),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def grouped_matmul_packed(a: Array, b: Array, offsets: Array, *, columns: Dim) -> Array:
    """`grouped_matmul` of `a` and the result of `pack_b`; `columns` is n."""
    return grouped_matmul.row.compute(a, unpacked(b, a.shape[-1], int(columns)), offsets)


def _sorted_dtype(types: Types, attrs: Attrs) -> DType:
    """Integers; the result is int64."""
    if not types[0].dtype.is_integer:
        raise GraphError(f"groups_of: wanted an integer dtype, got {types[0].dtype}")
    return DType.int64


def _check_sorted(types: Types, attrs: Attrs) -> None:
    if types[0].rank != 1:
        raise GraphError(f"groups_of: wanted rank 1, got {types[0].shape}")
    if not 1 <= attrs["groups"] <= MOST_GROUPS:
        raise GraphError(f"groups: wanted 1 to {MOST_GROUPS}, got {attrs['groups']}")


def _ends(types: Types, attrs: Attrs) -> Shape:
    """`[rows]` gives `[groups + 1]`."""
    _check_sorted(types, attrs)
    return Shape((attrs["groups"] + 1,))


def _one_each(types: Types, attrs: Attrs) -> Shape:
    """`[rows]` gives `[rows]`."""
    _check_sorted(types, attrs)
    return types[0].shape


def _checked(groups_of: Array, groups: int) -> Array:
    if groups_of.size and (groups_of.min() < 0 or groups_of.max() >= groups):
        raise IndexError(f"wanted groups from 0 to {groups - 1}")
    return groups_of


@row(
    dtype=_sorted_dtype,
    shape=_ends,
    samples=(sample("int64: m", groups=4), sample("uint8: m", groups=7)),
    promotion="none",
)
def group_offsets(groups_of: Array, *, groups: int) -> Array:
    """Where the rows of each group begin, once they are sorted by group: for `grouped_matmul`.

    A group below 0 or of `groups` and above is an error when the model runs.
    """
    counts = np.bincount(_checked(groups_of, groups), minlength=groups)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@row(
    dtype=_sorted_dtype,
    shape=_one_each,
    samples=(sample("int64: m", groups=4), sample("int32: m", groups=4, places=True)),
    promotion="none",
)
def group_order(groups_of: Array, *, groups: int, places: bool = False) -> Array:
    """The numbers of the rows, sorted by group; rows of a group stay in their order.

    With `places`, where each row goes in that order: what finds it again behind a `grouped_matmul`.
    A group below 0 or of `groups` and above is an error when the model runs.
    """
    order = np.argsort(_checked(groups_of, groups), kind="stable")
    return np.argsort(order) if places else order
