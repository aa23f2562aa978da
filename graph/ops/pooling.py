"""Windows that are reduced channel by channel: pooling, and convolutions of single channels."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops import costs, rules, windows
from heddle.graph.ops.arrays import merged
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Cost, Types, sample
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError


def _complete(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form: strides are the window's sizes where none are given."""
    return windows.completed(types[0].rank - 2, attrs, attrs["window"])


def _pooled(types: Types, attrs: Attrs) -> Shape:
    """x's, `[batch, *sizes, channels]` or channels first, with as many sizes as windows."""
    x = types[0]
    windows.check(x.rank - 2, attrs["window"], attrs)
    channels = x.shape[1 if attrs["layout"] == "channels_first" else -1]
    return windows.result_shape(types, attrs, attrs["window"], channels)


def _cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """An operation for each element of x in a window."""
    x = types[0]
    channels = x.shape[1 if attrs["layout"] == "channels_first" else -1]
    taps = windows.taps_inside(x, attrs["window"], attrs)
    return costs.computed(types, result, x.shape[0] * channels * taps)


_FIRST = {"dilations": (1, 1), "layout": "channels_first"}
_LAST = {"dilations": (1,), "layout": "channels_last"}


@row(
    dtype=rules.floating,
    shape=_pooled,
    makes_sizes=True,
    canonical=_complete,
    samples=(
        sample("b 3 m n", window=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), **_FIRST),
        sample("b m 3", window=(2,), strides=(1,), padding=(1, 0), **_LAST),
    ),
    cost=_cost,
)
@windows.moving(optional=True)
def max_pool(
    x: Array,
    *,
    window: tuple[int, ...],
    moves: Attrs,
    layout: str = "channels_last",
) -> Array:
    """The largest number in each window of each channel; NaN where one is. See `conv`."""
    found = np.max(windows.taps(windows.last(x, layout), window, moves, -np.inf), axis=0)
    return windows.first(found, layout)


@row(
    dtype=rules.floating,
    shape=_pooled,
    makes_sizes=True,
    canonical=_complete,
    samples=(
        sample(
            "b 3 m n",
            window=(3, 2),
            strides=(2, 2),
            padding=(1, 1, 1, 0),
            counts_padding=False,
            **_FIRST,
        ),
        sample("b m 3", window=(2,), strides=(1,), padding=(1, 0), counts_padding=True, **_LAST),
    ),
    cost=_cost,
)
@windows.moving(optional=True)
def avg_pool(
    x: Array,
    *,
    window: tuple[int, ...],
    moves: Attrs,
    layout: str = "channels_last",
    counts_padding: bool = True,
) -> Array:
    """The mean of each window of each channel; padding counts as zeros, or not at all. See `conv`.

    A window without an element that counts gives NaN.
    """
    inside = windows.last(x, layout)
    total = np.sum(windows.taps(inside, window, moves, 0), axis=0)
    ones = np.ones_like(inside)
    count = np.sum(windows.taps(ones, window, moves, 1 if counts_padding else 0), axis=0)
    return windows.first(total / count, layout)


def _lines(weights: TensorType) -> Dim:
    """Products that are added up for each result: taps times the depth."""
    return weights.shape[0] * (2 if weights.rank == 3 else 1)


def _few_each(types: Types, attrs: Attrs) -> Shape:
    """`[batch, *sizes, channels]` and `[taps * depth, channels]` give `[..., channels]`.

    bfloat16: with a depth of 2 or more `[taps * depth / 2, channels, 2]`.
    """
    x, weights = types
    windows.check(x.rank - 2, attrs["kernel"], attrs)
    taps, channels = int(np.prod(attrs["kernel"])), x.shape[-1]
    depth = (_lines(weights).static or 0) // taps
    in_pairs = x.dtype is DType.bfloat16 and depth > 1
    wanted = (taps * depth // 2, channels, 2) if in_pairs else (taps * depth, channels)
    if not depth or weights.shape != Shape(wanted):
        found = f"got {weights.dtype} {weights.shape}"
        raise GraphError(f"weights: wanted [{taps} taps times the depth, {channels}], {found}")
    if channels.divided(Dim(depth)) is None:
        raise GraphError(f"weights: wanted a depth that divides {channels}, got {depth}")
    return windows.result_shape(types, attrs, attrs["kernel"], x.shape[-1])


def _depth_cost(types: Types, attrs: Attrs, result: TensorType) -> Cost:
    """A multiplication and an addition for each element of x that a weight is laid on."""
    x, depth = types[0], _lines(types[1]) // int(np.prod(attrs["kernel"]))
    taps = windows.taps_inside(x, attrs["kernel"], attrs)
    return costs.computed(types, result, x.shape[0] * x.shape[-1] * depth * taps * 2)


@row(
    dtype=rules.floating,
    shape=_few_each,
    samples=(
        sample(
            "b m n k",
            "6 k",
            kernel=(3, 2),
            strides=(2, 1),
            padding=(1, 1, 0, 2),
            dilations=(1, 2),
        ),
    ),
    cost=_depth_cost,
    public=False,
)
@windows.moving(optional=False)
def depthwise_conv(
    x: Array,
    weights: Array,
    *,
    kernel: tuple[int, ...],
    moves: Attrs,
) -> Array:
    """`conv` of groups of `depth` channels and as many results; one: each channel by itself."""
    taps, channels = windows.taps(x, kernel, moves, 0), np.arange(x.shape[-1])
    if weights.ndim == 3:
        weights = merged(np.swapaxes(weights, 1, 2), 0, 1)
    depth = len(weights) // len(taps)
    found = [tap[..., channels // depth * depth + i] for tap in taps for i in range(depth)]
    return np.sum([tap * weight for tap, weight in zip(found, weights, strict=True)], axis=0)
