"""CUDA: where a product wants lines of its right side along k, it is given them.

wgmma multiplies a [k, n] side of 16 bits as it is; one of 8 bits, or of float32 by TF32, has to lie
as [n, k] (PTX ISA 9.0, "wgmma.mma_async": tnspB). A weight is transposed once, when the model is
loaded. What is computed by each call is, where known rows are so many that it costs little.
"""

from __future__ import annotations

from math import prod
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import folded_transpose
from heddle.graph.compiler.stages import known_at_init

MANY_ROWS = 2048
"""Of a product that is worth a transposition. To read and write a byte of b at 4 TB/s takes half a
picosecond, 2 x 2048 operations with it two at 1979 TFLOP/s, and by mma.sync over three."""


def turn(module: Any, kind: str) -> None:
    """Makes such products read a transposed copy of their right side."""
    if kind != "cuda":
        return
    early = known_at_init(module)
    turned: dict[Any, Any] = {}
    for operation in m.operations(module):
        if not _along_k(operation):
            continue
        b = operation.operands[1]
        if folded_transpose(m.owner(b)) or not (b in early or _rows(operation) >= MANY_ROWS):
            continue
        if b not in turned:
            turned[b] = m.turned(operation, b)
        operation.operands[1] = m.turned(operation, turned[b])


def _along_k(operation: Any) -> bool:
    """Whether the op's right side should lie along k."""
    if m.name(operation) == "matmul":
        return bool(m.attrs(operation)["precision"] == "tf32")
    return m.name(operation) in ("integer_matmul", "float8_matmul")


def _rows(operation: Any) -> int:
    """The rows that meet one right side, 0 where they are not known."""
    shape = m.tensor(operation.results[0]).shape
    rows = shape[:-1] if m.tensor(operation.operands[1]).rank == 2 else shape[-2:-1]
    sizes = [dim.static for dim in rows]
    return 0 if None in sizes else prod(size for size in sizes if size is not None)
