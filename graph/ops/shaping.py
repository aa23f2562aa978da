"""Ops that move elements or rename dims and compute nothing."""

from __future__ import annotations

import numpy as np

from heddle.graph.dim import Dim
from heddle.graph.ops import costs, rules
from heddle.graph.ops.declare import row
from heddle.graph.ops.row import Array, Attrs, Types, sample
from heddle.graph.types import Shape
from heddle.runtime.errors import GraphError


def _fill_in(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form of `shape`: without -1."""
    shape, elements = list(attrs["shape"]), types[0].shape.elements
    unknown = [i for i, size in enumerate(shape) if isinstance(size, int) and size == -1]
    if len(unknown) > 1:
        raise GraphError(f"shape: wanted at most one -1, got {shape}")
    for index in unknown:
        others = Shape(shape[:index] + shape[index + 1 :]).elements
        size = elements.divided(others)
        if size is None:
            raise GraphError(f"shape: wanted {others} to divide {elements} elements, got {shape}")
        shape[index] = size
    return {**attrs, "shape": Shape(shape)}


def _of_as_many(types: Types, attrs: Attrs) -> Shape:
    """`shape`, which has as many elements; one size may be -1."""
    shape: Shape = attrs["shape"]
    if shape.elements != types[0].shape.elements:
        raise GraphError(
            f"shape: wanted {types[0].shape.elements} elements as in {types[0].shape}, got "
            f"{shape.elements} in {shape}"
        )
    return shape


@row(
    dtype=rules.same,
    shape=_of_as_many,
    canonical=_fill_in,
    samples=(sample("m n 6", shape=Shape((Dim("n") * 2, "m", 3))), sample("1", shape=Shape())),
)
def reshape(x: Array, *, shape: Shape) -> Array:
    """The same elements in row-major order with other dims."""
    return np.reshape(x, shape)


def _permuted(types: Types, attrs: Attrs) -> Shape:
    """The operand's dims, in the order of `permutation`."""
    (x,), order = types, attrs["permutation"]
    if sorted(order) != list(range(x.rank)):
        raise GraphError(f"permutation: wanted each axis of {x.shape} once, got {tuple(order)}")
    return Shape(x.shape[axis] for axis in order)


def _from_front(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form of `permutation`: axes counted from the front."""
    rank = types[0].rank
    return {"permutation": tuple(a + rank if a < 0 else a for a in attrs["permutation"])}


@row(
    dtype=rules.same,
    shape=_permuted,
    canonical=_from_front,
    samples=(sample("k m n", permutation=(2, 0, 1)),),
    name="transpose",
)
def permute(x: Array, *, permutation: tuple[int, ...]) -> Array:
    """The dims in another order: dim i of the result is dim `permutation[i]` of x."""
    return np.transpose(x, permutation)


def _stretched(types: Types, attrs: Attrs) -> Shape:
    """`shape`, to which the operand broadcasts."""
    shape: Shape = attrs["shape"]
    if rules.broadcast_shapes([types[0].shape, shape]) != shape:
        raise GraphError(f"shape: wanted one that {types[0].shape} broadcasts to, got {shape}")
    return shape


def _as_shape(types: Types, attrs: Attrs) -> Attrs:
    """Canonical form of `shape`: made of dims."""
    return {**attrs, "shape": Shape(attrs["shape"])}


@row(
    dtype=rules.same,
    shape=_stretched,
    makes_sizes=True,
    canonical=_as_shape,
    samples=(sample("m 1", shape=Shape((2, "m", 3))), sample("", shape=Shape((2,)))),
)
def broadcast_to(x: Array, *, shape: Shape) -> Array:
    """The tensor repeated along new dims and along those of size 1."""
    return np.broadcast_to(x, tuple(map(int, shape)))


def _joined(types: Types, attrs: Attrs) -> Shape:
    """The operands', which differ along `axis` alone, where the sizes add up."""
    first = types[0]
    axis = rules.check_axis(attrs["axis"], first.rank)
    total = Dim(0)
    for index, type in enumerate(types):
        shape = type.shape
        others = [a == b for a, b in zip(shape, first.shape, strict=False)]
        if len(shape) != first.rank or not all(others[:axis] + others[axis + 1 :]):
            raise GraphError(
                f"operand {index}: wanted {first.shape} except along axis {axis}, got {shape}"
            )
        total = total + shape[axis]
    return Shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


@row(
    dtype=rules.same,
    shape=_joined,
    canonical=rules.positive_axis,
    samples=(sample("k m", "k n", "k 2", axis=1), sample("m", axis=0)),
)
def concat(*xs: Array, axis: int = 0) -> Array:
    """The operands one after another along `axis`."""
    return np.concatenate(xs, axis=axis)


def _gathered(types: Types, attrs: Attrs) -> Shape:
    """The table's, with the indices' shape in the place of `axis`."""
    table, indices = types
    axis = rules.check_axis(attrs["axis"], table.rank)
    return Shape((*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]))


@row(
    dtype=rules.indexed,
    shape=_gathered,
    samples=(
        sample("4 n", "int64: k m", axis=0),
        sample("m 4", "uint8: ", axis=1),
    ),
    promotion="none",
    canonical=rules.positive_axis,
    cost=costs.selected,
)
def gather(table: Array, indices: Array, *, axis: int) -> Array:
    """The entries of the table along `axis` that the indices name.

    An index below 0 or beyond the axis is an error when the model runs.
    """
    if indices.size and (indices.min() < 0 or indices.max() >= table.shape[axis]):
        raise IndexError(f"gather: wanted indices from 0 to {table.shape[axis] - 1}")
    return np.take(table, indices, axis=axis)


def _selected(types: Types, attrs: Attrs) -> Shape:
    """`sizes`; element i of an axis is element `start + i * step` of the operand."""
    (x,), sizes = types, attrs["sizes"]
    if not len(attrs["starts"]) == len(attrs["steps"]) == len(sizes) == x.rank:
        raise GraphError(f"wanted starts, steps and sizes for each dim of {x.shape}, got {attrs}")
    for axis, (dim, start, step, size) in enumerate(
        zip(x.shape, attrs["starts"], attrs["steps"], sizes, strict=True)
    ):
        if step == 0:
            raise GraphError(f"axis {axis}: wanted a step other than 0, got 0")
        if size == 0:
            continue
        ends = [start.static, (start + step * (size - 1)).static]
        rest = [(dim - start).static, (dim - start - step * (size - 1)).static]
        if any(end is not None and end < 0 for end in ends) or any(
            left is not None and left <= 0 for left in rest
        ):
            raise GraphError(
                f"axis {axis}: wanted elements 0 to {dim - 1}, got start {start}, step {step}, "
                f"size {size}"
            )
    return sizes  # type: ignore[no-any-return]


@row(
    dtype=rules.same,
    shape=_selected,
    samples=(
        sample("7 n", starts=Shape((1, 0)), steps=(2, 1), sizes=Shape((3, "n"))),
        sample("m 5", starts=Shape((0, 4)), steps=(1, -2), sizes=Shape(("m", 3))),
        sample("m 5", starts=Shape((0, 0)), steps=(1, 1), sizes=Shape(("m", 0))),
        sample("m 5", starts=Shape((Dim("m") - 1, 2)), steps=(1, 1), sizes=Shape((1, 3))),
    ),
    name="slice",
    public=False,
    cost=costs.selected,
)
def strided_slice(x: Array, *, starts: Shape, steps: tuple[int, ...], sizes: Shape) -> Array:
    """Every `step`-th element from `start` on, `size` of them, along each axis."""
    for axis, (start, step, size) in enumerate(zip(starts, steps, sizes, strict=True)):
        x = np.take(x, np.arange(int(size)) * step + int(start), axis=axis)
    return x
