"""Models in ONNX's text form (https://onnx.ai/onnx/repo-docs/Syntax.html), as graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser

from heddle.graph import reference
from heddle.pipelines.onnx import Imported, file, importer

TWO = "m (float[a, b] x, float[a, b] z) => (float[a, b] y) { y = Add(x, z) }"
"""A model of two inputs whose sizes may differ."""

HEADER = '<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "ai.onnx.ml": 5]>\n'


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    """The model of a graph in text form."""
    return onnx.parser.parse_model(HEADER.format(opset=opset) + text)


def imported(text: str, opset: int = 21, **sizes: Any) -> Imported:
    """The graph of a text, and its weights."""
    model = file.checked(parsed(text, opset), "m.onnx")
    return importer.build(model, "m", "m.onnx", **sizes)


def computed(text: str, *inputs: Any, opset: int = 21, **sizes: Any) -> Sequence[np.ndarray]:
    """What a text computes of its inputs, by the reference."""
    found = imported(text, opset, **sizes)
    return reference.evaluate(found.graph, inputs, found.weights)


def text(node: str, given: Sequence[np.ndarray], wanted: np.ndarray, **constants: Any) -> str:
    """A model of one node, of inputs x0, x1, ... like the arrays `given`."""
    inputs = ", ".join(f"{_type(array)} x{at}" for at, array in enumerate(given))
    held = ", ".join(f"{name} = {{{value}}}" for name, value in constants.items())
    return f"m ({inputs}) => ({_type(wanted)} y) <{held}> {{ y = {node} }}"


def _type(array: np.ndarray) -> str:
    """The type of an array as the text form has it."""
    name = {"float32": "float", "float64": "double"}.get(array.dtype.name, array.dtype.name)
    return f"{name}{list(array.shape)}" if array.ndim else name


def types(found: Imported) -> list[str]:
    """The types of the inputs."""
    return [str(value.type) for value in found.graph.inputs]


def ops_of(found: Imported) -> list[str]:
    """The names of the ops, without constants and weights."""
    names = [view.operation.name for view in found.graph.module.body.operations[0].entry_block]
    hidden = ("heddle.constant", "heddle.weight", "func.return")
    return [name.removeprefix("heddle.") for name in names if name not in hidden]
