"""Matrix products, plain and with packed weights."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape
from heddle.runtime.errors import GraphError

PANEL = 32
"""Columns in a panel of a packed matrix."""


def _product(types: Types, attrs: Attrs) -> Shape:
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


@row(
    dtype=rules.floating,
    shape=_product,
    samples=(
        sample("m k", "k n"),
        sample("b m k", "k n"),
        sample("b 1 m k", "c k n"),
    ),
    cost=costs.product,
)
def matmul(x: Array, y: Array) -> Array:
    """The matrix product of the last two dims; `x @ y.T` for a transposed right side."""
    return np.matmul(x, y)


def _panels(types: Types, attrs: Attrs) -> Shape:
    """`[..., k, n]` gives `[..., ceildiv(n, 32), k, 32]`."""
    (b,) = types
    rules.check_rank("b", b, 2)
    *leading, k, n = b.shape
    if attrs["transposed"]:
        k, n = n, k
    return Shape((*leading, (n + (PANEL - 1)) // PANEL, k, Dim(PANEL)))


@row(
    dtype=rules.same,
    shape=_panels,
    samples=(sample("k 70", transposed=False), sample("b n k", transposed=True)),
    public=False,
)
def pack_b(b: Array, *, transposed: bool) -> Array:
    """A right side in panels of 32 columns, zero beyond n; `transposed`: b is `[..., n, k]`."""
    if transposed:
        b = np.swapaxes(b, -1, -2)
    *leading, k, n = b.shape
    panels = -(-n // PANEL)
    full = np.zeros((*leading, k, panels * PANEL), b.dtype)
    full[..., :n] = b
    return np.swapaxes(full.reshape(*leading, k, panels, PANEL), -3, -2)


def _wide_left(types: Types, attrs: Attrs) -> DType:
    """Floats; that of b. 16-bit floats of b are multiplied with float32."""
    a, b = types
    rules.floating(types[1:], attrs)
    wanted = DType.float64 if b.dtype is DType.float64 else DType.float32
    if a.dtype is not wanted:
        raise GraphError(f"a: wanted {wanted} for b of {b.dtype}, got {a.dtype}")
    return b.dtype


def _packed_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]` and panels of `[..., k, n]` (or `[k, n]`) give `[..., m, n]`."""
    a, b = types
    rules.check_rank("a", a, 2)
    rules.check_rank("b", b, 3)
    n: Dim = attrs["columns"]
    *leading, m, k = a.shape
    if list(b.shape[:-3]) not in ([], leading):
        raise GraphError(f"b: wanted leading dims {Shape(leading)} or none, got {b.shape}")
    wanted = Shape(((n + (PANEL - 1)) // PANEL, k, Dim(PANEL)))
    if Shape(b.shape[-3:]) != wanted:
        raise GraphError(f"b: wanted panels {wanted} for n = {n}, got {b.shape}")
    return Shape((*leading, m, n))


@row(
    dtype=_wide_left,
    shape=_packed_product,
    samples=(
        sample("float32: b m k", "3 k 32", columns=Dim(70)),
        sample("b m k", "b 1 k 32", columns=Dim(32)),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def matmul_packed(a: Array, b: Array, *, columns: Dim) -> Array:
    """The matrix product of `a` and the result of `pack_b`; `columns` is n."""
    panels, k, width = b.shape[-3:]
    plain = np.swapaxes(b, -3, -2).reshape(*b.shape[:-3], k, panels * width)
    return np.matmul(a, plain[..., : int(columns)])
