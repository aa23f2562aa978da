"""CPU: a matmul reads its right side in panels of 32 columns, made by an op of its own.

Where the right side is a weight, the packing runs once, when the model is loaded.
"""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import folded_transpose


def pack(module: Any, kind: str) -> None:
    """Makes each matmul a `pack_b` and a `matmul_packed`."""
    if kind != "cpu":
        return
    for operation in m.operations(module):
        if m.name(operation) == "matmul":
            a, b = operation.operands
            above = m.owner(b)
            transposed = folded_transpose(above)
            if transposed:
                b = above.operands[0]  # type: ignore[union-attr]
            packed = m.create(operation, "pack_b", [b], transposed=transposed)
            columns = m.tensor(operation.results[0]).shape[-1]
            product = m.create(operation, "matmul_packed", [a, packed], columns=columns)
            m.replace(operation, product)
            if transposed and not m.users(above.results[0]):  # type: ignore[union-attr]
                above.erase()  # type: ignore[union-attr]
