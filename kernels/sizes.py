"""Sizes while emitting: a Python int where a size is static, else an i64 value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect
from heddle.kernels.spec import Expr

arith = dialect("arith")

Size = Any
"""An int or an i64 value; both take the same operators."""


def evaluate(expr: Expr, dims: Mapping[str, Any]) -> Size:
    """The value of `expr` given the i64 value of each runtime dimension."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return dims[expr]
    op, left, right = expr
    a, b = (evaluate(side, dims) for side in (left, right))
    return {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "floordiv": lambda: floordiv(a, b),
        "ceildiv": lambda: ceildiv(a, b),
        "mod": lambda: mod(a, b),
        "min": lambda: least(a, b),
        "max": lambda: greatest(a, b),
    }[op]()


def floordiv(a: Size, b: Size) -> Size:
    """`a // b`, neither of them negative."""
    return emit.as_index(a) // b if isinstance(b, emit.Number) else a // b


def mod(a: Size, b: Size) -> Size:
    """`a % b`, neither of them negative."""
    return emit.as_index(a) % b if isinstance(b, emit.Number) else a % b


def ceildiv(a: Size, b: Size) -> Size:
    """`a / b` rounded up, neither of them negative."""
    return floordiv(a + (b - 1), b)


def least(a: Size, b: Size) -> Size:
    """The smaller size."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return emit.minimum(emit.as_index(a), b)


def greatest(a: Size, b: Size) -> Size:
    """The larger size."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return emit.maximum(emit.as_index(a), b)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()


def product(sizes: tuple[Size, ...]) -> Size:
    """The product of sizes; 1 for none."""
    total: Size = 1
    for size in sizes:
        total = size if isinstance(total, int) and total == 1 else total * size
    return total


def split(index: Size, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """The coordinates of the flat `index` in a row-major box of `sizes`."""
    coordinates: list[Size] = []
    for size in reversed(sizes[1:]):
        coordinates.append(mod(index, size))
        index = floordiv(index, size)
    return (index, *reversed(coordinates)) if sizes else ()
