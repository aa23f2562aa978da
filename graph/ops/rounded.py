"""Rows in 8 bits: what `quantized_matmul` rounds its left side to where it is told to.

Each group of a row along k becomes integers from -127 to 127 and a scale, while the model runs
(dynamic quantization; Jacob et al., arXiv:1712.05877).
"""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import panels, unpacked
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.rounding import held
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

ACTIVATIONS = (DType.float32, DType.float16, DType.bfloat16)
"""What rows and scales may be, and results are."""

F32 = DType.float32
"""The result's dtype in samples."""

GROUPS = 32
"""Groups have a multiple of so many elements."""

MOST = 2**16
"""Elements of a group whose products by weights of 8 bits without a sign fit 32 bits."""

LARGEST = 127
"""The largest integer of a group."""

LEAST = 2.0**-120
"""A group whose largest magnitude is below this one becomes zero."""

HEAD = 8
"""Bytes of a group in front of its integers: the scale, and what is taken off its sums."""

RAISED = {4: 8, 8: 128}
"""How much is added to weights of so many bits, which have no sign then."""

TOGETHER = 4
"""Weights of 8 bits along k that lie together in panels."""

NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
"""The order of eight integers beside weights of 4 bits, as `pack_int4` has these: those in the
lower halves of a word's bytes, then those in the upper ones."""


def check_group(group: int) -> None:
    """Raises GraphError unless groups may have so many elements."""
    if group <= 0 or group % GROUPS:
        raise GraphError(f"group: wanted a positive multiple of {GROUPS}, got {group}")


def check_panels(weight: TensorType, scales: TensorType, columns: Dim, k: Dim, group: int) -> None:
    """Raises GraphError unless these are panels of `columns` columns with `k` elements each."""
    held = (k // 8, 1) if weight.dtype is DType.uint32 else (k, TOGETHER)
    wanted = {
        "weight": (weight, panels(columns, *held)),
        "scales": (scales, panels(columns, k // group, 1)),
    }
    for name, (type, shape) in wanted.items():
        if type.shape != shape:
            raise GraphError(f"{name}: wanted panels {shape} for n = {columns}, got {type.shape}")


def check_scales(scales: TensorType) -> None:
    """Raises GraphError unless they are floats that products are computed in."""
    if scales.dtype not in ACTIVATIONS:
        raise GraphError(f"scales: wanted float32, float16 or bfloat16, got {scales.dtype}")


def in_8_bits(x: Array, group: int) -> tuple[Array, Array]:
    """Integers [..., k / group, group] as float32, and scales [..., k / group, 1]."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // group, group)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        inverse = np.where(largest >= LEAST, np.float32(LARGEST) / largest, np.float32(0))
        # Products of two float32 are exact in float64, so they are rounded once.
        found = np.rint(groups.astype(np.float64) * inverse.astype(np.float64))
        scales = largest * np.float32(1 / LARGEST) + largest * np.float32(0)
    return np.nan_to_num(found, nan=0).astype(np.float32), scales


def rounded(x: Array, group: int) -> Array:
    """What the integers of `x` stand for, in float32; NaN in groups with what is not finite."""
    integers, scales = in_8_bits(x, group)
    return (integers * scales).reshape(x.shape)


def _bytes(types: Types, attrs: Attrs) -> Shape:
    """`[..., k]` gives `[..., (group + 8) * k / group]`."""
    (x,) = types
    rules.check_rank("x", x, 1)
    group = attrs["group"]
    check_group(group)
    if x.shape[-1] % group != 0:
        raise GraphError(f"x: wanted whole groups of {group}, got {x.shape}")
    return Shape((*x.shape[:-1], x.shape[-1] // group * (group + HEAD)))


def _floats(types: Types, attrs: Attrs) -> DType:
    """float32 or bfloat16 gives uint8."""
    if types[0].dtype not in (DType.float32, DType.bfloat16):
        raise GraphError(f"x: wanted float32 or bfloat16, got {types[0].dtype}")
    if attrs["bits"] not in RAISED:
        raise GraphError(f"bits: wanted 8 or 4, got {attrs['bits']}")
    return DType.uint8


@row(
    dtype=_floats,
    shape=_bytes,
    samples=(sample("b m 64", bits=8, group=32), sample("m 128", bits=4, group=128)),
    cost=costs.each_operand(4),
    public=False,
)
def round_rows(x: Array, *, bits: int, group: int) -> Array:
    """Rows in 8 bits beside weights of `bits`, group by group: scale, correction and integers.

    The scale is float32. The correction, an int32, is minus the sum of the integers times what is
    added to the weights (128, or 8 for 4 bits), so that these need no sign. The integers are in
    the order of the weights of a word.
    """
    integers, scales = in_8_bits(x, group)
    head = np.empty((*integers.shape[:-1], HEAD), np.uint8)
    head[..., :4] = np.ascontiguousarray(scales, "<f4").view(np.uint8)
    taken = (-RAISED[bits] * integers.sum(axis=-1, keepdims=True)).astype("<i4")
    head[..., 4:] = np.ascontiguousarray(taken).view(np.uint8)
    if bits == 4:
        eights = integers.reshape(*integers.shape[:-1], group // 8, 8)
        integers = eights[..., NIBBLES].reshape(integers.shape)
    parts = np.concatenate([head, integers.astype(np.int8).view(np.uint8)], axis=-1)
    return merged(parts, -2, -1)


def rounded_product(types: Types, attrs: Attrs) -> Shape:
    """`[..., m, bytes]`, panels of weights and panels `[ceildiv(n, 32), k / group, 32]`."""
    a, weight, scales = types
    rules.check_rank("a", a, 2)
    group, n = attrs["group"], attrs["columns"]
    check_group(group)
    if a.shape[-1] % (group + HEAD) != 0:
        raise GraphError(f"a: wanted whole groups of {group + HEAD} bytes, got {a.shape}")
    check_panels(weight, scales, n, a.shape[-1] // (group + HEAD) * group, group)
    return Shape((*a.shape[:-1], n))


def checked_result(attrs: Attrs) -> DType:
    """The dtype that a packed product is said to have."""
    dtype: DType = attrs["dtype"]
    if dtype not in ACTIVATIONS:
        raise GraphError(f"dtype: wanted float32, float16 or bfloat16, got {dtype}")
    return dtype


def rounded_left(types: Types, attrs: Attrs) -> DType:
    """uint8, int8 or uint32, and scales of floats; the result's is an attribute."""
    a, weight, scales = types
    if a.dtype is not DType.uint8:
        raise GraphError(f"a: wanted uint8, got {a.dtype}")
    if weight.dtype not in (DType.int8, DType.uint32):
        raise GraphError(f"weight: wanted int8 or uint32, got {weight.dtype}")
    check_scales(scales)
    return checked_result(attrs)


@row(
    dtype=rounded_left,
    shape=rounded_product,
    samples=(
        sample("uint8: m 80", "int8: 2 16 32 4", "2 2 32", columns=Dim(40), group=32, dtype=F32),
        sample("uint8: b m 72", "uint32: 1 8 32", "1 1 32", columns=Dim(32), group=64, dtype=F32),
    ),
    promotion="none",
    cost=costs.product,
    public=False,
)
def rounded_matmul_packed(
    a: Array, weight: Array, scales: Array, *, columns: Dim, group: int, dtype: DType
) -> Array:
    """`quantized_matmul` of rows that `round_rows` made, by weights as `pack_int4` or `pack_b` do.

    The sums of a group are exact; they are scaled in float32.
    """
    n, groups = int(columns), a.shape[-1] // (group + HEAD)
    parts = np.ascontiguousarray(a).reshape(*a.shape[:-1], groups, group + HEAD)
    steps = np.ascontiguousarray(parts[..., :4]).view("<f4")
    integers = parts[..., HEAD:].view(np.int8)
    if weight.dtype == np.uint32:
        words = unpacked(weight, groups * group // 8, n).T
        # The lower halves of a word's bytes, then the upper ones: the order of the integers.
        shifts = np.array([0, 8, 16, 24, 4, 12, 20, 28], np.uint32)
        right = merged((words[..., None] >> shifts & 15).astype(np.float32), 1, 2) - RAISED[4]
    else:
        right = unpacked(weight, groups * group, n).T.astype(np.float32)
    left = integers * steps
    shares = np.repeat(unpacked(scales, groups, n).T.astype(np.float32), group, axis=-1)
    return held(np.matmul(merged(left, -2, -1), (right * shares).T), dtype)
