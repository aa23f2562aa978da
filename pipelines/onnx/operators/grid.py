"""Pictures and volumes read at the places that a grid names."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.graph import Dim, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.resizing import CUBIC, inner, outer
from heddle.pipelines.onnx.operators.sampling import Tap, linear, read, tap
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
    picture = ops.reshape(ops.range(x.shape[0]), [x.shape[0], *[1] * (grid.rank - 2)])
    found = ops.cast(read(x, picture, taps), x.dtype)
    return ops.permute(found, [0, last, *range(1, last)])


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

    def tap(self, place: TensorValue, weight: TensorValue | None) -> Tap:
        """What is read at a place that is a whole number."""
        return tap(self.held(place), weight, self.dim, self.padding == "zeros")


def _taps(side: _Side, mode: str, given: TensorValue) -> list[Tap]:
    place = side.place(given)
    if mode == "nearest":
        return [side.tap(ops.round(place), None)]
    place = side.held(place)
    if mode == "linear":
        return linear(place, side.tap)
    first = ops.floor(place)
    rest = place - first
    return [
        side.tap(first - 1, outer(rest + 1, CUBIC)),
        side.tap(first, inner(rest, CUBIC)),
        side.tap(first + 1, inner(1 - rest, CUBIC)),
        side.tap(first + 2, outer(2 - rest, CUBIC)),
    ]
