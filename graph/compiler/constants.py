"""The bytes that an artifact holds as constants: the graph's, and weights as kernels read them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from heddle.graph import reference
from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.plan import readers, root_value, stage
from heddle.graph.compiler.passes.settle import MOVES
from heddle.graph.ops.row import ROWS
from heddle.graph.rounding import loaded, stored
from heddle.runtime.artifact import Constant

Array = np.ndarray[Any, Any]


class Constants:
    """The constants of all programs, each content once."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.records: list[Constant] = []

    def number(self, data: bytes | memoryview) -> int:
        """The index of a content."""
        number = self._numbers.setdefault(hashlib.sha256(data).digest(), len(self.records))
        if number == len(self.records):
            self.records.append(Constant(data))
        return number


def constant_bytes(operation: Any) -> bytes:
    """The row-major little-endian bytes of a constant's elements."""
    array = constant_array(operation.attributes["value"])
    array = stored(array, m.tensor(operation.results[0]).dtype)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def settled_bytes(module: Any, weights: Mapping[str, Any]) -> dict[Any, memoryview]:
    """The bytes of each value that is computed when the model is compiled, and read later.

    Args:
        module: A module after all passes.
        weights: The bytes of the embedded weights by name.
    """
    bits: dict[Any, Array] = {}
    for operation in m.operations(module):
        if m.name(operation) == "fused" and stage(operation) == "compile":
            arrays = [_operand(value, weights, bits) for value in operation.operands]
            for value, array in zip(operation.results, _settled(operation, arrays), strict=True):
                bits[value] = np.ascontiguousarray(array)
    return {
        value: array.reshape(-1).view(np.uint8).data
        for value, array in bits.items()
        if _is_read_later(value)
    }


def settled_weights(module: Any) -> set[str]:
    """The names of the weights that are read when the model is compiled, and only then."""
    return {
        m.owner(root_value(value)).attributes["name"].value  # type: ignore[union-attr]
        for operation in m.operations(module)
        if m.name(operation) == "fused" and stage(operation) == "compile"
        for value in operation.operands
        if m.owner_name(root_value(value)) == "weight"
    }


def _is_read_later(value: Any) -> bool:
    return any(reader is None or stage(reader) != "compile" for reader in readers(value))


def _operand(value: Any, weights: Mapping[str, Any], bits: Mapping[Any, Array]) -> Array:
    """The elements of `value`, as they are stored."""
    kind, root = m.tensor(value), root_value(value)
    shape = kind.shape.static
    if root in bits:
        return bits[root].reshape(shape)
    data = weights[m.owner(root).attributes["name"].value]  # type: ignore[union-attr]
    return np.asarray(data).view(kind.dtype.to_bits()).reshape(shape)


def _settled(operation: Any, arrays: list[Array]) -> list[Array]:
    """The results of a fused op, as they are stored."""
    values = dict(zip(operation.regions[0].blocks[0].arguments, arrays, strict=True))
    for op in m.inner(operation):
        operands = [values[value] for value in op.operands]
        if m.name(op) in MOVES:
            attrs = {name: reference.numbers(value, {}) for name, value in m.attrs(op).items()}
            found = ROWS[m.name(op)].reference(*operands, **attrs)
        else:
            dtypes = [m.tensor(value).dtype for value in op.operands]
            (made,) = reference.run(op, list(map(loaded, operands, dtypes)))
            found = stored(made, m.tensor(op.results[0]).dtype)
        values[op.results[0]] = found
    return [values[value] for value in m.yielded(operation)]
