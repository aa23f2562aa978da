"""Helpers for one axis of many."""

from __future__ import annotations

from typing import Any

from heddle.graph import TensorValue, ops


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """The index of a tensor that chooses `index` on one axis and all of the others."""
    return (*[slice(None)] * axis, index)


def backwards(x: TensorValue, axis: int) -> TensorValue:
    """The elements along an axis in the opposite order."""
    dim = x.shape[axis]
    if dim.static is not None:
        return x[along(axis, slice(None, None, -1))]
    return ops.gather(x, ops.size(dim) - 1 - ops.range(dim), axis=axis)


def channels_first(x: TensorValue) -> TensorValue:
    """`[batch, *sizes, channels]` as `[batch, channels, *sizes]`."""
    return ops.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def channels_last(x: TensorValue) -> TensorValue:
    """`[batch, channels, *sizes]` as `[batch, *sizes, channels]`."""
    return ops.permute(x, [0, *range(2, x.rank), 1])
