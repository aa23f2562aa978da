"""Functions made of ops that join, repeat and cut tensors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from heddle.graph.dim import Dim
from heddle.graph.location import graph_error
from heddle.graph.ops.arguments import are_counts, axis_of, is_count, is_int, rank_of
from heddle.graph.ops.elementwise import where
from heddle.graph.ops.indexing import split, unsqueeze
from heddle.graph.ops.logic import logical_and, logical_not
from heddle.graph.ops.sequences import range
from heddle.graph.ops.shaping import broadcast_to, concat, reshape
from heddle.graph.ops.source import constant
from heddle.graph.types import Shape
from heddle.graph.value import TensorValue


def stack(values: Sequence[TensorValue], axis: int = 0) -> TensorValue:
    """Tensors of one shape along a new dim at `axis` of the result."""
    if not isinstance(values, (tuple, list)) or not values:
        raise graph_error(f"stack: wanted a list of tensor values, got {values!r}")
    axis = axis_of("stack", axis, rank_of("stack", values[0]) + 1)
    for value in values[1:]:
        rank_of("stack", value)
        if value.shape != values[0].shape:
            raise graph_error(f"stack: wanted one shape, got {values[0].shape} and {value.shape}")
    stacked: TensorValue = concat([unsqueeze(value, axis) for value in values], axis=axis)
    return stacked


def chunk(x: TensorValue, chunks: int, axis: int = 0) -> list[TensorValue]:
    """`chunks` pieces along `axis`, all of one size."""
    axis = axis_of("chunk", axis, rank_of("chunk", x))
    size = x.shape[axis].static
    if not is_int(chunks) or chunks < 1 or size is None or size % chunks:
        raise graph_error(
            f"chunk: wanted a number of pieces that divides {x.shape[axis]}, got {chunks!r}"
        )
    return split(x, [size // chunks] * chunks, axis)


def pad(x: TensorValue, paddings: Sequence[int], value: float = 0) -> TensorValue:
    """`value` around `x`: `paddings` has for each dim how much before and how much behind it."""
    rank = rank_of("pad", x)
    if not are_counts(paddings) or len(paddings) != 2 * rank:
        raise graph_error(
            f"pad: wanted {2 * rank} sizes of 0 or more, before and behind each dim, "
            f"got {paddings!r}"
        )
    fill = constant(value, x.dtype, x.device)
    for axis in builtins.range(rank):
        sizes = paddings[2 * axis : 2 * axis + 2]
        before, behind = (
            [broadcast_to(fill, Shape((*x.shape[:axis], size, *x.shape[axis + 1 :])))] * (size > 0)
            for size in sizes
        )
        if before or behind:
            x = concat([*before, x, *behind], axis=axis)
    return x


def tile(x: TensorValue, repeats: Sequence[int]) -> TensorValue:
    """`x` side by side with itself, `repeats[i]` times along dim i."""
    rank = rank_of("tile", x)
    if not are_counts(repeats) or len(repeats) != rank:
        raise graph_error(f"tile: wanted {rank} counts of 0 or more, got {repeats!r}")
    return _repeated(x, repeats, after=False)


def repeat_interleave(x: TensorValue, repeats: int, axis: int = 0) -> TensorValue:
    """Every element along `axis` as many times, one after another."""
    axis = axis_of("repeat_interleave", axis, rank_of("repeat_interleave", x))
    if not is_count(repeats):
        raise graph_error(f"repeat_interleave: wanted a count of 0 or more, got {repeats!r}")
    counts = [repeats if i == axis else 1 for i in builtins.range(x.rank)]
    return _repeated(x, counts, after=True)


def _repeated(x: TensorValue, counts: Sequence[int], after: bool) -> TensorValue:
    """Each dim `counts[i]` times, as a whole or, `after` each of its elements, these."""
    narrow: list[Dim] = []
    wide: list[Dim] = []
    for dim, count in zip(x.shape, counts, strict=True):
        if count == 1:
            narrow, wide = [*narrow, dim], [*wide, dim]
        else:
            narrow += [dim, Dim(1)] if after else [Dim(1), dim]
            wide += [dim, Dim(count)] if after else [Dim(count), dim]
    if narrow == wide:
        return x
    spread = broadcast_to(reshape(x, shape=Shape(narrow)), shape=Shape(wide))
    sizes = [dim * int(count) for dim, count in zip(x.shape, counts, strict=True)]
    repeated: TensorValue = reshape(spread, shape=Shape(sizes))
    return repeated


def band_part(
    x: TensorValue,
    num_lower: int | None = None,
    num_upper: int | None = None,
    exclude: bool = False,
) -> TensorValue:
    """`x` in a band around the diagonals of its last two dims, zeros outside.

    The band has `num_lower` diagonals below the main one and `num_upper` above it, all where that
    is None: `band_part(x, None, 0)` is the lower triangle. With `exclude`, zeros are inside.
    """
    if rank_of("band_part", x) < 2:
        raise graph_error(f"band_part: wanted a rank of 2 or more, got {x.shape}")
    for name, count in (("num_lower", num_lower), ("num_upper", num_upper)):
        if count is not None and not is_count(count):
            raise graph_error(f"band_part: {name}: wanted None or 0 or more, got {count!r}")
    rows, columns = (range(dim, device=x.device) for dim in x.shape[-2:])
    below = unsqueeze(rows, 1) - columns
    bounds = [(num_lower, below), (num_upper, -below)]
    inside = [distance <= count for count, distance in bounds if count is not None]
    zero = constant(0, x.dtype, x.device)
    if not inside:
        return broadcast_to(zero, x.shape) if exclude else x
    band = inside[0] if len(inside) == 1 else logical_and(*inside)
    chosen: TensorValue = where(logical_not(band) if exclude else band, x, zero)
    return chosen
