"""Masks that are cut from a constant: a buffer as large as the longest sequence, drawn once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.dim import Dim
from heddle.graph.ops.row import ROWS
from heddle.graph.types import Shape
from heddle.kernels.mlir import ir

MOST_OPS = 8
"""Ops between a constant and the mask."""

MOST_ELEMENTS = 1 << 24
"""A larger constant is not looked through."""


@dataclass(frozen=True)
class Drawn:
    """The elements of `array`, of two axes, from `row` and `column` on."""

    array: np.ndarray[Any, Any]
    row: Dim
    column: Dim


def drawn_of(value: Any, most: int = MOST_OPS) -> Drawn | None:
    """What `value` [..., rows, columns] is of a constant; other axes have one element."""
    operation, shape = m.owner(value), m.tensor(value).shape
    if operation is None or not most or len(shape) < 2 or any(dim != 1 for dim in shape[:-2]):
        return None
    name = m.name(operation)
    if name == "constant":
        return _constant(operation, shape)
    if name == "slice":
        drawn, attrs = drawn_of(operation.operands[0], most - 1), m.attrs(operation)
        if drawn is None or any(step != 1 for step in attrs["steps"][-2:]):
            return None
        row, column = attrs["starts"][-2:]
        return replace(drawn, row=drawn.row + row, column=drawn.column + column)
    if name == "reshape" and m.tensor(operation.operands[0]).shape[-2:] == shape[-2:]:
        return drawn_of(operation.operands[0], most - 1)
    return _computed(operation, shape, most) if m.elementwise(operation) else None


def _constant(operation: Any, shape: Shape) -> Drawn | None:
    dense = operation.attributes["value"]
    if not isinstance(dense, ir.DenseElementsAttr) or int(shape.elements) > MOST_ELEMENTS:
        return None
    array = constant_array(dense)
    return Drawn(array.reshape(array.shape[-2:]), Dim(0), Dim(0))


def _computed(operation: Any, shape: Shape, most: int) -> Drawn | None:
    """An op of numbers and of one operand that is drawn, element by element."""
    numbers = [m.splat(value) for value in operation.operands]
    if numbers.count(None) != 1:
        return None
    place = numbers.index(None)
    if m.tensor(operation.operands[place]).shape[-2:] != shape[-2:]:
        return None
    drawn = drawn_of(operation.operands[place], most - 1)
    if drawn is None:
        return None
    arrays = [
        drawn.array if each is None else np.array(each, m.tensor(operand).dtype.to_numpy())
        for each, operand in zip(numbers, operation.operands, strict=True)
    ]
    with np.errstate(all="ignore"):
        computed = ROWS[m.name(operation)].reference(*arrays, **m.attrs(operation))
    return replace(drawn, array=computed)
