"""Rewrites what no kernel takes as it stands into what the kernels do take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.types import Shape


def legalize(module: Any, kind: str) -> None:
    """One rewrite for each op that needs one; the others stay."""
    for operation in m.operations(module):
        rewrite = REWRITES.get(m.name(operation))
        value = rewrite(operation) if rewrite else None
        if value is not None:
            m.replace(operation, value)


def _along_last(operation: Any) -> Any:
    """Along another axis than the last: moved there and back."""
    (x,) = operation.operands
    axis, rank = m.attrs(operation)["axis"], m.tensor(x).rank
    if axis == rank - 1:
        return None
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    moved = m.create(operation, "transpose", [x], permutation=tuple(order))
    value = m.create(operation, m.name(operation), [moved], axis=rank - 1)
    return m.create(operation, "transpose", [value], permutation=tuple(order))


def _matmul(operation: Any) -> Any:
    """B gets a's leading dims or none: kernels do not broadcast them."""
    a, b = operation.operands
    leading = m.tensor(operation.results[0]).shape[:-2]
    shape_a, shape_b = m.tensor(a).shape, m.tensor(b).shape
    wide_a = Shape((*leading, *shape_a[-2:]))
    wide_b = Shape((*leading, *shape_b[-2:]))
    if all(size == 1 for size in shape_b[:-2]):
        wide_b = Shape(shape_b[-2:])
    if (wide_a, wide_b) == (shape_a, shape_b):
        return None
    if wide_a != shape_a:
        a = m.create(operation, "broadcast_to", [a], shape=wide_a)
    if wide_b != shape_b:
        op = "reshape" if len(wide_b) == 2 else "broadcast_to"
        b = m.create(operation, op, [b], shape=wide_b)
    return m.create(operation, m.name(operation), [a, b])


REWRITES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("softmax", "argmax", "argmin", "cumsum"), _along_last),
    **dict.fromkeys(("matmul", "integer_matmul", "float8_matmul"), _matmul),
}
