"""Pictures and volumes read at computed places, each axis by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.operators.axes import channels_last


class Tap(NamedTuple):
    """One of the elements along an axis that a place reads; None: all of it, and inside."""

    element: TensorValue
    weight: TensorValue | None
    inside: TensorValue | None


def tap(place: TensorValue, weight: TensorValue | None, dim: Dim, zeros: bool) -> Tap:
    """What is read along a dim at a place that is a whole number.

    Beyond its ends that is nothing where there are `zeros` around, else what is nearest.
    """
    index = ops.cast(place, DType.int64)
    size = ops.size(dim)
    inside = ops.logical_and(index >= 0, index < size) if zeros else None
    # A place that is no number is none that could be read, and neither is one far outside.
    return Tap(ops.clip(index, 0, size - 1), weight, inside)


def linear(place: TensorValue, at: Callable[[TensorValue, TensorValue], Tap]) -> list[Tap]:
    """The two elements around a place, which share it by how near they are; `at` is one tap."""
    first = ops.floor(place)
    rest = place - first
    return [at(first, 1 - rest), at(first + 1, rest)]


def sampled(
    x: TensorValue,
    picture: TensorValue,
    places: Sequence[TensorValue],
    zeros: bool,
    combine: Callable[..., Any] = ops.add,
) -> TensorValue:
    """Linear samples of x, `[pictures, channels, *sizes]`, as `read` gives them.

    Args:
        x: The pictures.
        picture: The number of the picture of each sample.
        places: For each axis where the samples lie, counted in elements; all shapes broadcast.
        zeros: Whether there are zeros around a picture; else its ends go on.
        combine: What becomes of the weighted elements around a place.
    """
    taps = [
        linear(place, partial(tap, dim=dim, zeros=zeros))
        for place, dim in zip(places, x.shape[2:], strict=True)
    ]
    return read(x, picture, taps, combine)


def read(
    x: TensorValue,
    picture: TensorValue,
    taps: Sequence[Sequence[Tap]],
    combine: Callable[..., Any] = ops.add,
) -> TensorValue:
    """What all channels have at the taps of each axis: `[*places, channels]`.

    Weights make it float32 at least, so that sums of narrower floats are rounded once.
    """
    table = ops.flatten(channels_last(x), 0, x.rank - 2)
    return reduce(combine, (_rows(table, picture, x.shape[2:], some) for some in product(*taps)))


def _rows(
    table: TensorValue, picture: TensorValue, sizes: Sequence[Dim], taps: Sequence[Tap]
) -> TensorValue:
    """The rows of `table` that one tap along each axis names, times their weights."""
    place = picture
    for dim, each in zip(sizes, taps, strict=True):
        place = place * ops.size(dim) + each.element
    rows = ops.gather(table, place, axis=0)
    weights = [each.weight for each in taps if each.weight is not None]
    if weights:
        rows = at_least_float32(rows)
        rows = rows * ops.unsqueeze(ops.cast(reduce(ops.mul, weights), rows.dtype), -1)
    inside = [each.inside for each in taps if each.inside is not None]
    if inside:
        rows = ops.where(ops.unsqueeze(reduce(ops.logical_and, inside), -1), rows, 0)
    return rows
