"""The bytes that an artifact holds as constants: the graph's, and weights as kernels read them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from heddle.graph import reference
from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.compiler.parts import parts_of
from heddle.graph.compiler.passes.plan import byte_size, readers, root_value, stage
from heddle.graph.compiler.passes.settle import MOVES
from heddle.graph.compiler.specs import request
from heddle.graph.dim import Dim
from heddle.graph.ops.row import ROWS
from heddle.graph.rounding import loaded, stored
from heddle.runtime.artifact import Constant, Data, Deferred, Weight, contents

Array = np.ndarray[Any, Any]


class Constants:
    """The constants of all programs, each once."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.records: list[Constant] = []

    def number(self, digest: bytes, data: Data) -> int:
        """The index of `data`; an equal digest says that it is there already."""
        number = self._numbers.setdefault(digest, len(self.records))
        if number == len(self.records):
            self.records.append(Constant(data))
        return number


def constant_bytes(operation: Any) -> bytes:
    """The row-major little-endian bytes of a constant's elements."""
    array = constant_array(operation.attributes["value"])
    array = stored(array, m.tensor(operation.results[0]).dtype)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def settled(module: Any, weights: Mapping[str, Weight]) -> dict[Any, tuple[bytes, Deferred]]:
    """Each value that is computed when the model is compiled, and read later: digest and bytes.

    The digest is that of the work and of what it reads: nothing is computed before its bytes are
    written, one value at a time.

    Args:
        module: A module after all passes.
        weights: The weights by name; embedded ones have data and sha256.
    """
    values = _Values(module, weights)
    digests: dict[Any, bytes] = {}
    found: dict[Any, tuple[bytes, Deferred]] = {}
    for operation in _settled_ops(module):
        wanted = request(parts_of(operation))
        above = [
            digests[root] if root in digests else values.weight(root).sha256
            for root in map(root_value, operation.operands)
        ]
        for number, value in enumerate(operation.results):
            origin = wanted.spec.digest, wanted.dims, number, above
            digests[value] = hashlib.sha256(repr(origin).encode()).digest()
            if _is_read_later(value):
                size = int(Dim.from_expr(byte_size(value)))
                found[value] = digests[value], Deferred(size, partial(values.contents, value))
    return found


def settled_weights(module: Any) -> set[str]:
    """The names of the weights that are read when the model is compiled, and only then."""
    return {
        m.owner(root_value(value)).attributes["name"].value  # type: ignore[union-attr]
        for operation in _settled_ops(module)
        for value in operation.operands
        if m.owner_name(root_value(value)) == "weight"
    }


def _settled_ops(module: Any) -> list[Any]:
    fused = (op for op in m.operations(module) if m.name(op) == "fused")
    return [op for op in fused if stage(op) == "compile"]


def _is_read_later(value: Any) -> bool:
    return any(reader is None or stage(reader) != "compile" for reader in readers(value))


@dataclass(frozen=True)
class _Values:
    """Computes settled values. It keeps their module, which MLIR's values do not."""

    module: Any
    weights: Mapping[str, Weight]

    def weight(self, value: Any) -> Weight:
        """The weight that `value` is."""
        return self.weights[m.owner(value).attributes["name"].value]  # type: ignore[union-attr]

    def contents(self, value: Any) -> memoryview:
        """The bytes of `value`."""
        return np.ascontiguousarray(self._elements(value, {})).reshape(-1).view(np.uint8).data

    def _elements(self, value: Any, made: dict[Any, Array]) -> Array:
        """The elements of `value`, as they are stored; `made` has those of the ops above it."""
        kind, root = m.tensor(value), root_value(value)
        operation: Any = m.owner(root)
        if m.name(operation) == "weight":
            data = self.weight(root).data
            assert data is not None, "settle takes embedded weights alone"
            return np.frombuffer(contents(data), kind.dtype.to_bits()).reshape(kind.shape.static)
        if root not in made:
            arrays = [self._elements(operand, made) for operand in operation.operands]
            made |= zip(operation.results, _settled(operation, arrays), strict=True)
        return made[root].reshape(kind.shape.static)


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
