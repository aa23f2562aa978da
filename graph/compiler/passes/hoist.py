"""Marks what depends on weights and constants alone: it runs once, when the model is loaded."""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.stages import known_at_init
from heddle.kernels.mlir import ir


def hoist(module: Any, kind: str) -> None:
    """Gives such kernels the attribute `stage = "init"`."""
    early = known_at_init(module)
    for operation in m.operations(module):
        if m.name(operation) == "fused" and all(v in early for v in operation.results):
            operation.attributes["stage"] = ir.StringAttr.get("init")
