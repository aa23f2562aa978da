"""Rows that go to one of several matrices each, with weights in 8 or 4 bits, plain and packed.

What a weight stands for is as in `quantized_matmul`, which rows go where as in `grouped_matmul`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, quantization, rounded, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.grouped import by_group, check_offsets, check_rows
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.rounding import held
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError


def _beside_offsets(types: Types) -> Types:
    """The operands of `quantized_matmul`: all but the offsets."""
    return [*types[:3], *types[4:]]


def _activations(types: Types, attrs: Attrs) -> DType:
    """As `quantized_matmul`. Offsets are int32 or int64."""
    return quantization.of_activations(_beside_offsets(types), attrs, "weights")


def _product(types: Types, attrs: Attrs) -> Shape:
    """`[rows, k]`, `[groups, n, k]` (4 bits: k / 2), `[groups, n, k / group]` give `[rows, n]`.

    Offsets are `[groups + 1]`, minimums as scales.
    """
    x, weights, _, offsets = types[:4]
    check_rows(x)
    shape = quantization.scaled_shape(_beside_offsets(types), attrs, "weights", 3)
    check_offsets(offsets, weights.shape[0])
    return shape


@row(
    dtype=_activations,
    shape=_product,
    samples=(
        sample(
            "m 64", "int8: b n 64", "b n 2", "int64: b+1", bits=8, group=32, activations="float"
        ),
        sample("m 64", "uint8: 2 n 32", "2 n 1", "int32: 3", bits=4, group=64, activations="float"),
        sample("m 32", "uint8: 2 n 16", "2 n 1", "int32: 3", bits=4, group=32, activations="int8"),
        sample(
            *("m 64", "uint8: 2 n 32", "2 n 2", "int64: 3", "2 n 2"),
            bits=4,
            group=32,
            activations="float",
        ),
        sample(
            *("m 64", "uint8: 2 n 64", "2 n 1", "int64: 3", "2 n 1"),
            bits=8,
            group=64,
            activations="int8",
        ),
    ),
    promotion="none",
    follows_first=True,
    cost=costs.product,
)
def quantized_grouped_matmul(
    x: Array,
    weights: Array,
    scales: Array,
    offsets: Array,
    minimums: Array | None = None,
    *,
    bits: int = 8,
    group: int = 128,
    activations: str = "float",
) -> Array:
    """`quantized_matmul` for the rows of each group, as `grouped_matmul` has them.

    Group g has the rows from `offsets[g]` to `offsets[g + 1]`, its own weights, their scales and
    their `minimums`, if there are any; rows in no group give zeros. Offsets that fall or leave the
    rows are an InputError of the call.
    """
    attrs = {"bits": bits, "group": group, "activations": activations}
    product = partial(quantization.quantized_matmul.row.compute, **attrs)
    sides = [weights, scales] if minimums is None else [weights, scales, minimums]
    return _by_group(product, np.zeros((len(x), scales.shape[1]), x.dtype), x, sides, offsets)


def _by_group(
    product: Callable[..., Array], zeros: Array, x: Array, sides: Sequence[Array], offsets: Array
) -> Array:
    """The results of a product by one matrix for the rows of each group, `zeros` for others.

    `sides` are what the product takes behind x, each with the groups in front.
    """

    def one(group: int, rows: slice) -> Array:
        return product(x[rows], *(side[group] for side in sides))

    return by_group(zeros, offsets, one)


def _by_panels(
    product: Callable[..., Array], attrs: Attrs, a: Array, sides: Sequence[Array], offsets: Array
) -> Array:
    """The same of a packed product with these attributes."""
    zeros = held(np.zeros((len(a), int(attrs["columns"]))), attrs["dtype"])
    return _by_group(product, zeros, a, sides, offsets)


def _of_one_group(types: Types) -> Types:
    """The operands of a product by the panels of one group."""
    a, weights, scales, offsets = types
    check_rows(a)
    for name, type in (("weights", weights), ("scales", scales)):
        rules.check_rank(name, type, 1)
    check_offsets(offsets, weights.shape[0])
    if scales.shape[0] != weights.shape[0]:
        raise GraphError(f"scales: wanted {weights.shape[0]} groups, got {scales.shape}")
    return [a, *(TensorType(x.dtype, x.shape[1:], x.device) for x in (weights, scales))]


def _packed_left(types: Types, attrs: Attrs) -> DType:
    """As `quantized_matmul_packed`. Offsets are int32 or int64."""
    return quantization.float_left(types[:3], attrs)


def _packed_product(types: Types, attrs: Attrs) -> Shape:
    """`[rows, k]`, panels of weights and scales, `[groups]` in front, offsets `[groups + 1]`."""
    return quantization.packed_product(_of_one_group(types), attrs)


@row(
    dtype=_packed_left,
    shape=_packed_product,
    samples=(
        sample(
            *("float32: m 64", "int8: b 2 16 32 4", "b 2 2 32", "int64: b+1"),
            columns=Dim(40),
            group=32,
            dtype=rounded.F32,
        ),
        sample(
            *("float32: m 64", "uint32: 2 1 8 32", "2 1 1 32", "int32: 3"),
            columns=Dim(32),
            group=64,
            dtype=rounded.F32,
        ),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def quantized_grouped_matmul_packed(
    a: Array,
    weights: Array,
    scales: Array,
    offsets: Array,
    *,
    columns: Dim,
    group: int,
    dtype: DType,
) -> Array:
    """`quantized_matmul_packed` for the rows of each group, as `grouped_matmul` has them."""
    attrs = {"columns": columns, "group": group, "dtype": dtype}
    product = partial(quantization.quantized_matmul_packed.row.compute, **attrs)
    return _by_panels(product, attrs, a, [weights, scales], offsets)


def _rounded_left(types: Types, attrs: Attrs) -> DType:
    """As `rounded_matmul_packed`. Offsets are int32 or int64."""
    return rounded.rounded_left(types[:3], attrs)


def _rounded_product(types: Types, attrs: Attrs) -> Shape:
    """`[rows, bytes]`, panels of weights and scales with `[groups]` in front, `[groups + 1]`."""
    return rounded.rounded_product(_of_one_group(types), attrs)


@row(
    dtype=_rounded_left,
    shape=_rounded_product,
    samples=(
        sample(
            *("uint8: m 80", "int8: b 2 16 32 4", "b 2 2 32", "int64: b+1"),
            columns=Dim(40),
            group=32,
            dtype=rounded.F32,
        ),
        sample(
            *("uint8: m 72", "uint32: 2 1 8 32", "2 1 1 32", "int32: 3"),
            columns=Dim(32),
            group=64,
            dtype=rounded.F32,
        ),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def rounded_grouped_matmul_packed(
    a: Array,
    weights: Array,
    scales: Array,
    offsets: Array,
    *,
    columns: Dim,
    group: int,
    dtype: DType,
) -> Array:
    """`rounded_matmul_packed` for the rows of each group, as `grouped_matmul` has them."""
    attrs = {"columns": columns, "group": group, "dtype": dtype}
    product = partial(rounded.rounded_matmul_packed.row.compute, **attrs)
    return _by_panels(product, attrs, a, [weights, scales], offsets)
