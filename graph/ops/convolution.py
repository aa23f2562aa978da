"""Convolutions, as users write them and as kernels take them."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules, windows
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.declare import row
from heddle.graph.ops.linear import PAIRS, left_of_panels, panels, unpacked
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError


def _kernel(weights: TensorType) -> tuple[int, ...]:
    sizes = tuple(dim.static for dim in weights.shape[2:])
    if None in sizes:
        raise GraphError(f"weights: wanted static sizes of the kernel, got {weights.shape}")
    return sizes  # type: ignore[return-value]


def _complete(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form: strides and dilations of 1 and no padding where none are given."""
    return windows.completed(types[0].rank - 2, attrs)


def _convolved(types: Types, attrs: Attrs) -> Shape:
    """`[batch, *sizes, channels]` (or that first), weights `[n, channels / groups, *kernel]`."""
    x, weights = types
    groups = attrs["groups"]
    if weights.rank != x.rank:
        raise GraphError(f"weights: wanted rank {x.rank}, as x, got {weights.shape}")
    windows.check(x.rank - 2, _kernel(weights), attrs)
    channels = x.shape[1 if attrs["layout"] == "channels_first" else -1]
    n, depth = weights.shape[:2]
    if channels == 0:
        raise GraphError(f"x: wanted at least one channel, got {x}")
    if groups < 1 or n.divided(Dim(groups)) is None or depth * groups != channels:
        raise GraphError(
            f"wanted [n, channels / groups, ...] for {channels} channels in {groups} groups that "
            f"divide n, got {weights.shape}"
        )
    return windows.result_shape(types, attrs, _kernel(weights), n)


def _cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """A multiplication and an addition for each element of x that a kernel is laid on."""
    x, weights = types
    taps = windows.taps_inside(x, _kernel(weights), attrs)
    n, depth = weights.shape[:2]
    return costs.computed(types, result, x.shape[0] * n * depth * taps * 2)


_PLAIN = {"strides": (1, 1), "dilations": (1, 1), "groups": 1, "layout": "channels_last"}


@row(
    dtype=rules.floating,
    shape=_convolved,
    makes_sizes=True,
    canonical=_complete,
    samples=(
        sample("b m n 3", "4 3 3 2", padding=(1, 1, 1, 0), **_PLAIN),
        sample(
            "b 4 m n",
            "6 2 3 3",
            strides=(2, 1),
            padding=(2, 2, 2, 2),
            dilations=(1, 2),
            groups=2,
            layout="channels_first",
        ),
        sample(
            "b m 5",
            "5 1 3",
            strides=(1,),
            padding=(2, 0),
            dilations=(1,),
            groups=5,
            layout="channels_last",
        ),
    ),
    cost=_cost,
)
@windows.moving(optional=True)
def conv(
    x: Array,
    weights: Array,
    *,
    moves: Attrs,
    groups: int = 1,
    layout: str = "channels_last",
) -> Array:
    """The sums of each window of x times the weights (a convolution as in neural networks).

    x has 1 to 3 spatial axes, after the batch (`channels_last`) or after batch and channels. The
    weights are `[n, channels / groups, *kernel]` in either layout. `padding` counts zeros before
    and after each axis: `(top, bottom, left, right)`. A bias is an addition.
    """
    inside = windows.last(x, layout)
    result = _multiplied(inside, _by_group(weights, groups), weights.shape[2:], moves)
    return windows.first(result, layout)


def _by_group(weights: Array, groups: int) -> Array:
    """[groups, n / groups, taps * channels / groups]."""
    flat = merged(np.moveaxis(weights, 1, -1), 1, -1)
    return flat.reshape(groups, len(flat) // groups, flat.shape[1])


def _multiplied(x: Array, weights: Array, kernel: tuple[int, ...], attrs: Attrs) -> Array:
    """By weights [groups, n, k]."""
    groups, n, k = weights.shape
    taps = windows.taps(x, kernel, attrs, 0)
    depth = x.shape[-1] // groups  # not -1: there may be no elements
    left = np.stack([tap.reshape(*tap.shape[:-1], groups, depth) for tap in taps], axis=-2)
    left = left.reshape(*left.shape[:-2], k)
    return np.einsum("...gk,gnk->...gn", left, weights).reshape(*taps[0].shape[:-1], groups * n)


def _grouped(types: Types, attrs: Attrs, n: Dim, groups: Dim, k: Dim) -> Shape:
    x, kernel = types[0], attrs["kernel"]
    windows.check(x.rank - 2, kernel, attrs)
    taps = int(np.prod(kernel))
    if k * groups != x.shape[-1] * taps:
        raise GraphError(
            f"weights: wanted k = {x.shape[-1]} channels times {taps} taps by {groups} groups, got "
            f"{k}"
        )
    return windows.result_shape(types, attrs, kernel, n * groups)


def _window_product(types: Types, attrs: Attrs) -> Shape:
    """`[batch, *sizes, channels]` and `[groups, n, k]` give `[batch, *windows, groups * n]`."""
    weights = types[1]
    if weights.rank != 3:
        raise GraphError(f"weights: wanted rank 3, got {weights.shape}")
    groups, n, k = weights.shape
    return _grouped(types, attrs, n, groups, k)


def _window_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    x, depth = types[0], types[0].shape[-1] // types[1].shape[0]
    taps = windows.taps_inside(x, attrs["kernel"], attrs)
    return costs.computed(types, result, x.shape[0] * result.shape[-1] * depth * taps * 2)


_TWICE = {"kernel": (3, 2), "strides": (2, 1), "padding": (1, 1, 0, 2), "dilations": (1, 2)}


@row(
    dtype=rules.floating,
    shape=_window_product,
    samples=(sample("b m n 3", "1 5 18", **_TWICE), sample("b m n 4", "2 3 12", **_TWICE)),
    cost=_window_cost,
    public=False,
)
@windows.moving(optional=False)
def window_matmul(
    x: Array,
    weights: Array,
    *,
    kernel: tuple[int, ...],
    moves: Attrs,
) -> Array:
    """`conv` with channels last and weights `[groups, n / groups, k]`, k taps of channels."""
    return _multiplied(x, weights, kernel, moves)


def _packed(types: Types, attrs: Attrs) -> Shape:
    """`[batch, *sizes, channels]` and panels of `[groups, k, n]` give `[..., groups * n]`."""
    x, b = types
    group = PAIRS if x.dtype is DType.bfloat16 else 1
    rules.check_rank("b", b, 4 if group == 1 else 5)
    groups, n = b.shape[0], attrs["columns"]
    taps = int(np.prod(attrs["kernel"]))
    k = x.shape[-1] * taps // groups
    if Shape(b.shape[1:]) != panels(n, k, group):
        raise GraphError(f"b: wanted panels {panels(n, k, group)} for n = {n}, got {b.shape}")
    return _grouped(types, attrs, n, groups, k)


@row(
    dtype=left_of_panels,
    shape=_packed,
    samples=(
        sample("float32: b m n 3", "1 2 18 32", columns=Dim(40), **_TWICE),
        sample("bfloat16: b m n 2", "bfloat16: 2 1 3 32 2", columns=Dim(3), **_TWICE),
    ),
    promotion="none",
    cost=_window_cost,
    public=False,
)
@windows.moving(optional=False)
def window_matmul_packed(
    x: Array,
    b: Array,
    *,
    columns: Dim,
    kernel: tuple[int, ...],
    moves: Attrs,
) -> Array:
    """`window_matmul` of x and the result of `pack_b`; `columns` is n of a group."""
    k = x.shape[-1] * int(np.prod(kernel)) // len(b)
    return _multiplied(x, np.swapaxes(unpacked(b, k, int(columns)), 1, 2), kernel, moves)
