"""Pictures and volumes read at the places that a grid names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import NamedTuple

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.resizing import CUBIC, inner, outer
from heddle.pipelines.onnx.table import operator

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""What opset 16 calls them."""


@operator("GridSample")
def grid_sample(node: Node) -> TensorValue:
    """For each place of the grid what is read of all channels: one element, or some by weights."""
    x, grid = node(0), node(1)
    mode = _MODES.get(node["mode"], node["mode"])
    if mode != "nearest" and not x.dtype.is_float:
        node.refuse(f"wanted floats for the mode {mode}, got {x.dtype}")
    last = x.rank - 1
    # Of the grid's coordinates the first one is that of the last axis.
    taps = [
        _taps(_Side(dim, bool(node["align_corners"]), node["padding_mode"]), mode, grid[..., place])
        for place, dim in zip(reversed(range(x.rank - 2)), x.shape[2:], strict=True)
    ]
    table = ops.flatten(ops.permute(x, [0, *range(2, x.rank), 1]), 0, last - 1)
    batch = ops.reshape(ops.range(x.shape[0]), [x.shape[0], *[1] * (grid.rank - 2)])
    read = reduce(ops.add, (_read(table, batch, x.shape[2:], some) for some in product(*taps)))
    return ops.permute(read, [0, last, *range(1, last)])


class _Tap(NamedTuple):
    """One of the elements along an axis that a place reads; None: all of it, and inside."""

    element: TensorValue
    weight: TensorValue | None
    inside: TensorValue | None


@dataclass(frozen=True)
class _Side:
    """An axis of what is read.

    -1 and 1 of the grid are the middles of its outermost elements (`corners`), or their outer ends.
    """

    dim: Dim
    corners: bool
    padding: str

    def place(self, given: TensorValue) -> TensorValue:
        """Where a coordinate of the grid lies, counted in elements."""
        size = ops.size(self.dim, given.dtype)
        if self.corners:
            return (given + 1) * (size - 1) / 2
        return ((given + 1) * size - 1) / 2

    def held(self, place: TensorValue) -> TensorValue:
        """What lies outside, brought back inside; with zeros around it stays where it is."""
        if self.padding == "zeros":
            return place
        size = ops.size(self.dim, place.dtype)
        margin = 0 if self.corners else 0.5
        most = size - 1 + margin
        if self.padding == "border":
            back = ops.clip(place, 0, size - 1)
        else:
            span = ops.maximum(most + margin, 1)
            far = ops.mod(place + margin, span * 2)
            back = ops.where(far < span, far, span * 2 - far) - margin
        return ops.where(ops.logical_or(place < -margin, place > most), back, place)

    def tap(self, place: TensorValue, weight: TensorValue | None) -> _Tap:
        """What is read at a place that is a whole number."""
        index = ops.cast(self.held(place), DType.int64)
        size = ops.size(self.dim)
        inside = None
        if self.padding == "zeros":
            inside = ops.logical_and(index >= 0, index < size)
        # A place that is no number is none that could be read, and neither is one far outside.
        return _Tap(ops.clip(index, 0, size - 1), weight, inside)


def _taps(side: _Side, mode: str, given: TensorValue) -> list[_Tap]:
    place = side.place(given)
    if mode == "nearest":
        return [side.tap(ops.round(place), None)]
    place = side.held(place)
    first = ops.floor(place)
    rest = place - first
    if mode == "linear":
        return [side.tap(first, 1 - rest), side.tap(first + 1, rest)]
    return [
        side.tap(first - 1, outer(rest + 1, CUBIC)),
        side.tap(first, inner(rest, CUBIC)),
        side.tap(first + 1, inner(1 - rest, CUBIC)),
        side.tap(first + 2, outer(2 - rest, CUBIC)),
    ]


def _read(
    table: TensorValue, batch: TensorValue, sizes: tuple[Dim, ...], taps: tuple[_Tap, ...]
) -> TensorValue:
    """The rows of `table` that one tap along each axis names, times their weights."""
    place = batch
    for dim, tap in zip(sizes, taps, strict=True):
        place = place * ops.size(dim) + tap.element
    rows = ops.gather(table, place, axis=0)
    weights = [tap.weight for tap in taps if tap.weight is not None]
    if weights:
        rows = rows * ops.unsqueeze(ops.cast(reduce(ops.mul, weights), rows.dtype), -1)
    inside = [tap.inside for tap in taps if tap.inside is not None]
    if inside:
        rows = ops.where(ops.unsqueeze(reduce(ops.logical_and, inside), -1), rows, 0)
    return rows
