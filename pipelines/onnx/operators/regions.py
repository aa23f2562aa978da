"""Regions of pictures, each as a small picture of its own."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.graph import Dim, TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import channels_first, channels_last
from heddle.pipelines.onnx.operators.sampling import sampled
from heddle.pipelines.onnx.table import operator


@operator("RoiAlign")
def roi_align(node: Node) -> TensorValue:
    """The mean, or the largest, of linear samples of each bin of a region (arXiv:1703.06870).

    Pictures are `[batch, channels, height, width]`, regions `[count, 4]`, x and y of a corner and
    of the opposite one. Of a sample `max` takes the largest of the weighted elements around it, not
    their sum, as ONNX's reference and ONNX Runtime do.
    """
    x, mode, ratio = node(0), node["mode"], node["sampling_ratio"]
    if mode not in ("avg", "max"):
        node.refuse(f"wanted a mode of avg or max, got {mode!r}")
    batch, _, height, width = x.shape
    picture = ops.gather(ops.range(batch), node(2), axis=0)  # an error where it is not there
    sides = [
        _side(node, 1, height, node["output_height"]),
        _side(node, 0, width, node["output_width"]),
    ]
    if ratio > 0:
        found = _of_samples(x, picture, sides, ratio, mode)
    elif mode == "avg":
        found = _of_weights(x, picture, sides)
    else:
        node.refuse(
            "wanted a sampling_ratio above 0 for the mode max, got 0: only the regions "
            "themselves tell how many samples it stands for"
        )
    return channels_first(ops.cast(found, x.dtype))


@dataclass(frozen=True)
class _Side:
    """An axis of the pictures, and the bins of each region along it, counted in elements.

    Attributes:
        dim: The axis' size.
        start: Where each bin begins, `[regions, bins, 1]`.
        width: How wide the bins of each region are, `[regions, 1, 1]`.
    """

    dim: Dim
    start: TensorValue
    width: TensorValue

    @property
    def size(self) -> TensorValue:
        """The axis' size as a number."""
        return ops.size(self.dim, self.start.dtype)

    def place(self, number: TensorValue, count: TensorValue | int) -> TensorValue:
        """Where a sample of `count` in each bin lies."""
        return self.start + (number + 0.5) * self.width / count

    def is_outside(self, place: TensorValue) -> TensorValue:
        """Whether a place is more than one element away from all that there is."""
        return ops.logical_or(place < -1, place > self.size)

    def held(self, place: TensorValue) -> TensorValue:
        """The nearest place between the first and the last element."""
        return ops.clip(place, 0, self.size - 1)

    def weights(self) -> TensorValue:
        """How much of each element the mean of a bin has, `[regions, bins, size]`.

        Bins have a sample for each element that they are wide, rounded up. Between two elements
        these are an arithmetic sequence, whose sum is known by how many there are and where they
        lie on average: no sample is looked at, and there may be any number of them.
        """
        dtype = self.start.dtype
        count = ops.maximum(ops.ceil(self.width), 0)
        step = ops.where(count > 0, self.width / count, 1)
        # The places -1, 0, ... size: how many samples of a bin lie before each, or up to the last.
        edges = ops.range(self.dim + 2, dtype=dtype) - 1
        nearest = ops.round((edges - self.start) / step - 0.5)
        place = self.place(nearest, count)
        is_before = ops.where(edges < self.size, place < edges, place <= edges)
        before = ops.clip(nearest + ops.cast(is_before, dtype), 0, count)
        first, last = before[..., :-1], before[..., 1:]
        inside, mean = last - first, self.held(self.start + step * (first + last) / 2)
        elements = ops.range(self.dim, dtype=dtype)
        behind = inside[..., :-1] * (mean[..., :-1] - elements + 1)
        ahead = inside[..., 1:] * (elements + 1 - mean[..., 1:])
        return (behind + ahead) / ops.maximum(count, 1)


def _side(node: Node, axis: int, dim: Dim, bins: int) -> _Side:
    """The bins along an axis, of which regions have the number `axis` and, for the end, 2 more."""
    ends = at_least_float32(node(1)) * node["spatial_scale"]
    is_shifted = node["coordinate_transformation_mode"] == "half_pixel"  # not before opset 16
    if is_shifted:
        ends = ends - 0.5
    ends = ops.reshape(ends, [-1, 4, 1, 1])
    start, extent = ends[:, axis], ends[:, axis + 2] - ends[:, axis]
    if not is_shifted:
        extent = ops.maximum(extent, 1)
    width = extent / bins
    numbers = ops.reshape(ops.range(bins, dtype=width.dtype), [bins, 1])
    return _Side(dim, start + numbers * width, width)


def _of_samples(
    x: TensorValue, picture: TensorValue, sides: list[_Side], ratio: int, mode: str
) -> TensorValue:
    """`[regions, bins, bins, channels]` by `ratio` samples of each bin along both axes."""
    numbers = ops.range(ratio, dtype=sides[0].start.dtype)
    rows, columns = (ops.flatten(side.place(numbers, ratio), 1) for side in sides)
    places = [ops.unsqueeze(rows, 2), ops.unsqueeze(columns, 1)]
    held = [side.held(place) for side, place in zip(sides, places, strict=True)]
    number = ops.reshape(picture, [-1, 1, 1])
    combine = ops.add if mode == "avg" else ops.maximum
    found = sampled(x, number, held, zeros=False, combine=combine)
    outside = [side.is_outside(place) for side, place in zip(sides, places, strict=True)]
    found = ops.where(ops.unsqueeze(ops.logical_or(*outside), 3), 0, found)
    pool = ops.avg_pool if mode == "avg" else ops.max_pool
    return pool(found, (ratio, ratio), strides=(ratio, ratio))


def _of_weights(x: TensorValue, picture: TensorValue, sides: list[_Side]) -> TensorValue:
    """`[regions, bins, bins, channels]` by products with the weights along each axis.

    The pictures are one, each below the one before it: a region has no weights in others.
    """
    rows, columns = (side.weights() for side in sides)
    batch, channels, height, width = x.shape
    regions, across, _ = columns.shape
    down = rows.shape[1]
    lines = ops.reshape(channels_last(at_least_float32(x)), [-1, width, channels])
    part = ops.reshape(columns, [regions * across, width]) @ lines
    part = ops.permute(ops.reshape(part, [batch * height, regions, across, channels]), [1, 0, 2, 3])
    own = ops.equal(ops.reshape(picture, [-1, 1, 1, 1]), ops.reshape(ops.range(batch), [batch, 1]))
    rows = ops.where(own, ops.unsqueeze(rows, 2), 0)
    found = ops.reshape(rows, [regions, down, batch * height]) @ ops.reshape(
        part, [regions, batch * height, across * channels]
    )
    return ops.reshape(found, [regions, down, across, channels])
