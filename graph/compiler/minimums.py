"""Products by `n * scale + minimum` as `q * scale`, the form of CPU kernels, and a correction.

An integer n without a sign is q and the middle of its range, 8 or 128. So a row of x times a weight
is the product by q, and for each group the sum of x times the minimum and the middle's share, which
depends on weights alone. That second product has one step along k for each group. It is of float32,
as the sums are, and is added to the first one before that is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.dtype import DType
from heddle.graph.ops.rounded import RAISED
from heddle.graph.types import Shape

Rewrite = Callable[[Any], Any]
"""What an op becomes, or None where it stays."""


def without_minimums(operation: Any, rewrite: Rewrite) -> Any:
    """The sum of both products; the one by q is rewritten, and so is an op without minimums."""
    x, weight, scales, *others = operation.operands
    offsets = [others.pop(0)] if m.name(operation) == "quantized_grouped_matmul" else []
    if not others:
        return rewrite(operation)
    attrs, result = m.attrs(operation), m.tensor(operation.results[0])
    # First, so that it is there when the other product ends: their sum is written with that one.
    correction = _correction(operation, x, scales, others[0], offsets)
    if attrs["bits"] == 8:
        middle = m.number(operation, RAISED[8], DType.uint8)
        weight = m.create(operation, "add", [weight, middle])  # modulo 256
        weight = m.create(operation, "cast", [weight], dtype=DType.int8)
    operands = [x, weight, scales, *offsets]
    product = m.create(operation, m.name(operation), operands, **attrs)
    rewritten = rewrite(m.owner(product))
    if rewritten is not None:
        m.replace(m.owner(product), rewritten)
        product = rewritten
    wide = m.cast(operation, product, DType.float32)
    return m.cast(operation, m.create(operation, "add", [wide, correction]), result.dtype)


def _correction(operation: Any, x: Any, scales: Any, minimums: Any, offsets: list[Any]) -> Any:
    """The sums of x's groups by what each of their weights has beside q."""
    attrs, (*leading, k) = m.attrs(operation), m.tensor(x).shape
    count = k // attrs["group"]
    groups = m.create(operation, "reshape", [x], shape=Shape((*leading, count, attrs["group"])))
    groups = m.cast(operation, groups, DType.float32)
    sums = m.create(operation, "sum", [groups], axis=len(leading) + 1)
    sums = m.create(operation, "reshape", [sums], shape=Shape((*leading, count)))
    scales, minimums = (m.cast(operation, side, DType.float32) for side in (scales, minimums))
    middle = m.number(operation, RAISED[attrs["bits"]], DType.float32)
    middles = m.create(operation, "mul", [scales, middle])
    middles = m.create(operation, "add", [minimums, middles])
    right = m.turned(operation, middles)
    if offsets:
        return m.create(operation, "grouped_matmul", [sums, right, *offsets])
    return m.create(operation, "matmul", [sums, right], precision="full")
