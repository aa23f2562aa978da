"""What can be computed once, when the model is loaded."""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m


def known_at_init(module: Any) -> set[Any]:
    """The values that depend on weights and constants alone, and on no size of the inputs."""
    early: set[Any] = set()
    for operation in m.operations(module):
        static = all(m.tensor(value).shape.static is not None for value in operation.results)
        given = all(operand in early for operand in operation.operands)
        if static and given and m.sized(operation):
            early.update(operation.results)
    return early
