"""Products with weights in 8 or 4 bits, plain and packed.

A weight stands for `q * scale`, with an integer or a float of 8 bits as q and one scale for each
group of consecutive elements along k: symmetric quantization of the weights alone (Frantar et al.,
arXiv:2210.17323; Micikevicius et al., arXiv:2209.05433). With a minimum for each group it stands
for `n * scale + minimum`, with an integer n that has no sign.
The products are those of floats, and nothing is rounded but the result; where the activations are
integers, too (see `rounded`), products of a group are exact and only scaled in floats.
"""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import pack_b, panels, unpacked
from heddle.graph.ops.rounded import (
    ACTIVATIONS,
    F32,
    MOST,
    RAISED,
    check_group,
    check_panels,
    check_scales,
    checked_result,
    rounded,
)
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.rounding import held
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

HELD = {8: (DType.int8, DType.float8_e4m3fn, DType.float8_e5m2), 4: (DType.uint8,)}
"""What holds weights of so many bits."""

BYTES = 4
"""Bytes of 4-bit weights in an element of the packed tensor."""


def _check_rank(name: str, type: TensorType, rank: int) -> None:
    if type.rank != rank:
        raise GraphError(f"{name}: wanted rank {rank}, got rank {type.rank} ({type})")


def of_activations(types: Types, attrs: Attrs, name: str = "weight") -> DType:
    """float32, float16 or bfloat16, x's; the weight has 8 bits, or 4 in uint8.

    Scales have x's dtype or are float16, minimums are as scales, and beside a uint8 weight.
    """
    x, weight, scales, *minimums = types
    bits = attrs["bits"]
    if bits not in HELD:
        raise GraphError(f"bits: wanted 8 or 4, got {bits}")
    if x.dtype not in ACTIVATIONS:
        raise GraphError(f"x: wanted float32, float16 or bfloat16, got {x.dtype}")
    known, beside = ((DType.uint8,), " and minimums") if minimums else (HELD[bits], "")
    if weight.dtype not in known:
        wanted = " or ".join(map(str, known))
        raise GraphError(f"{name}: wanted {wanted} for {bits} bits{beside}, got {weight.dtype}")
    if scales.dtype not in (x.dtype, DType.float16):
        other = "" if x.dtype is DType.float16 else ", or float16"
        raise GraphError(f"scales: wanted {x.dtype}, as x{other}, got {scales.dtype}")
    for type in minimums:
        if type.dtype is not scales.dtype:
            raise GraphError(f"minimums: wanted {scales.dtype}, as scales, got {type.dtype}")
    activations = attrs["activations"]
    if activations not in ("float", "int8"):
        raise GraphError(f"activations: wanted 'float' or 'int8', got {activations!r}")
    if activations == "int8" and weight.dtype.is_float8:
        raise GraphError(f"activations: wanted 'float' for a weight of {weight.dtype}, got 'int8'")
    if activations == "int8" and attrs["group"] > MOST:
        raise GraphError(
            f"group: wanted at most {MOST} with activations='int8', got {attrs['group']}"
        )
    return x.dtype


def _product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]`, `[n, k]` (4 bits: `[n, k / 2]`) and `[n, k / group]` give `[..., m, n]`.

    Minimums have the shape of the scales.
    """
    return scaled_shape(types, attrs, "weight", 2)


def scaled_shape(types: Types, attrs: Attrs, name: str, rank: int) -> Shape:
    """The shape of a product by weights called `name`, which have that rank, as scales do."""
    x, weight, scales, *minimums = types
    bits, group = attrs["bits"], attrs["group"]
    check_group(group)
    rules.check_rank("x", x, 2)
    _check_rank(name, weight, rank)
    _check_rank("scales", scales, rank)
    *leading, n, groups = scales.shape
    if groups.static is None:
        raise GraphError(f"scales: wanted a static number of groups, got {scales.shape}")
    k = groups * group
    if x.shape[-1] != k:
        raise GraphError(f"x: wanted k = {k}, {groups} groups of {group}, got {x.shape}")
    wanted = Shape((*leading, n, groups * (group * bits // 8)))
    if weight.shape != wanted:
        raise GraphError(f"{name}: wanted {wanted} for scales {scales.shape}, got {weight.shape}")
    for type in minimums:
        if type.shape != scales.shape:
            raise GraphError(f"minimums: wanted {scales.shape}, as scales, got {type.shape}")
    return Shape((*x.shape[:-1], n))


@row(
    dtype=of_activations,
    shape=_product,
    samples=(
        sample("m 64", "int8: n 64", "n 2", bits=8, group=32, activations="float"),
        sample("b m 128", "uint8: n 64", "n 1", bits=4, group=128, activations="float"),
        sample("m 64", "float8_e4m3fn: n 64", "n 1", bits=8, group=64, activations="float"),
        sample("m 64", "float8_e5m2: n 64", "n 2", bits=8, group=32, activations="float"),
        sample("m 64", "uint8: n 32", "n 2", bits=4, group=32, activations="int8"),
        sample("b m 64", "uint8: n 32", "n 2", "n 2", bits=4, group=32, activations="float"),
        sample("m 64", "uint8: n 64", "n 1", "n 1", bits=8, group=64, activations="float"),
        sample("m 64", "uint8: n 64", "n 2", "n 2", bits=8, group=32, activations="int8"),
    ),
    promotion="none",
    follows_first=True,
    cost=costs.product,
)
def quantized_matmul(
    x: Array,
    weight: Array,
    scales: Array,
    minimums: Array | None = None,
    *,
    bits: int = 8,
    group: int = 128,
    activations: str = "float",
) -> Array:
    """`x @ w.T` for `w = q * scale`: q is the 8-bit weight, or in 4 bits `q + 8`, even k lower.

    Element (i, j) of q has the scale (i, j // group). In 4 bits, byte j of a row holds elements 2j
    (its lower half) and 2j + 1, each as q + 8, with q from -8 to 7. With `minimums`, one beside
    each scale, `w = n * scale + minimum`: n has no sign, and is the uint8 weight itself, or the
    half of a byte. With `activations="int8"` each group of a row of x becomes integers, too: it is
    rounded to a 127th of its largest magnitude, but where it meets minimums, to which the middle of
    n, 128 or 8, counts, times the scale.
    """
    integers = _nibbles(weight) if bits == 4 else weight
    if bits == 8 and minimums is not None:
        integers = weight.astype(np.int16) - RAISED[8]
    left = rounded(x, group) if activations == "int8" else x
    product = np.matmul(left, _scaled(integers, scales, group).T)
    if minimums is not None:
        middles = np.repeat(minimums + RAISED[bits] * scales, group, axis=-1)
        product += np.matmul(x, middles.T)
    return product.astype(x.dtype)


def _nibbles(packed: Array) -> Array:
    """The integers in the bytes of 4-bit weights."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return merged(pairs, -2, -1).astype(np.int8) - 8


def _scaled(integers: Array, scales: Array, group: int) -> Array:
    return integers.astype(scales.dtype) * np.repeat(scales, group, axis=-1)


def _packed_bytes(types: Types, attrs: Attrs) -> Shape:
    """`[..., n, k / 2]` gives `[..., ceildiv(n, 32), k / 8, 32]`."""
    (weight,) = types
    rules.check_rank("weight", weight, 2)
    *leading, n, length = weight.shape
    if length % BYTES != 0:
        raise GraphError(f"weight: wanted [..., n, a multiple of {BYTES}], got {weight.shape}")
    return Shape((*leading, *panels(n, length // BYTES, 1)))


def _four_bytes(types: Types, attrs: Attrs) -> DType:
    """uint8 gives uint32."""
    if types[0].dtype is not DType.uint8:
        raise GraphError(f"weight: wanted uint8, got {types[0].dtype}")
    return DType.uint32


@row(
    dtype=_four_bytes,
    shape=_packed_bytes,
    samples=(sample("uint8: n 12"), sample("uint8: b n 4")),
    public=False,
)
def pack_int4(weight: Array) -> Array:
    """4-bit weights in panels of 32 columns, eight along k a uint32: even ones in its lower half.

    Each half has the first one lowest.
    """
    words = _nibbles_in_order(np.ascontiguousarray(weight).view("<u4"), (0, 2, 4, 6, 1, 3, 5, 7))
    return pack_b.row.compute(words, transposed=True, group=1)


def _nibbles_in_order(words: Array, order: tuple[int, ...]) -> Array:
    """uint32 whose nibble i, from the lowest on, is nibble `order[i]` of `words`."""
    found = np.zeros_like(words)
    for place, nibble in enumerate(order):
        part = words >> np.uint32(4 * nibble)
        part &= 15
        part <<= np.uint32(4 * place)
        found |= part
    return found


def packed_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, k]`, panels of weights and panels `[ceildiv(n, 32), k / group, 32]` of scales."""
    a, weight, scales = types
    rules.check_rank("a", a, 2)
    check_group(attrs["group"])
    n: Dim = attrs["columns"]
    k = a.shape[-1]
    if k % attrs["group"] != 0:
        raise GraphError(f"a: wanted whole groups of {attrs['group']}, got {a.shape}")
    check_panels(weight, scales, n, k, attrs["group"])
    return Shape((*a.shape[:-1], n))


def float_left(types: Types, attrs: Attrs) -> DType:
    """float32 or bfloat16, 8 bits or uint32, scales of floats; the result's is an attribute."""
    a, weight, scales = types
    if a.dtype not in (DType.float32, DType.bfloat16):
        raise GraphError(f"a: wanted float32 or bfloat16, got {a.dtype}")
    if weight.dtype not in (*HELD[8], DType.uint32):
        wanted = " or ".join(map(str, (*HELD[8], DType.uint32)))
        raise GraphError(f"weight: wanted {wanted}, got {weight.dtype}")
    check_scales(scales)
    return checked_result(attrs)


@row(
    dtype=float_left,
    shape=packed_product,
    samples=(
        sample("float32: m 64", "int8: 2 16 32 4", "2 2 32", columns=Dim(40), group=32, dtype=F32),
        sample("float32: b m 64", "uint32: 1 8 32", "1 1 32", columns=Dim(32), group=64, dtype=F32),
        sample(
            "float32: m 64",
            "float8_e5m2: 2 16 32 4",
            "2 2 32",
            columns=Dim(40),
            group=32,
            dtype=F32,
        ),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def quantized_matmul_packed(
    a: Array, weight: Array, scales: Array, *, columns: Dim, group: int, dtype: DType
) -> Array:
    """`quantized_matmul` of the results of `pack_b` or `pack_int4`, and `pack_b` for the scales."""
    k, n = a.shape[-1], int(columns)
    depth = k // 8 if weight.dtype == np.uint32 else k
    integers, shares = unpacked(weight, depth, n).T, unpacked(scales, k // group, n).T
    if weight.dtype == np.uint32:
        words = _nibbles_in_order(integers, (0, 4, 1, 5, 2, 6, 3, 7))
        integers = _nibbles(np.ascontiguousarray(words).view(np.uint8))
    return held(np.matmul(a, _scaled(integers, shares, group).T), dtype)
