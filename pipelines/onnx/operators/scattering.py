"""What is written at the places that indices choose."""

from __future__ import annotations

import math

import numpy as np

from heddle.graph import Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along
from heddle.pipelines.onnx.operators.indexing import from_front, places
from heddle.pipelines.onnx.table import operator


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> TensorValue:
    """Each update at the place along an axis that its own index names."""
    x, updates = node(0), node(2)
    axis = node.axis(x.rank)
    indices = from_front(node, x.shape[axis])
    order = [*(i for i in range(x.rank) if i != axis), axis]
    # Indices may be fewer than x along the other axes: what is beyond them stays.
    part, beyond = x, []
    for other in order[:-1]:
        size = indices.shape[other]
        if size != x.shape[other]:
            beyond.append((other, part[along(other, slice(size, None))]))
            part = part[along(other, slice(0, size))]
    moved = (ops.permute(value, order) for value in (part, indices, updates))
    found = ops.scatter(*moved, axis=-1, reduce=_reduction(node))
    found = ops.permute(found, [order.index(i) for i in range(x.rank)])
    for other, rest in reversed(beyond):
        found = ops.concat(found, rest, axis=other)
    return found


@operator("ScatterND")
def scatter_nd(node: Node) -> TensorValue:
    """Each update at the part that its row of indices names, one index for each first axis."""
    x, indices, updates = node(0), node(1), node(2)
    depth = int(indices.shape[-1])
    count, inner = Shape(indices.shape[:-1]).elements, x.shape[depth:]
    found = ops.scatter(
        ops.flatten(x, 0, depth - 1),
        ops.reshape(places(x, indices), [count]),
        ops.reshape(updates, [count, *inner]),
        reduce=_reduction(node),
    )
    return ops.reshape(found, x.shape)


@operator("TensorScatter")
def tensor_scatter(node: Node) -> TensorValue:
    """New entries of a cache along an axis, each sequence from its own place on."""
    cache, update = node(0), node(1)
    axis = node.axis(cache.rank)
    outer, count, size = cache.shape[:axis], update.shape[axis], ops.size(cache.shape[axis])
    place = ops.range(count)
    if node.has(2):
        starts = ops.cast(node(2), place.dtype)
        place = place + ops.reshape(starts, [outer[0], *[1] * axis])
    if node["mode"] == "circular":
        place = ops.mod(place, size)
    return ops.scatter(cache, ops.broadcast_to(place, [*outer, count]), update, axis=axis)


@operator("Col2Im")
def col2im(node: Node) -> TensorValue:
    """A picture of blocks that are added where they overlap."""
    x = node(0)
    image, block = node.ints(1, "the shape of the picture"), node.ints(2, "the shape of a block")
    rank = len(image)
    pads = node["pads"] or [0] * (2 * rank)
    strides, dilations = (node[name] or [1] * rank for name in ("strides", "dilations"))
    padded = [size + pads[axis] + pads[axis + rank] for axis, size in enumerate(image)]
    # Where along each axis the elements of a block lie, for each of the blocks.
    places = [
        np.arange(width)[:, None] * dilation
        + np.arange((size - dilation * (width - 1) - 1) // stride + 1) * stride
        for size, width, stride, dilation in zip(padded, block, strides, dilations, strict=True)
    ]
    flat = np.zeros((1, 1), np.int64)
    for own, size in zip(places, padded, strict=True):
        both = flat[:, None, :, None] * size + own[None, :, None, :]
        flat = both.reshape(flat.shape[0] * own.shape[0], -1)
    channels = x.shape[1] // math.prod(block)
    outer, count = [x.shape[0] * channels, flat.size], math.prod(padded)
    zeros = ops.broadcast_to(ops.constant(0, x.dtype), [outer[0], count])
    indices = ops.broadcast_to(ops.constant(flat.ravel()), outer)
    found = ops.scatter(zeros, indices, ops.reshape(x, outer), axis=1, reduce="add")
    found = ops.reshape(found, [x.shape[0], channels, *padded])
    ends = zip(pads[:rank], image, strict=True)
    inside = (..., *(slice(start, start + size) for start, size in ends))
    return found[inside]


def _reduction(node: Node) -> str:
    return node["reduction"] or "none"
