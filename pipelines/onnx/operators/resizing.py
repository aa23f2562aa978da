"""Resize: each axis by itself, as elements that are mixed, or as a product with a small matrix."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator

CUBIC = -0.75
"""The coefficient of cubic weights where the file says none."""

WHOLE = (0.0, 1.0)

FEW, CHANNELS = 4, 32
"""Elements that are mixed one by one, at most, where there are so many channels, at least: whole
pixels are then, if channels are last. Else a product with a matrix is faster."""

LARGEST = 2**20
"""The places of as many are computed while the file is read."""


@operator("Resize", "Upsample")
def resize(node: Node) -> TensorValue:
    """Along each axis whose size changes: known ones, or by a whole factor.

    What is mixed of integers is rounded once, to the nearest, the even one of two, within the
    dtype's range, as ONNX's reference does.
    """
    given = x = node(0)
    if not given.dtype.is_float and node["mode"] not in (None, "nearest"):
        x = ops.cast(x, DType.float32 if given.dtype.size <= 2 else DType.float64)
    scales, sizes = _wanted(node, x)
    parts = _parts(node, x)
    for axis, (scale, size, part) in enumerate(zip(scales, sizes, parts, strict=True)):
        old = x.shape[axis].static
        if scale == 1 and (size is None or size == old) and part == WHOLE:
            continue
        if old is None:
            x = _repeated(node, x, axis, scale)
            continue
        new = math.floor(np.float32(old) * np.float32(scale)) if size is None else size
        if new > LARGEST:
            node.refuse(f"wanted at most {LARGEST} elements along axis {axis}, got {new}")
        x = _along(node, x, axis, scale, new, part)
    return x if x.dtype is given.dtype else ops.cast(ops.round(x), given.dtype)


def _parts(node: Node, x: TensorValue) -> list[tuple[float, float]]:
    """Where along each axis the part that is resized begins and ends, of 0 to 1."""
    parts = [WHOLE] * x.rank
    if node["coordinate_transformation_mode"] == "tf_crop_and_resize":
        axes = node.axes(node["axes"] or range(x.rank), x.rank)
        found = node.known(1, "the part to resize").ravel().tolist()
        for axis, part in zip(axes, zip(found, found[len(axes) :], strict=False), strict=True):
            parts[axis] = part
    return parts


def _wanted(node: Node, x: TensorValue) -> tuple[list[float], list[int | None]]:
    """The factor and the new size of each axis."""
    axes = node.axes(node["axes"] or range(x.rank), x.rank)
    scales, sizes = [1.0] * x.rank, [None] * x.rank  # type: list[float], list[Any]
    if node.kind == "Upsample" and node.version < 9:
        return list(node["scales"]), sizes
    place = 1 if node.kind == "Upsample" or node.version < 11 else 2
    if node.has(place) and node.known(place, "the scales").size:
        given = node.known(place, "the scales").tolist()
        for axis, scale in zip(axes, given, strict=True):
            scales[axis] = scale
        return scales, sizes
    if not node.has(3):
        node.refuse("wanted scales or sizes, got neither")
    new = [Dim(size) for size in node.sizes(3, "the sizes")]
    factors = [_factor(node, x, axis, size) for axis, size in zip(axes, new, strict=True)]
    policy = node["keep_aspect_ratio_policy"] or "stretch"
    if policy != "stretch":
        factor = min(factors) if policy == "not_larger" else max(factors)
        factors = [factor] * len(axes)
        new = [Dim(math.floor(factor * int(x.shape[axis]) + 0.5)) for axis in axes]
    for axis, size, factor in zip(axes, new, factors, strict=True):
        scales[axis], sizes[axis] = factor, size.static
    return scales, sizes


def _factor(node: Node, x: TensorValue, axis: int, size: Dim) -> float:
    """How many times as large as an axis the size `size` is, which of unknown ones may be known."""
    old = x.shape[axis]
    if size.static is not None and old.static is not None:
        return size.static / old.static
    factor = size.divided(old)
    if factor is None or factor.static is None:
        node.refuse(f"wanted a known multiple of the size along axis {axis}, {old}, got {size}")
    return factor.static


def _repeated(node: Node, x: TensorValue, axis: int, scale: float) -> TensorValue:
    """Every element `scale` times, where the size is not known."""
    mode = node["coordinate_transformation_mode"] or "asymmetric"
    whole = scale == int(scale) and (node["mode"] or "nearest") == "nearest"
    rounding = node["nearest_mode"] or "floor"
    fits = (mode == "asymmetric" and rounding == "floor") or (
        mode in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    )
    if not (whole and fits):
        node.refuse(f"wanted a known size along axis {axis} to resize, got {x.shape}")
    return ops.repeat_interleave(x, int(scale), axis=axis)


def _along(
    node: Node, x: TensorValue, axis: int, scale: float, size: int, part: tuple[float, float]
) -> TensorValue:
    old = int(x.shape[axis])
    if node["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return _resized(node, x, axis, scale, _places(node, old, size, scale))
    first, last = (end * (old - 1) for end in part)
    places = np.linspace(first, last, size) if size > 1 else np.full(size, (first + last) / 2)
    outside = ((places < 0) | (places > old - 1)).reshape(-1, *[1] * (x.rank - 1 - axis))
    resized = _resized(node, x, axis, scale, places)
    beyond = ops.cast(ops.constant(node["extrapolation_value"]), resized.dtype)
    return ops.where(ops.constant(outside), beyond, resized) if outside.any() else resized


def _resized(node: Node, x: TensorValue, axis: int, scale: float, places: Any) -> TensorValue:
    """The elements at `places` of an axis."""
    old, mode = int(x.shape[axis]), node["mode"] or "nearest"
    if mode == "nearest":
        chosen = _nearest(node["nearest_mode"] or "floor", places)
        return ops.gather(x, ops.constant(np.clip(chosen, 0, old - 1).astype(np.int64)), axis=axis)
    weights = _weights(node, mode, places, old, scale)
    count = np.count_nonzero(weights, axis=1).max(initial=0)
    if 0 < count <= FEW and axis > 1 and (x.shape[1].static or 0) >= CHANNELS:
        return _mixed(x, axis, weights, count)
    matrix = ops.cast(ops.constant(weights.astype(np.float32), DType.float32), x.dtype)
    last = x.rank - 1
    moved = x if axis == last else ops.transpose(x, axis, last)
    result = moved @ matrix.T
    return result if axis == last else ops.transpose(result, axis, last)


def _mixed(x: TensorValue, axis: int, weights: Any, count: int) -> TensorValue:
    """The sums of `count` elements along an axis, at most, times `weights`, `[new, old]`."""
    chosen = np.argsort(weights == 0, axis=1, kind="stable")  # those that are not 0 first
    terms = []
    for places in chosen[:, :count].T:
        shares = np.take_along_axis(weights, places[:, None], axis=1).astype(np.float32)
        shares = shares.reshape(-1, *[1] * (x.rank - 1 - axis))
        elements = ops.gather(x, ops.constant(places.astype(np.int64)), axis=axis)
        terms.append(elements * ops.cast(ops.constant(shares, DType.float32), x.dtype))
    return reduce(lambda a, b: a + b, terms)


def _places(node: Node, old: int, new: int, scale: Any) -> Any:
    """Where the elements of the result lie in the input, in float32 as other runtimes have it.

    So 3 / 0.6 is 5, and not what is just below.
    """
    at, scale = np.arange(new, dtype=np.float32), np.float32(scale)
    # Upsample, and Resize before opset 11, know no other way than this.
    mode = node["coordinate_transformation_mode"] or "asymmetric"
    match mode:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjustment = new / (scale * old)
            return old / 2 * (1 - adjustment) + (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if new > 1 else np.zeros(new)
        case "align_corners":
            return at * (old - 1) / (new - 1) if new > 1 else np.zeros(new)
        case "asymmetric":
            return at / scale
    return node.refuse(f"wanted another coordinate_transformation_mode than {mode!r}")


def _nearest(mode: str, places: Any) -> Any:
    match mode:
        case "round_prefer_floor":
            return np.ceil(places - 0.5)
        case "round_prefer_ceil":
            return np.floor(places + 0.5)
        case "ceil":
            return np.ceil(places)
    return np.floor(places)


def _weights(node: Node, mode: str, places: Any, old: int, scale: float) -> Any:
    """`[new, old]`: how much of each element goes into one of the result."""
    shrinks = bool(node["antialias"]) and scale < 1
    stretch = scale if shrinks else 1.0
    reach = 2 if mode == "cubic" else 1
    coefficient = CUBIC if node["cubic_coeff_a"] is None else node["cubic_coeff_a"]
    matrix = np.zeros((len(places), old))
    for row, place in enumerate(places):
        first = math.floor(place - reach / stretch) + (0 if shrinks else 1)
        last = math.ceil(place + reach / stretch) + (1 if shrinks else 0)
        columns = np.arange(first, max(last, first + 1) + 1)
        shares = _shares(mode, (columns - place) * stretch, coefficient)
        if node["exclude_outside"]:
            shares = np.where((columns < 0) | (columns >= old), 0, shares)
        if shrinks or node["exclude_outside"]:
            shares = shares / shares.sum()
        np.add.at(matrix[row], np.clip(columns, 0, old - 1), shares)
    return matrix


def _shares(mode: str, distance: Any, a: float) -> Any:
    """Linear, or cubic."""
    x = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    return np.where(x <= 1, inner(x, a), np.where(x < 2, outer(x, a), 0))


def inner(x: Any, a: float) -> Any:
    """The cubic weight of an element `x` away, at most 1; `a` is the coefficient of Keys (1981)."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def outer(x: Any, a: float) -> Any:
    """That of one from 1 to 2 away."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
