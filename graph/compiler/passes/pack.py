"""CPU: a matmul reads its right side in panels of 32 columns, made by an op of its own.

Where the right side is a weight, the packing runs once, when the model is loaded. The left side is
widened to float32 by a cast, which joins the kernel that computes it: a matmul reads each of its
elements once for each panel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import folded_transpose
from heddle.graph.dtype import DType

WIDENED = (DType.float16, DType.bfloat16)


def pack(module: Any, kind: str) -> None:
    """Rewrites each product as one of panels."""
    if kind != "cpu":
        return
    casts: dict[Any, Any] = {}
    for operation in m.operations(module):
        if rewrite := REWRITES.get(m.name(operation)):
            a, above = operation.operands[0], m.owner(operation.operands[1])
            if m.tensor(a).dtype in WIDENED and a not in casts:
                casts[a] = m.create(operation, "cast", [a], dtype=DType.float32)
            m.replace(operation, rewrite(operation, casts.get(a, a)))
            if above is not None and folded_transpose(above) and not m.users(above.results[0]):
                above.erase()


def _matmul(operation: Any, a: Any) -> Any:
    b = operation.operands[1]
    above = m.owner(b)
    transposed = folded_transpose(above)
    source = above.operands[0] if transposed else b  # type: ignore[union-attr]
    packed = m.create(operation, "pack_b", [source], transposed=transposed)
    columns = m.tensor(operation.results[0]).shape[-1]
    return m.create(operation, "matmul_packed", [a, packed], columns=columns)


def _quantized_matmul(operation: Any, a: Any) -> Any:
    _, weight, scales = operation.operands
    attrs = m.attrs(operation)
    if attrs["bits"] == 4:
        packed = m.create(operation, "pack_int4", [weight])
    else:
        packed = m.create(operation, "pack_b", [weight], transposed=True)
    shares = m.create(operation, "pack_b", [scales], transposed=True)
    columns = m.tensor(operation.results[0]).shape[-1]
    return m.create(
        operation,
        "quantized_matmul_packed",
        [a, packed, shares],
        columns=columns,
        group=attrs["group"],
    )


REWRITES: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": _matmul,
    "quantized_matmul": _quantized_matmul,
}
