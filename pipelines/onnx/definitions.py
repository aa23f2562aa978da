"""Operators that ONNX defines by others: what such a node computes, as nodes of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import declared
from heddle.pipelines.onnx.values import Value

if TYPE_CHECKING:
    import onnx


def definition(node: Node) -> onnx.FunctionProto | None:
    """The function that a node stands for, with its attributes put in; None: there is none."""
    import onnx

    schema = declared(node.kind, node.version, node.domain)
    if schema is None or not schema.has_context_dependent_function:
        return None
    types = [_type(value).SerializeToString() for value in node.values]
    try:
        found = schema.get_context_dependent_function(node.proto.SerializeToString(), types)
    except Exception as error:  # ONNX's own code, which raises whatever it does
        node.refuse(f"ONNX cannot say what it is made of: {error}")
    return onnx.FunctionProto.FromString(found) if found else None


def _type(value: Value | None) -> onnx.TypeProto:
    """The type of an input; sizes that are not known have names."""
    from onnx import TypeProto, helper

    if value is None:
        return TypeProto()
    number = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype.value))
    if value.known is not None:
        return helper.make_tensor_type_proto(number, value.known.shape)
    shape = [str(dim) if dim.static is None else dim.static for dim in value.tensor.shape]
    return helper.make_tensor_type_proto(number, shape)
