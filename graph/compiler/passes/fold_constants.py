"""Evaluates ops whose operands are all constants, by the ops' own NumPy references."""

from __future__ import annotations

from typing import Any

from heddle.graph.attributes import constant_array, constant_attr
from heddle.graph.compiler import module as m
from heddle.graph.ops.row import ROWS
from heddle.kernels.mlir import ir

MOST_ELEMENTS = 1 << 14
"""A larger result is left to init: the artifact would only grow."""


def fold_constants(module: Any, kind: str) -> None:
    """Replaces what is known by `heddle.constant`, through chains; constants that it was of go."""
    for operation in m.operations(module):
        row = ROWS.get(m.name(operation))
        if row is None or not len(operation.operands):
            continue
        constants = [_dense(value) for value in operation.operands]
        result = m.tensor(operation.results[0])
        sizes = result.shape.static
        if sizes is None or any(dense is None for dense in constants):
            continue
        if not m.sized(operation) or int(result.shape.elements) > MOST_ELEMENTS:
            continue
        arrays = list(map(constant_array, constants))
        try:
            value = row.reference(*arrays, **m.attrs(operation))
        except IndexError:
            continue  # a gather beyond its table is the model's error, when it runs
        attribute = constant_attr(value.reshape(sizes), result.dtype)
        operands = dict.fromkeys(operation.operands)
        m.replace(operation, m.insert(operation, "constant", [], result, {"value": attribute}))
        for operand in operands:
            m.discard(operand)


def _dense(value: Any) -> Any:
    """The elements of a constant, as MLIR has them, else None: to read them takes a while."""
    operation = m.owner(value)
    if operation is None or m.name(operation) != "constant":
        return None
    dense = operation.attributes["value"]
    return dense if isinstance(dense, ir.DenseElementsAttr) else None
