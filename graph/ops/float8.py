"""Products of 8-bit floats, summed in float32."""

from __future__ import annotations

import numpy as np

from heddle.graph.dtype import DType
from heddle.graph.ops import costs
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import product_shape
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.runtime.errors import GraphError


def _floats(types: Types, attrs: Attrs) -> DType:
    """float8_e4m3fn or float8_e5m2, either by either; the result is float32."""
    for name, type in zip("ab", types, strict=True):
        if not type.dtype.is_float8:
            raise GraphError(f"{name}: wanted float8_e4m3fn or float8_e5m2, got {type.dtype}")
    return DType.float32


@row(
    dtype=_floats,
    shape=product_shape,
    samples=(
        sample("float8_e4m3fn: m k", "float8_e4m3fn: k n"),
        sample("float8_e5m2: b 1 m k", "float8_e4m3fn: c k n"),
        sample("float8_e4m3fn: m 64", "float8_e4m3fn: 64 n"),
    ),
    promotion="none",
    cost=costs.product,
)
def float8_matmul(a: Array, b: Array) -> Array:
    """The matrix product of 8-bit floats as float32: each product is exact, sums are rounded.

    A linear layer with weights `w` of 8 bits quantizes each row of x while the model runs; scales,
    bias and cast are computed with the product:

        scale = ops.maximum(ops.max(ops.abs(x), axis=-1) / 448, 1e-30)
        q = ops.saturating_cast(x / scale, DType.float8_e4m3fn)
        y = ops.cast(ops.float8_matmul(q, w) * scale * w_scale, DType.bfloat16)

    On a CPU sums are float32. Tensor cores of Hopper were found to add with about 14 bits of the
    largest term (DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv:2412.19437, 3.3.2).
    """
    return np.matmul(a.astype(np.float32), b.astype(np.float32))
