"""What a graph computes, by NumPy: the specification that compiled code is compared with.

A tensor of a dtype that NumPy lacks is a float32 array of rounded values (`rounding.held`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array
from heddle.graph.dialect import attrs_of
from heddle.graph.dim import Dim
from heddle.graph.ops.row import ROWS, Array
from heddle.graph.rounding import held
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import InputError
from heddle.runtime.masked import is_masked

Symbols = dict[str, int]


def evaluate(
    graph: Any, inputs: Sequence[Any], weights: Mapping[str, Any] | None = None
) -> list[Array]:
    """The outputs of a `Graph`, or of a module at any stage of the compiler.

    Raises:
        InputError: An input, or a weight, is missing or has another dtype or shape.
    """
    main = getattr(graph, "module", graph).body.operations[0]
    block = main.entry_block
    if len(inputs) != len(block.arguments):
        raise InputError(f"inputs: wanted {len(block.arguments)}, got {len(inputs)}")
    types = [TensorType.from_mlir(argument.type) for argument in block.arguments]
    symbols: Symbols = {}
    arrays = [_plain(f"input {index}", array) for index, array in enumerate(inputs)]
    for index, (array, type) in enumerate(zip(arrays, types, strict=True)):
        _bind(f"input {index}", array, type, symbols)
    pairs = enumerate(zip(arrays, types, strict=True))
    taken = [_taken(f"input {index}", array, type, symbols) for index, (array, type) in pairs]
    return _run_block(block, taken, symbols, weights or {})


def run(
    op: Any,
    arrays: Sequence[Array],
    symbols: Symbols | None = None,
    weights: Mapping[str, Any] | None = None,
) -> list[Array]:
    """The results of one operation of the dialect.

    Raises:
        InputError: A weight is missing, or has another dtype or shape.
    """
    op, symbols, weights = op.operation, symbols or {}, weights or {}
    if op.name == "heddle.constant":
        return [constant_array(op.attributes["value"])]
    if op.name == "heddle.weight":
        name = op.attributes["name"].value
        if name not in weights:
            raise InputError(f"weights: wanted {name!r}, got {', '.join(weights) or 'none'}")
        type, where = TensorType.from_mlir(op.results[0].type), f"weight {name!r}"
        return [_taken(where, _plain(where, weights[name]), type, symbols)]
    if op.name == "heddle.fused":
        return _run_block(op.regions[0].blocks[0], arrays, symbols, weights)
    row = ROWS[op.name.removeprefix("heddle.")]
    attrs = {name: numbers(value, symbols) for name, value in attrs_of(row, op).items()}
    result = row.reference(*arrays, **attrs)
    dtype = TensorType.from_mlir(op.results[0].type).dtype
    return [result if dtype.in_numpy else held(result, dtype)]


def _plain(where: str, array: Any) -> Array:
    if is_masked(array):
        raise InputError(f"{where}: wanted an array without a mask, got a MaskedArray")
    return np.asarray(array)


def _run_block(
    block: Any, arguments: Sequence[Array], symbols: Symbols, weights: Mapping[str, Any]
) -> list[Array]:
    values = dict(zip(block.arguments, arguments, strict=True))
    for view in block.operations:
        op = view.operation
        operands = [values[operand] for operand in op.operands]
        if op.name in ("func.return", "heddle.yield"):
            return operands
        values |= zip(op.results, run(op, operands, symbols, weights), strict=True)
    raise AssertionError("a verified block ends with a terminator")


def _bind(name: str, array: Array, type: TensorType, symbols: Symbols) -> None:
    if array.ndim != type.rank:
        raise InputError(f"{name}: wanted rank {type.rank} ({type}), got shape {array.shape}")
    for dim, size in zip(type.shape, array.shape, strict=True):
        if dim.name is not None:
            symbols.setdefault(dim.name, size)


def _taken(name: str, array: Array, type: TensorType, symbols: Symbols) -> Array:
    """The array as the reference holds it, after a check against its type."""
    wanted = tuple(dim.evaluate(symbols) for dim in type.shape)
    if array.shape != wanted:
        raise InputError(f"{name}: wanted shape {wanted} ({type}), got {array.shape}")
    if not type.dtype.in_numpy and array.dtype.name in (type.dtype.value, "float32"):
        return held(array, type.dtype)
    if array.dtype.name != type.dtype.value:
        raise InputError(f"{name}: wanted dtype {type.dtype}, got {array.dtype.name}")
    return array


def numbers(value: Any, symbols: Symbols) -> Any:
    """An attribute with its dims as numbers."""
    if isinstance(value, Dim):
        return value.evaluate(symbols)
    return tuple(d.evaluate(symbols) for d in value) if isinstance(value, Shape) else value
