"""The same elements in other shapes, and tensors that are made of a shape."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from heddle.graph import Dim, DType, Shape, TensorValue, ops
from heddle.graph.bounds import bounds
from heddle.graph.dialect import GROUPS
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along
from heddle.pipelines.onnx.table import operator


@operator("Reshape")
def reshape(node: Node) -> TensorValue:
    """To sizes of which 0 means that of the input, unless `allowzero` says otherwise."""
    x = node(0)
    given = node["shape"] if node.version < 5 else node.sizes(1, "the shape")
    if not node["allowzero"]:
        given = [x.shape[axis] if size == 0 else size for axis, size in enumerate(given)]
    return ops.reshape(x, tuple(given))


@operator("Flatten")
def flatten(node: Node) -> TensorValue:
    """The axes before `axis` as one, and those from it on."""
    x, axis = node(0), node["axis"]
    axis += x.rank if axis < 0 else 0
    sides = Shape(x.shape[:axis]).elements, Shape(x.shape[axis:]).elements
    return ops.reshape(x, sides)


@operator("Transpose")
def transpose(node: Node) -> TensorValue:
    """The axes in another order, by default the last one first."""
    x = node(0)
    order = node["perm"]
    return ops.permute(x, list(range(x.rank))[::-1] if order is None else order)


@operator("Squeeze")
def squeeze(node: Node) -> TensorValue:
    """Without axes of size 1; which they are must not depend on the run."""
    x = node(0)
    given = node.setting("axes")
    if given is None:
        for dim in x.shape:
            low, high = bounds(dim, x.graph.symbols)
            if dim.static is None and low <= 1 <= high:
                node.refuse(f"wanted axes, or sizes that are never or always 1, got {x.shape}")
        given = [axis for axis, dim in enumerate(x.shape) if dim == 1]
    for axis in sorted(node.axes(given, x.rank), reverse=True):
        x = ops.squeeze(x, axis)
    return x


@operator("Unsqueeze")
def unsqueeze(node: Node) -> TensorValue:
    """With axes of size 1, which are counted in the result."""
    x = node(0)
    given = node.setting("axes")
    for axis in sorted(node.axes(given, x.rank + len(given))):
        x = ops.unsqueeze(x, axis)
    return x


@operator("Expand")
def expand(node: Node) -> TensorValue:
    """Broadcast in both directions: sizes of 1 in the shape keep those of the input."""
    x, wanted = node(0), node.sizes(1, "the shape")
    rank = max(x.rank, len(wanted))
    ones: list[Any] = [1] * rank
    inner = [*ones[x.rank :], *x.shape]
    outer = [*ones[len(wanted) :], *wanted]
    return ops.broadcast_to(x, [a if b == 1 else b for a, b in zip(inner, outer, strict=True)])


@operator("Tile")
def tile(node: Node) -> TensorValue:
    """Side by side with itself."""
    return ops.tile(node(0), node.ints(1, "the repeats"))


@operator("Concat")
def concat(node: Node) -> TensorValue:
    """One after another; of no elements there is nothing to be seen."""
    return joined(node, node.tensors())


def joined(node: Node, values: list[TensorValue]) -> TensorValue:
    """One after another along the node's axis; where there are many sizes, by parts."""
    axis = node.axis(values[0].rank)
    while len([*groupby(value.shape for value in values)]) > GROUPS:
        parts = [values[at : at + GROUPS] for at in range(0, len(values), GROUPS)]
        values = [ops.concat(part, axis=axis) for part in parts]
    return ops.concat(values, axis=axis)


@operator("Split")
def split(node: Node) -> list[TensorValue]:
    """Pieces of given sizes, or as many as there are outputs: all of one size but the last."""
    x = node(0)
    axis = node.axis(x.rank)
    sizes = node.setting("split") if node.version < 13 else node.ints(1, "the sizes")
    if sizes is None:
        count = node["num_outputs"] or len(node.outputs)
        size = x.shape[axis].static
        if size is None:
            if (each := x.shape[axis].divided(count)) is None:
                node.refuse(f"wanted {count} to divide {x.shape[axis]}")
            return [x[along(axis, slice(each * i, each * (i + 1)))] for i in range(count)]
        most = -(-size // count)
        sizes = [min(most, size - most * number) for number in range(count)]
    return ops.split(x, sizes, axis)


@operator("Pad")
def pad(node: Node) -> TensorValue:
    """Numbers around the input, or its own again: reflected, its edge, or from the other end."""
    x = node(0)
    pads = node["pads"] if node.version < 11 else node.ints(1, "the pads")
    value = node["value"] if node.version < 11 else node.number(2, "the value", 0)
    axes = node.axes(node.ints(3, "the axes", range(x.rank)), x.rank)
    around = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    for axis, (before, behind) in around.items():
        if min(before, behind) < 0:
            x = x[along(axis, slice(max(-before, 0), x.shape[axis] - max(-behind, 0)))]
    around = {axis: (max(a, 0), max(b, 0)) for axis, (a, b) in around.items()}
    if node["mode"] in (None, "constant"):
        listed = [size for axis in range(x.rank) for size in around.get(axis, (0, 0))]
        return ops.pad(x, listed, bool(value) if x.dtype is DType.bool else value)
    for axis, sides in around.items():
        if any(sides):
            x = _padded_by_itself(node, x, axis, *sides)
    return x


def _padded_by_itself(
    node: Node, x: TensorValue, axis: int, before: int, behind: int
) -> TensorValue:
    size = x.shape[axis].static
    if size is None:
        node.refuse(f"wanted a known size along axis {axis}, got {x.shape[axis]}")
    places = np.pad(np.arange(size), (before, behind), mode=node["mode"])
    return ops.gather(x, ops.constant(places), axis=axis)


@operator("ConstantOfShape")
def constant_of_shape(node: Node) -> TensorValue:
    """One number everywhere."""
    from onnx import numpy_helper

    given = node["value"]
    value = np.zeros(1, np.float32) if given is None else numpy_helper.to_array(given)
    return ops.broadcast_to(ops.constant(value.reshape(())), node.sizes(0, "the shape"))


@operator("Range")
def counted(node: Node) -> TensorValue:
    """From a start up to a limit, by steps."""
    ends = [node.values[number] for number in range(3)]
    if not any(end is not None and end.has_dims for end in ends):
        start, limit, step = (node.number(i, "the ends of a range") for i in range(3))
        known = node.known(0, "the start")
        return ops.range(start, limit, step, dtype=DType.from_numpy(known.dtype))
    first, last = node.sizes(0, "the start")[0], node.sizes(1, "the limit")[0]
    dtype = next(end.dtype for end in ends if end is not None)
    return ops.range(first, last, node.number(2, "the step"), dtype=dtype)


@operator("EyeLike")
def eye_like(node: Node) -> TensorValue:
    """Ones on a diagonal."""
    x = node(0)
    dtype = node.dtype("dtype") if node["dtype"] else x.dtype
    rows, columns = (ops.range(dim) for dim in x.shape)
    here = ops.equal(ops.unsqueeze(rows, 1) + node["k"], columns)
    return ops.cast(here, dtype)


@operator("Trilu")
def triangle(node: Node) -> TensorValue:
    """The upper or the lower triangle, from the diagonal k on."""
    x = node(0)
    k = node.sizes(1, "k")[0] if node.has(1) else 0
    rows, columns = x.shape[-2:]
    diagonal, places = ops.unsqueeze(ops.range(k, rows + k), 1), ops.range(columns)
    kept = places >= diagonal if node["upper"] else places <= diagonal
    return ops.where(kept, x, ops.constant(False if x.dtype is DType.bool else 0, x.dtype))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> TensorValue:
    """Channels become squares of pixels."""
    x, size = node(0), node["blocksize"]
    batch, channels, height, width = x.shape
    each = _divided(node, channels, size * size)
    if node["mode"] == "CRD":
        parts, order = (batch, each, size, size, height, width), (0, 1, 4, 2, 5, 3)
    else:
        parts, order = (batch, size, size, each, height, width), (0, 3, 4, 1, 5, 2)
    moved = ops.permute(ops.reshape(x, parts), order)
    return ops.reshape(moved, (batch, each, height * size, width * size))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> TensorValue:
    """Squares of pixels become channels."""
    x, size = node(0), node["blocksize"]
    batch, channels, height, width = x.shape
    rows, columns = _divided(node, height, size), _divided(node, width, size)
    parts = ops.reshape(x, (batch, channels, rows, size, columns, size))
    order = (0, 1, 3, 5, 2, 4) if node["mode"] == "CRD" else (0, 3, 5, 1, 2, 4)
    moved = ops.permute(parts, order)
    return ops.reshape(moved, (batch, channels * (size * size), rows, columns))


def _divided(node: Node, dim: Dim, by: int) -> Dim:
    each = dim.divided(by)
    if each is None:
        node.refuse(f"wanted a size that {by} divides, got {dim}")
    return each
