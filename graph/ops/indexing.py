"""Functions that users call and that are made of other ops: views of dims, and Python indexing."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from heddle.graph.bounds import never_negative
from heddle.graph.dim import Dim
from heddle.graph.location import graph_error
from heddle.graph.ops.arguments import are_counts, axis_of, is_int, rank_of
from heddle.graph.ops.shaping import permute, reshape, strided_slice
from heddle.graph.types import Shape
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError


def transpose(x: TensorValue, axis_1: int = -1, axis_2: int = -2) -> TensorValue:
    """Two dims exchanged."""
    rank = rank_of("transpose", x)
    order = list(range(rank))
    first, second = (axis_of("transpose", axis, rank) for axis in (axis_1, axis_2))
    order[first], order[second] = order[second], order[first]
    return permute(x, permutation=tuple(order))


def squeeze(x: TensorValue, axis: int) -> TensorValue:
    """Without the dim `axis`, whose size is 1."""
    axis = axis_of("squeeze", axis, rank_of("squeeze", x))
    shape = x.shape
    if shape[axis] != 1:
        raise graph_error(f"squeeze: wanted size 1 at axis {axis}, got {shape}")
    return reshape(x, shape=Shape((*shape[:axis], *shape[axis + 1 :])))


def unsqueeze(x: TensorValue, axis: int) -> TensorValue:
    """With a new dim of size 1 at `axis` of the result."""
    axis = axis_of("unsqueeze", axis, rank_of("unsqueeze", x) + 1)
    shape = x.shape
    return reshape(x, shape=Shape((*shape[:axis], Dim(1), *shape[axis:])))


def flatten(x: TensorValue, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
    """The dims `start_dim` to `end_dim`, both included, as one."""
    rank = rank_of("flatten", x)
    start, end = (axis_of("flatten", axis, rank) for axis in (start_dim, end_dim))
    if start > end:
        raise graph_error(f"flatten: wanted start_dim <= end_dim, got {start} and {end}")
    shape = x.shape
    size = Shape(shape[start : end + 1]).elements
    return reshape(x, shape=Shape((*shape[:start], size, *shape[end + 1 :])))


def split(x: TensorValue, sizes: Sequence[int], axis: int = 0) -> list[TensorValue]:
    """Consecutive pieces along `axis`, of the given sizes."""
    axis = axis_of("split", axis, rank_of("split", x))
    if not are_counts(sizes):
        raise graph_error(f"split: sizes: wanted a list of ints of 0 or more, got {sizes!r}")
    if x.shape[axis] != sum(sizes):
        raise graph_error(f"split: wanted sizes that add up to {x.shape[axis]}, got {list(sizes)}")
    before = (slice(None),) * axis
    ends = np.cumsum(sizes).tolist()
    pieces = zip(sizes, ends, strict=True)
    return [slice_tensor(x, (*before, slice(end - size, end))) for size, end in pieces]


def slice_tensor(x: TensorValue, indices: Sequence[Any]) -> TensorValue:
    """`x[indices]`: ints, slices, `...` and None (a new dim), as in NumPy.

    Indices and bounds may be dims. Where a size is not known before the model runs, what is
    selected must lie inside of it for every size in its range, and the step is positive.
    """
    rank_of("slice_tensor", x)
    if not isinstance(indices, (tuple, list)):
        raise graph_error(f"slice_tensor: indices: wanted a tuple of indices, got {indices!r}")
    try:
        starts, steps, sizes, shape = _plan(x, _expand(x.rank, tuple(indices)))
    except GraphError as error:
        raise graph_error(f"slice_tensor: {error}") from None
    if any(start != 0 for start in starts) or any(step != 1 for step in steps) or sizes != x.shape:
        x = strided_slice(x, starts=starts, steps=tuple(steps), sizes=sizes)
    return x if shape == sizes else reshape(x, shape=shape)


def _plan(x: TensorValue, indices: list[Any]) -> tuple[Shape, list[int], Shape, Shape]:
    """Starts, steps and sizes of the slice, and the shape after ints and None."""
    starts: list[Dim] = []
    steps: list[int] = []
    sizes: list[Dim] = []
    shape: list[Dim] = []
    for index in indices:
        if index is None:
            shape.append(Dim(1))
            continue
        axis = len(sizes)
        try:
            start, step, size = _bounds(x.shape[axis], index, x.graph.symbols)
        except GraphError as error:
            raise GraphError(f"axis {axis}: {error}") from None
        starts.append(start)
        steps.append(step)
        sizes.append(size)
        if isinstance(index, slice):
            shape.append(size)
    return Shape(starts), steps, Shape(sizes), Shape(shape)


def _expand(rank: int, indices: tuple[Any, ...]) -> list[Any]:
    """One index for each dim, and the Nones, without `...`."""
    for index in indices:
        if not (index is None or index is ... or _is_bound(index) or isinstance(index, slice)):
            kind = type(index).__name__
            raise GraphError(f"wanted ints, dims, slices, ... and None, got {kind}; see ops.gather")
    used = builtins.sum(index is not None and index is not ... for index in indices)
    dots = [place for place, index in enumerate(indices) if index is ...]
    if used > rank or len(dots) > 1:
        raise GraphError(f"wanted at most {rank} indices and one ..., got {len(indices)}")
    place = dots[0] if dots else len(indices)
    rest = [slice(None)] * (rank - used)
    return [*indices[:place], *rest, *indices[place + 1 :]]


def _bounds(dim: Dim, index: Any, symbols: dict[str, tuple[int, int]]) -> tuple[Dim, int, Dim]:
    """Start, step and size of what `index` selects from a dim."""
    if not isinstance(index, slice):
        start = _from_front(dim, index)
        if not _ordered((Dim(0), start, dim - 1), symbols):
            raise GraphError(f"wanted an index inside of {dim} for all of its sizes, got {index}")
        return start, 1, Dim(1)
    step = 1 if index.step is None else index.step
    if not is_int(step) or step == 0:
        raise GraphError(f"wanted a step that is an int other than 0, got {step!r}")
    given = [bound for bound in (index.start, index.stop) if bound is not None]
    if not all(map(_is_bound, given)):
        raise GraphError(f"wanted ints or dims as the ends of a slice, got {index}")
    if dim.static is not None and all(map(is_int, given)):
        chosen = range(dim.static)[index]
        return Dim(chosen.start if len(chosen) else 0), step, Dim(len(chosen))
    if step < 0:
        raise GraphError(f"wanted a positive step where a size is not known, got {step}")
    start = Dim(0) if index.start is None else _from_front(dim, index.start)
    stop = dim if index.stop is None else _from_front(dim, index.stop)
    if not _ordered((Dim(0), start, stop, dim), symbols):
        raise GraphError(
            f"wanted 0 <= start <= stop <= {dim} for all sizes in range, got start {start} and "
            f"stop {stop}; give the Dim a minimum or a maximum"
        )
    return start, step, (stop - start + (step - 1)) // step


def _from_front(dim: Dim, bound: Any) -> Dim:
    """What a bound names, counted from the front: negative ints count from the end."""
    place = Dim(0) + (int(bound) if is_int(bound) else Dim(bound))
    return dim + place if place.static is not None and place.static < 0 else place


def _ordered(sizes: Sequence[Dim], symbols: dict[str, tuple[int, int]]) -> bool:
    """Whether each size is at least the one before it, for all values of the symbols."""
    return all(never_negative(b - a, symbols) for a, b in itertools.pairwise(sizes))


def _is_bound(value: Any) -> bool:
    return is_int(value) or isinstance(value, (Dim, str))
