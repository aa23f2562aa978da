"""Operators of the domain ai.onnx.ml: what prepares columns of numbers for a model."""

from __future__ import annotations

import math

import numpy as np

from heddle.graph import DType, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator
from heddle.pipelines.onnx.values import Known

DOMAIN = "ai.onnx.ml"


@operator("Binarizer", domain=DOMAIN)
def binarize(node: Node) -> TensorValue:
    """1 where an element is above the threshold, else 0."""
    x, threshold = node(0), node["threshold"]
    if x.dtype.is_integer:
        threshold = math.floor(threshold)
    return ops.cast(x > threshold, x.dtype)


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def chosen_columns(node: Node) -> TensorValue:
    """The columns of the last axis that indices name; a vector is a row."""
    x, indices = node(0), node(1)
    rows = ops.unsqueeze(x, 0) if x.rank == 1 else x
    return ops.gather(rows, ops.reshape(indices, Shape([indices.shape.elements])), axis=-1)


@operator("LabelEncoder", domain=DOMAIN)
def label(node: Node) -> TensorValue:
    """The value whose key an element is, of equal keys the first one's; else a default.

    NaN is a key from opset 4 on, as in ONNX Runtime.
    """
    x, keys, values = node(0), _numbers(node, "keys"), _numbers(node, "values")
    if keys.shape != values.shape or keys.ndim != 1:
        node.refuse(f"wanted as many keys as values, got {keys.shape} and {values.shape}")
    element, key = ops.unsqueeze(x, x.rank), ops.constant(keys)
    here = ops.equal(element, key)
    if x.dtype.is_float and node.version >= 4:
        here = ops.logical_or(here, ops.logical_and(ops.isnan(element), ops.isnan(key)))
    last = ops.broadcast_to(ops.constant(True), [*x.shape, 1])
    place = ops.argmax(ops.cast(ops.concat([here, last], axis=x.rank), DType.uint8), axis=x.rank)
    table = ops.constant(np.append(values, _default(node, values)))
    return ops.gather(table, ops.squeeze(place, x.rank), axis=0)


def _numbers(node: Node, name: str) -> Known:
    """The keys or the values, a list or a tensor of numbers."""
    from onnx import numpy_helper

    if node[f"{name}_tensor"] is not None:
        return numpy_helper.to_array(node[f"{name}_tensor"])
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node[f"{name}_{kind}"] is not None:
            return np.array(node[f"{name}_{kind}"], dtype)
    return node.refuse(f"wanted {name} that are numbers, got texts")


def _default(node: Node, values: Known) -> Known:
    """What stands for an element that is no key, of the values' dtype."""
    from onnx import numpy_helper

    given = node["default_tensor"]
    if given is not None:
        return numpy_helper.to_array(given).astype(values.dtype)
    name = "default_float" if values.dtype.kind == "f" else "default_int64"
    return np.array(node[name], values.dtype)
