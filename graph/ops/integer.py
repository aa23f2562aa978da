"""Products of 8-bit integers, exact in 32 bits."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import packed_shape, product_shape, unpacked
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape
from heddle.runtime.errors import GraphError

FOURS = 4
"""Elements along k that lie together in a packed right side."""


def _integers(types: Types, attrs: Attrs) -> DType:
    """int8 or uint8 by int8; the result is int32."""
    if types[0].dtype not in (DType.int8, DType.uint8):
        raise GraphError(f"a: wanted int8 or uint8, got {types[0].dtype}")
    return _by_int8(types)


@row(
    dtype=_integers,
    shape=product_shape,
    samples=(
        sample("int8: m k", "int8: k n"),
        sample("uint8: b 1 m k", "int8: c k n"),
    ),
    promotion="none",
    cost=costs.product,
)
def integer_matmul(a: Array, b: Array) -> Array:
    """The matrix product of 8-bit integers as int32, exact, or modulo 2**32 where it is beyond.

    ONNX's MatMulInteger without zero points. A linear layer with weights `w` of int8 and a scale
    for each column quantizes each row of x while the model runs:

        scale = ops.max(ops.abs(x), axis=-1) / 127
        q = ops.cast(ops.round(x / ops.maximum(scale, 1e-30)), DType.int8)
        y = ops.cast(ops.integer_matmul(q, w), DType.float32) * scale * w_scale
    """
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


def _unsigned(types: Types, attrs: Attrs) -> DType:
    """uint8 by int8; the result is int32."""
    if types[0].dtype is not DType.uint8:
        raise GraphError(f"a: wanted uint8, got {types[0].dtype}")
    return _by_int8(types)


def _by_int8(types: Types) -> DType:
    if types[1].dtype is not DType.int8:
        raise GraphError(f"b: wanted int8, got {types[1].dtype}")
    return DType.int32


def _packed_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]` and panels of `[..., k, n]` (or `[k, n]`) in fours give `[..., m, n]`."""
    return packed_shape(types, attrs, FOURS)


@row(
    dtype=_unsigned,
    shape=_packed_product,
    samples=(
        sample("uint8: b m 7", "int8: 3 2 32 4", columns=Dim(70)),
        sample("uint8: b m 8", "int8: b 1 2 32 4", columns=Dim(32)),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def integer_matmul_packed(a: Array, b: Array, *, columns: Dim) -> Array:
    """`integer_matmul` of uint8 and the result of `pack_b` in groups of 4; `columns` is n."""
    plain = unpacked(b, a.shape[-1], int(columns))
    return np.matmul(a.astype(np.int32), plain.astype(np.int32))
