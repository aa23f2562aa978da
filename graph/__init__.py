"""What a user builds a model's graph with."""

from typing import Any

import heddle.graph.ops as ops
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.graph import Graph
from heddle.graph.types import BufferType, DeviceRef, Shape, TensorType, Weight
from heddle.graph.value import TensorValue

__all__ = [
    "BufferType",
    "DType",
    "DeviceRef",
    "Dim",
    "Graph",
    "Shape",
    "Target",
    "TensorType",
    "TensorValue",
    "Weight",
    "compile",
    "ops",
]


def __getattr__(name: str) -> Any:
    # Building a graph must not wait for the compiler's imports.
    if name in ("Target", "compile"):
        from heddle.graph import compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
