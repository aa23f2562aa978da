"""What indices choose."""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.graph import Dim, DType, Shape, TensorValue, ops
from heddle.graph.bounds import bounds
from heddle.graph.dim import MAXIMUM
from heddle.pipelines.onnx.node import NarrowerError, Node
from heddle.pipelines.onnx.operators.axes import along, backwards
from heddle.pipelines.onnx.table import operator


@operator("Gather")
def gather(node: Node) -> TensorValue:
    """The entries along an axis that indices name; from the end where they are negative."""
    x = node(0)
    axis = node.axis(x.rank)
    value = node.values[1]
    if value is not None and value.known is not None and not value.known.ndim:
        return x[along(axis, value.known[()])]  # one entry is a slice, which costs less
    return ops.gather(x, from_front(node, x.shape[axis]), axis=axis)


def from_front(node: Node, dim: Dim) -> TensorValue:
    """The indices that are the second input, counted from the front of a dim."""
    value = node.values[1]
    if value is not None and value.known is not None and not value.has_dims:
        known = value.known.astype(np.int64)
        if not known.size or known.min() >= 0:
            return ops.constant(known)
        if dim.static is not None:
            return ops.constant(np.where(known < 0, known + dim.static, known))
    return _counted_from_front(node(1), dim)


def _counted_from_front(indices: TensorValue, dim: Dim) -> TensorValue:
    """Those below 0 count from the end of a dim."""
    if not indices.dtype.is_signed:
        return indices
    return ops.where(indices < 0, indices + ops.size(dim, indices.dtype), indices)


@operator("GatherElements")
def gather_elements(node: Node) -> TensorValue:
    """For each place the element along an axis that its own index names."""
    x = node(0)
    axis = node.axis(x.rank)
    indices = from_front(node, x.shape[axis])
    order = [*(i for i in range(x.rank) if i != axis), axis]
    for other in order[:-1]:
        if indices.shape[other] != x.shape[other]:
            x = x[along(other, slice(0, indices.shape[other]))]
    if axis == x.rank - 1:
        return ops.take_along(x, indices)
    moved = ops.take_along(ops.permute(x, order), ops.permute(indices, order))
    return ops.permute(moved, [order.index(i) for i in range(x.rank)])


@operator("GatherND")
def gather_nd(node: Node) -> TensorValue:
    """The parts that rows of indices name, one index for each of the first axes."""
    x, indices = node(0), node(1)
    batch = node["batch_dims"]
    end = batch + int(indices.shape[-1])
    first = None
    if batch:  # the number of the part that each row of indices is about
        count = Shape(x.shape[:batch]).elements
        around = [*x.shape[:batch], *[1] * (indices.rank - 1 - batch)]
        first = ops.reshape(ops.range(count, dtype=indices.dtype), around)
    return ops.gather(ops.flatten(x, 0, end - 1), places(x, indices, batch, first), axis=0)


def places(
    x: TensorValue, indices: TensorValue, axis: int = 0, place: TensorValue | None = None
) -> TensorValue:
    """The number of the part of x that each row of indices names, which are of axes from `axis` on.

    Of the parts of which `place` is the number, where it is given. Where an index is out of range
    it is -1: that of the axes alone might be another part's.
    """
    inside = None
    count = int(indices.shape[-1])
    for number in range(count):
        dim = x.shape[axis + number]
        one, size = _counted_from_front(indices[..., number], dim), ops.size(dim, indices.dtype)
        here = ops.logical_and(one >= 0, one < size)
        inside = here if inside is None else ops.logical_and(inside, here)
        place = one if place is None else place * size + one
    assert place is not None, "a row has an index"
    return place if count == 1 and not axis else ops.where(inside, place, -1)


@operator("Slice")
def cut(node: Node) -> TensorValue:
    """From starts to ends by steps; ends beyond a size are that size."""
    x = node(0)
    axes: Any
    if node.version < 10:
        starts, ends, axes = node["starts"], node["ends"], node["axes"]
        steps = [1] * len(starts)
    else:
        starts, ends = node.sizes(1, "the starts"), node.sizes(2, "the ends")
        axes = node.ints(3, "the axes")
        steps = node.ints(4, "the steps", [1] * len(starts))
    axes = node.axes(range(len(starts)) if axes is None else axes, x.rank)
    index = [slice(None)] * x.rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dim = x.shape[axis]
        if step == -1 and dim.static is None and _is_backwards(dim, start, end, x.graph.symbols):
            x = backwards(x, axis)
        else:
            index[axis] = _bounds(x, axis, start, end, step)
    return x[tuple(index)]


def _bounds(x: TensorValue, axis: int, start: Any, end: Any, step: int) -> slice:
    """The slice of one axis; ONNX's ends lie inside of it or are what they are nearest to."""
    dim = x.shape[axis]
    if dim.static is not None and isinstance(start, int) and isinstance(end, int):
        return _inside(dim.static, start, end, step)
    if isinstance(end, Dim) and end.name is not None and dim.static is not None:
        low, high = x.graph.symbols[end.name]
        if high > dim.static >= low:
            raise NarrowerError(end.name, (low, dim.static))
    if step > 0:
        start, end = (_at_most(dim, place, x.graph.symbols) for place in (start, end))
        if start == dim or end == 0:
            return slice(0, 0)
    return slice(start, end, step)


def _inside(size: int, start: int, end: int, step: int) -> slice:
    """Of a size that is known: a step back begins at the last element and ends before the first."""
    start, end = (place + size if place < 0 else place for place in (start, end))
    least, most = (0, size) if step > 0 else (-1, size - 1)
    start, end = min(max(start, 0), most), min(max(end, least), most)
    return slice(start, None if end < 0 else end, step)


def _at_most(dim: Dim, place: Any, symbols: dict[str, tuple[int, int]]) -> Any:
    """The place from the front, which is no more than the dim, and no less than 0."""
    if not isinstance(place, int):
        return place
    least, most = bounds(dim, symbols)
    if abs(place) >= min(most, MAXIMUM):
        return dim if place > 0 else Dim(0)
    if abs(place) <= least:
        return place if place >= 0 else dim + place
    return place if place < 0 else Dim.from_expr(("min", dim.expr, place))


def _is_backwards(dim: Dim, start: Any, end: Any, symbols: dict[str, tuple[int, int]]) -> bool:
    """Whether steps back go from the last element to the first, whatever the size."""
    if not isinstance(start, int) or not isinstance(end, int):
        return False
    most = min(bounds(dim, symbols)[1], MAXIMUM)
    return (start == -1 or start >= most - 1) and end < -most


@operator("OneHot")
def one_hot(node: Node) -> TensorValue:
    """One of two values: the second where an index is the place along a new axis."""
    indices, depth = node(0), int(node.number(1, "the depth"))
    axis = node.axes([node["axis"]], indices.rank + 1)[0]
    # Narrower integers might not hold the depth.
    whole = _counted_from_front(ops.cast(indices, DType.int64), Dim(depth))
    shape = [1] * (indices.rank + 1)
    shape[axis] = depth
    places = ops.reshape(ops.range(depth), shape)
    here = ops.equal(ops.unsqueeze(whole, axis), places)
    off, on = ops.split(node(2), [1, 1])
    return ops.where(here, on, off)


@operator("TopK")
def top_k(node: Node) -> list[TensorValue]:
    """The k largest or smallest along an axis and where they are; NaN is larger than numbers."""
    x = node(0)
    axis = node.axis(x.rank)
    k = node["k"] if node.version < 10 else int(node.number(1, "k"))
    if node["largest"] in (None, 1):
        return list(ops.top_k(x, k, axis=axis))
    rows = ops.transpose(x, axis, -1)
    _, places = ops.top_k(_descending(rows), k)
    return [ops.transpose(each, axis, -1) for each in (ops.take_along(rows, places), places)]


def _descending(x: TensorValue) -> TensorValue:
    """Numbers in the opposite order of those of x, with its ties; NaN, its largest, is the least.

    A wider float has an infinity to spare for NaN. There is none for float64, whose infinity ties
    with its largest number.
    """
    if x.dtype.is_integer:
        return ops.bitwise_not(x)
    wide = DType.float32 if x.dtype.size < DType.float32.size else DType.float64
    least, _ = wide.range
    turned = ops.maximum(-ops.cast(x, wide), least)
    return ops.where(ops.isnan(x), float("-inf"), turned)


@operator("ArgMax", "ArgMin")
def argument(node: Node) -> TensorValue:
    """Where the largest or the smallest element is; the first or the last of equal ones."""
    x = node(0)
    axis = node.axis(x.rank)
    find = ops.argmax if node.kind == "ArgMax" else ops.argmin
    if node["select_last_index"]:
        found = ops.size(x.shape[axis]) - 1 - find(backwards(x, axis), axis=axis)
    else:
        found = find(x, axis=axis)
    return found if node["keepdims"] else ops.squeeze(found, axis)


@operator("Hardmax")
def hardmax(node: Node) -> TensorValue:
    """1 where the first of the largest elements along an axis is, else 0."""
    x = node(0)
    axis = node.axis(x.rank)
    if node.version < 13 and axis != x.rank - 1:
        node.refuse(f"wanted the last axis before opset 13, got {axis}")
    shape: list[Any] = [1] * x.rank
    shape[axis] = x.shape[axis]
    places = ops.reshape(ops.range(x.shape[axis]), shape)
    return ops.cast(ops.equal(places, ops.argmax(x, axis=axis)), x.dtype)


@operator("ReverseSequence")
def reverse_sequence(node: Node) -> TensorValue:
    """The first elements of each row the other way round, as many as its length says."""
    x = node(0)
    if {node["time_axis"], node["batch_axis"]} != {0, 1}:
        node.refuse("wanted axes 0 and 1 as time_axis and batch_axis")
    rows = x if node["batch_axis"] == 0 else ops.transpose(x, 0, 1)
    batch, steps = rows.shape[:2]
    places, lengths = ops.range(steps), ops.unsqueeze(ops.cast(node(1), DType.int64), 1)
    places = ops.where(places < lengths, lengths - 1 - places, places)
    places = places + ops.unsqueeze(ops.range(batch), 1) * ops.size(steps)
    flat = ops.reshape(rows, [batch * steps, *rows.shape[2:]])
    turned = ops.gather(flat, places, axis=0)
    return turned if node["batch_axis"] == 0 else ops.transpose(turned, 0, 1)
