"""Transposed convolutions, each as a convolution whose channels become pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

import numpy as np

from heddle.graph import Dim, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.normalization import by_channel
from heddle.pipelines.onnx.table import operator

WASTE, MOST = 1.5, 8
"""Times the multiplications of the taps alone, from which on each of so many phases, at most, is a
convolution of its own."""


@operator("ConvTranspose")
def conv_transpose(node: Node) -> TensorValue:
    """Elements that lie a stride apart, a phase, are a convolution of x by some of the taps.

    Weights are `[channels, n / groups, *kernel]`. Element o of the whole result is the sum of
    `x[i] * weights[t]` where `i * stride + t * dilation = o`.
    """
    x, weights, groups = node(0), node(1), node["group"]
    kernel = [int(dim) for dim in weights.shape[2:]]
    strides = node["strides"] or [1] * len(kernel)
    dilations = node["dilations"] or [1] * len(kernel)
    reaches = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    starts, ends = _pads(node, x, strides, reaches)
    sizes = [
        (dim - 1) * stride + reach + 1 - start - end
        for dim, stride, reach, start, end in zip(
            x.shape[2:], strides, reaches, starts, ends, strict=True
        )
    ]
    axes = [Phases.of(*row) for row in zip(strides, dilations, kernel, starts, strict=True)]
    places = prod(own.stride * len(own.taps[0]) for own in axes)
    if places < WASTE * prod(kernel) or prod(strides) > MOST:
        result = _convolved(node, axes, sizes)
    else:
        groups = 1  # all channels of a phase come together
        around = zip(axes, x.shape[2:], sizes, strict=True)
        each = product(*(own.apart(dim, size) for own, dim, size in around))
        result = ops.concat([_convolved(node, phases, sizes) for phases in each], axis=1)
    cut = (slice(own.cut, own.cut + size) for own, size in zip(axes, sizes, strict=True))
    kept = (slice(None), slice(None), *cut)
    return _as_pixels(result, groups, strides)[kept]


def _convolved(node: Node, axes: Sequence[Phases], sizes: Sequence[Dim]) -> TensorValue:
    """The phases of a result of such sizes: `[batch, groups * phases * n, *sizes / strides]`."""
    x, groups = node(0), node["group"]
    taken, padding = [slice(None)] * 2, []
    for own, dim, size in zip(axes, x.shape[2:], sizes, strict=True):
        before, behind = own.zeros(dim, size)
        padding += [max(before, 0), max(behind, 0)]
        taken.append(slice(max(-before, 0), dim - max(-behind, 0)))
    result = ops.conv(
        x[tuple(taken)],
        _by_phase(node(1), groups, axes),
        dilations=tuple(own.dilation for own in axes),
        padding=tuple(padding),
        groups=groups,
        layout="channels_first",
    )
    if not node.has(2):
        return result
    bias, together = node(2), prod(len(own.taps) for own in axes)
    if together > 1:
        numbers = np.arange(int(bias.shape[0])).reshape(groups, 1, -1)
        bias = ops.gather(bias, np.repeat(numbers, together, axis=1).ravel(), axis=0)
    return result + by_channel(bias, x.rank)


@dataclass(frozen=True)
class Phases:
    """What an axis of the result is made of.

    Attributes:
        stride: How many phases an axis has.
        taps: Of each of these, the number of the tap at each place of the window, or None.
        dilation: Between places.
        first: The element of x at the first place for the first element of a phase.
        cut: Elements that come in front of the result.
    """

    stride: int
    taps: tuple[tuple[int | None, ...], ...]
    dilation: int
    first: int
    cut: int

    @classmethod
    def of(cls, stride: int, dilation: int, kernel: int, start: int) -> Phases:
        """Those of a result without its first `start` elements, and with the shortest windows."""
        found = (cls._behind(stride, dilation, kernel, start - cut, cut) for cut in range(stride))
        return min(found, key=lambda own: len(own.taps[0]))

    @classmethod
    def _behind(cls, stride: int, dilation: int, kernel: int, start: int, cut: int) -> Phases:
        # A tap belongs to one phase, and reads the element so many in front of the phase's own.
        read = [divmod(tap * dilation - start, stride) for tap in range(kernel)]
        most = max(back for back, _ in read)
        gap = gcd(*(most - back for back, _ in read)) or 1
        count = max(most - back for back, _ in read) // gap + 1
        taps: list[list[int | None]] = [[None] * count for _ in range(stride)]
        for tap, (back, phase) in enumerate(read):
            taps[phase][(most - back) // gap] = tap
        return cls(stride, tuple(map(tuple, taps)), gap, -most, cut)

    def apart(self, dim: Dim, size: Dim) -> list[Phases]:
        """Each phase by itself, in a window without the places at its ends where it has no taps.

        What it reads goes on to the ends of x, for a result of that size.
        """
        most = [max(count, 0) // self.dilation for count in self.zeros(dim, size)]
        found = []
        for taps in self.taps:
            used = [place for place, tap in enumerate(taps) if tap is not None] or [0]
            start = min(used[0], most[0])
            own = taps[start : len(taps) - min(len(taps) - 1 - used[-1], most[1])]
            first = self.first + self.dilation * start
            found.append(replace(self, taps=(own,), first=first))
        return found

    def zeros(self, dim: Dim, size: Dim) -> tuple[int, int]:
        """In front of x and behind it, for a result of that size; elements too many below 0."""
        # Both sizes grow alike: only the difference has to be known.
        more = -(-int(size + self.cut - dim * self.stride) // self.stride)
        reach = self.dilation * (len(self.taps[0]) - 1)
        return -self.first, more + self.first + reach


def _pads(
    node: Node, x: TensorValue, strides: list[int], reaches: list[int]
) -> tuple[list[int], list[int]]:
    """What is cut off the full result at each axis' start and end; less than 0 adds zeros."""
    rank = len(strides)
    more = node["output_padding"] or [0] * rank
    mode = node["auto_pad"] or "NOTSET"
    wanted = node["output_shape"]
    if wanted is None and mode.startswith("SAME"):
        wanted = [int(dim) * stride for dim, stride in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        pads = node["pads"] if mode == "NOTSET" and node["pads"] else [0] * (2 * rank)
        return pads[:rank], [pads[rank + axis] - more[axis] for axis in range(rank)]
    starts, ends = [], []
    for axis, (dim, stride, reach) in enumerate(zip(x.shape[2:], strides, reaches, strict=True)):
        total = stride * (int(dim) - 1) + more[axis] + reach + 1 - wanted[axis - rank]
        less = max(total, 0) // 2
        start = less if mode == "SAME_UPPER" else max(total, 0) - less
        starts.append(start)
        ends.append(total - start - more[axis])
    return starts, ends


def _by_phase(weights: TensorValue, groups: int, phases: Sequence[Phases]) -> TensorValue:
    """`[channels, n / groups, *kernel]` as `[phases * n, channels / groups, *places]`.

    The phases of all axes come in front of the channels of a group.
    """
    channels, each, *kernel = weights.shape
    rank = len(kernel)
    lacking = [any(None in phase for phase in own.taps) for own in phases]
    weights = ops.pad(weights, [0] * 4 + [n for lacks in lacking for n in (0, int(lacks))])
    split = []
    for axis, own in enumerate(phases):
        none = int(kernel[axis])  # the tap of zeros
        taps = [none if tap is None else tap for phase in own.taps for tap in phase]
        weights = ops.gather(weights, np.array(taps), axis=2 + axis)
        split += [len(own.taps), len(own.taps[0])]
    inner = int(channels) // groups
    weights = ops.reshape(weights, [groups, inner, each, *split])
    places = range(3, 3 + 2 * rank)
    weights = ops.permute(weights, [0, *places[::2], 2, 1, *places[1::2]])
    together = groups * prod(split[::2])
    return ops.reshape(weights, Shape([together * each, inner, *split[1::2]]))


def _as_pixels(x: TensorValue, groups: int, strides: Sequence[int]) -> TensorValue:
    """`[batch, groups * phases * n, *sizes]` as `[batch, groups * n, *sizes times strides]`."""
    batch, channels, *sizes = x.shape
    rank, each = len(sizes), int(channels) // groups // prod(strides)
    split = ops.reshape(x, [batch, groups, *strides, each, *sizes])
    pixels = [axis for n in range(rank) for axis in (3 + rank + n, 2 + n)]
    moved = ops.permute(split, [0, 1, 2 + rank, *pixels])
    whole = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    return ops.reshape(moved, [batch, groups * each, *whole])
