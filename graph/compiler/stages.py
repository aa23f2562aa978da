"""What can be computed once, when the model is loaded."""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m


def known_at_init(module: Any) -> set[Any]:
    """The values of static shape that depend on weights and constants alone."""
    early: set[Any] = set()
    for operation in m.operations(module):
        static = all(m.tensor(value).shape.static is not None for value in operation.results)
        if static and all(operand in early for operand in operation.operands):
            early.update(operation.results)
    return early
