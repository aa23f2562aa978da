"""What windows over spatial axes have in common: convolutions and pooling."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import product
from typing import Any

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.ops.row import Array, Attrs, Types
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

LAYOUTS = ("channels_last", "channels_first")

MOVES = ("strides", "padding", "dilations")
"""The attributes of how windows move."""


def moving(optional: bool) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Makes a reference of windows, which takes `moves`, one with the attributes of that."""

    def declare(reference: Callable[..., Array]) -> Callable[..., Array]:
        default = () if optional else inspect.Parameter.empty
        parameters = []
        for parameter in inspect.signature(reference).parameters.values():
            if parameter.name == "moves":
                move = parameter.replace(annotation="tuple[int, ...]", default=default)
                parameters += [move.replace(name=name) for name in MOVES]
            else:
                parameters.append(parameter)

        @wraps(reference)
        def named(*operands: Array, **attrs: Any) -> Array:
            moves = {name: attrs.pop(name, ()) for name in MOVES}
            return reference(*operands, moves=moves, **attrs)

        named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return named

    return declare


def completed(rank: int, attrs: Attrs, strides: Sequence[int] | None = None) -> Attrs:
    """Attributes of windows over `rank` axes, with their defaults; `strides`: that of strides."""
    defaults = {
        "strides": tuple(strides or (1,) * rank),
        "padding": (0,) * (2 * rank),
        "dilations": (1,) * rank,
    }
    return {**attrs, **{key: attrs[key] or value for key, value in defaults.items()}}


def check(rank: int, window: Sequence[int], attrs: Attrs) -> None:
    """Raises GraphError unless the attributes are those of a window over `rank` axes."""
    if not 1 <= rank <= 3:
        raise GraphError(f"x: wanted 1 to 3 axes beside batch and channels, got {rank}")
    if attrs.get("layout", LAYOUTS[0]) not in LAYOUTS:
        raise GraphError(f"layout: wanted {' or '.join(LAYOUTS)}, got {attrs['layout']!r}")
    for name, values, count, least in (
        ("window", window, rank, 1),
        ("strides", attrs["strides"], rank, 1),
        ("dilations", attrs["dilations"], rank, 1),
        ("padding", attrs["padding"], 2 * rank, 0),
    ):
        if len(values) != count or any(value < least for value in values):
            raise GraphError(f"{name}: wanted {count} numbers from {least} on, got {tuple(values)}")


def spatial(shape: Sequence[Dim], attrs: Attrs) -> tuple[Dim, ...]:
    """The axes that windows move along."""
    return tuple(shape[2:] if attrs.get("layout") == "channels_first" else shape[1:-1])


def counts(sizes: Sequence[Dim], window: Sequence[int], attrs: Attrs) -> list[Dim]:
    """How many windows there are along each axis of `sizes`: none where one is too small."""
    found = []
    for axis, (size, length) in enumerate(zip(sizes, window, strict=True)):
        before, after = attrs["padding"][2 * axis : 2 * axis + 2]
        room = size + (before + after - attrs["dilations"][axis] * (length - 1) - 1)
        found.append(room // attrs["strides"][axis] + 1)
    return found


def taps_inside(x: TensorType, window: Sequence[int], attrs: Attrs) -> Dim:
    """How many elements of x all windows take together, for one channel of one of the batch.

    What they take of the padding does not count; along an axis of unknown size all counts.
    """
    sizes, total = spatial(x.shape, attrs), Dim(1)
    for axis, (size, count) in enumerate(zip(sizes, counts(sizes, window, attrs), strict=True)):
        if size.static is None:
            total *= count * window[axis]
            continue
        stride, before = attrs["strides"][axis], attrs["padding"][2 * axis]
        inside = 0
        for tap in range(window[axis]):
            at = tap * attrs["dilations"][axis] - before  # of the first window
            first = max(-(at // stride), 0)
            last = min((size.static - 1 - at) // stride, int(count) - 1)
            inside += max(last - first + 1, 0)
        total *= inside
    return total


def taps(x: Array, window: Sequence[int], attrs: Attrs, fill: float) -> list[Array]:
    """For each element of a window x at it, `[batch, *windows, channels]`; `fill` outside of x."""
    rank = len(window)
    pads = [(0, 0), *zip(attrs["padding"][::2], attrs["padding"][1::2], strict=True), (0, 0)]
    padded = np.pad(x, pads, constant_values=fill)
    sizes = [int(n) for n in counts([Dim(s) for s in x.shape[1:-1]], window, attrs)]
    found = []
    for tap in product(*map(range, window)):
        index: list[slice] = [slice(None)]
        for axis in range(rank):
            first, step = tap[axis] * attrs["dilations"][axis], attrs["strides"][axis]
            index.append(slice(first, first + step * sizes[axis], step))
        found.append(padded[tuple(index)])
    return found


def result_shape(types: Types, attrs: Attrs, window: Sequence[int], channels: Dim) -> Shape:
    """x's, with as many windows along its spatial axes, and `channels`."""
    shape = types[0].shape
    sizes = spatial(shape, attrs)
    inner = counts(sizes, window, attrs)
    if any(count.static is not None and count.static < 1 for count in inner):
        raise GraphError(f"wanted a window of {tuple(window)} inside {Shape(sizes)}")
    if attrs.get("layout") == "channels_first":
        return Shape((shape[0], channels, *inner))
    return Shape((shape[0], *inner, channels))


def last(x: Array, layout: str) -> Array:
    """X with its channels last."""
    return np.moveaxis(x, 1, -1) if layout == "channels_first" else x


def first(result: Array, layout: str) -> Array:
    """A result with channels last in `layout`."""
    return np.moveaxis(result, -1, 1) if layout == "channels_first" else result
