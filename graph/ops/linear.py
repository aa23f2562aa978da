"""Matrix products, plain and with packed weights."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

PANEL = 32
"""Columns in a panel of a packed matrix."""

PAIRS = 2
"""Elements of bfloat16 along k that a packed matrix has side by side for a left side of them."""


def product_shape(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]` and `[..., k, n]` give `[..., m, n]`; leading dims broadcast."""
    x, y = types
    rules.check_rank("x", x, 2)
    rules.check_rank("y", y, 2)
    if x.shape[-1] != y.shape[-2]:
        raise GraphError(
            f"wanted [..., m, k] and [..., k, n], got {x.shape} and {y.shape}: k is "
            f"{x.shape[-1]} and {y.shape[-2]}"
        )
    leading = rules.broadcast_shapes([Shape(x.shape[:-2]), Shape(y.shape[:-2])])
    return Shape((*leading, x.shape[-2], y.shape[-1]))


def _product_dtype(types: Types, attrs: Attrs) -> DType:
    """Floats; the operands' own. tf32 is for float32."""
    dtype, precision = rules.floating(types, attrs), attrs["precision"]
    if precision not in ("full", "tf32"):
        raise GraphError(f"precision: wanted 'full' or 'tf32', got {precision!r}")
    if precision == "tf32" and dtype is not DType.float32:
        raise GraphError(f"precision: wanted float32 for 'tf32', got {dtype}")
    return dtype


@row(
    dtype=_product_dtype,
    shape=product_shape,
    samples=(
        sample("m k", "k n", precision="full"),
        sample("b m k", "k n", precision="full"),
        sample("b 1 m k", "c k n", precision="full"),
        sample("m k", "k n", precision="tf32"),
    ),
    cost=costs.product,
)
def matmul(x: Array, y: Array, *, precision: str = "full") -> Array:
    """The matrix product of the last two dims; `x @ y.T` for a transposed right side.

    With `precision="tf32"`, tensor cores may multiply float32 with 10 bits of its fraction: each
    product is off by a factor of 1 + 2**-9 at most, and sums are float32. A CPU has nothing faster
    than float32 itself, which it computes then.
    """
    return np.matmul(x, y)


def panels(n: Dim, k: Dim, group: int) -> Shape:
    """The shape of a packed `[k, n]` without leading dims, `group` elements along k together."""
    count = (n + (PANEL - 1)) // PANEL
    if group == 1:
        return Shape((count, k, Dim(PANEL)))
    return Shape((count, (k + (group - 1)) // group, Dim(PANEL), Dim(group)))


def _panels(types: Types, attrs: Attrs) -> Shape:
    """`[..., k, n]` gives `[..., ceildiv(n, 32), k, 32]`; groups `[..., k / group, 32, group]`."""
    (b,) = types
    rules.check_rank("b", b, 2)
    *leading, k, n = b.shape
    if attrs["transposed"]:
        k, n = n, k
    return Shape((*leading, *panels(n, k, attrs["group"])))


@row(
    dtype=rules.same,
    shape=_panels,
    samples=(
        sample("k 70", transposed=False, group=1),
        sample("b n k", transposed=True, group=1),
        sample("bfloat16: b k 70", transposed=False, group=2),
        sample("int8: n 7", transposed=True, group=4),
    ),
    public=False,
)
def pack_b(b: Array, *, transposed: bool, group: int) -> Array:
    """A right side in panels of 32 columns, zero beyond n; `transposed`: b is `[..., n, k]`.

    With a `group` of 2 or 4, so many elements along k lie side by side, zero beyond k.
    """
    if transposed:
        b = np.swapaxes(b, -1, -2)
    *leading, k, n = b.shape
    columns, steps = -(-n // PANEL) * PANEL, -(-k // group)
    full = b
    if (k, n) != (steps * group, columns):
        full = np.zeros((*leading, steps * group, columns), b.dtype)
        full[..., :k, :n] = b
    if group == 1:
        return np.swapaxes(full.reshape(*leading, k, columns // PANEL, PANEL), -3, -2)
    parts = full.reshape(*leading, steps, group, columns // PANEL, PANEL)
    return np.moveaxis(parts, (-2, -4, -1, -3), (-4, -3, -2, -1))


def unpacked(packed: Array, k: int, n: int) -> Array:
    """The `[..., k, n]` that `pack_b` was given; panels without groups end with their columns."""
    if packed.shape[-1] == PANEL:
        packed = packed[..., None]
    *leading, count, steps, width, group = packed.shape
    plain = np.moveaxis(packed, (-3, -1, -4, -2), (-4, -3, -2, -1))
    return plain.reshape(*leading, steps * group, count * width)[..., :k, :n]


def left_of_panels(types: Types, attrs: Attrs) -> DType:
    """Floats; that of b. Both sides are bfloat16, or a is float32 where b has 16 bits."""
    a, b = types[:2]
    rules.floating(types[1:2], attrs)
    if (a.dtype, b.dtype) == (DType.bfloat16, DType.bfloat16):
        return b.dtype
    wanted = DType.float64 if b.dtype is DType.float64 else DType.float32
    if a.dtype is not wanted:
        raise GraphError(f"a: wanted {wanted} for b of {b.dtype}, got {a.dtype}")
    return b.dtype


def _packed_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]` and panels of `[..., k, n]` (or `[k, n]`) give `[..., m, n]`."""
    return packed_shape(types, attrs, PAIRS if types[0].dtype is DType.bfloat16 else 1)


def packed_shape(types: Types, attrs: Attrs, group: int) -> Shape:
    """The shape of a product by panels whose elements lie in groups of `group` along k."""
    a, b = types
    rank = 3 if group == 1 else 4
    rules.check_rank("a", a, 2)
    rules.check_rank("b", b, rank)
    n: Dim = attrs["columns"]
    *leading, m, k = a.shape
    if list(b.shape[:-rank]) not in ([], leading):
        raise GraphError(f"b: wanted leading dims {Shape(leading)} or none, got {b.shape}")
    wanted = panels(n, k, group)
    if Shape(b.shape[-rank:]) != wanted:
        raise GraphError(f"b: wanted panels {wanted} for n = {n}, got {b.shape}")
    return Shape((*leading, m, n))


def _turned_dtype(types: Types, attrs: Attrs) -> DType:
    """float32 or float64; the operands' own."""
    dtype = rules.floating(types, attrs)
    if dtype.size < DType.float32.size:
        raise GraphError(f"wanted float32 or float64, got {dtype}")
    return dtype


def _turned_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., k, m]` by `[..., k, n]` is `[..., m, n]`, of the same leading dims."""
    a, b = types
    rules.check_rank("a", a, 2)
    rules.check_rank("b", b, 2)
    if a.shape[:-1] != b.shape[:-1]:
        raise GraphError(f"wanted [..., k, m] and [..., k, n], got {a.shape} and {b.shape}")
    return Shape((*a.shape[:-2], a.shape[-1], b.shape[-1]))


def _turned_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    return costs.computed(types, result, result.shape.elements * types[0].shape[-2] * 2)


@row(
    dtype=_turned_dtype,
    shape=_turned_product,
    samples=(sample("k 5", "k n"), sample("float64: b k 20", "float64: b k n")),
    promotion="none",
    cost=_turned_cost,
    public=False,
)
def turned_matmul(a: Array, b: Array) -> Array:
    """The matrix product of the transposed `a` and `b`."""
    return np.matmul(np.swapaxes(a, -1, -2), b)


@row(
    dtype=left_of_panels,
    shape=_packed_product,
    samples=(
        sample("float32: b m k", "3 k 32", columns=Dim(70)),
        sample("b m k", "b 1 k 32", columns=Dim(32)),
        sample("bfloat16: b m 7", "bfloat16: 3 4 32 2", columns=Dim(70)),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def matmul_packed(a: Array, b: Array, *, columns: Dim) -> Array:
    """The matrix product of `a` and the result of `pack_b`; `columns` is n.

    Where both are bfloat16, b is in pairs along k: a group of 2.
    """
    return np.matmul(a, unpacked(b, a.shape[-1], int(columns)))
