"""Activations written out in the functions that they are made of."""

from __future__ import annotations

import math
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import (
    Found,
    Product,
    close,
    made,
    number,
    orders,
    product,
    without,
)
from heddle.graph.dtype import DType

CUBE = 0.044715
"""The share of the cube in GELU's tanh form (Hendrycks and Gimpel, arXiv:1606.08415)."""


def gelu(operation: Any, kind: str) -> Found | None:
    """`x / 2 * (1 + erf(x / sqrt(2)))`, and the form with tanh."""
    result = operation.results[0]
    half, dtype = product(result), m.tensor(result).dtype
    if half.below or len(half.above) != 2 or not close(half.number, 0.5, dtype):
        return None
    for x, share in (half.above, half.above[::-1]):
        function = _plus_one(share, "erf", "tanh")
        if function is None or m.tensor(x) != m.tensor(result):
            continue
        of = {"erf": _is_over_root_of_two, "tanh": _is_tanh_form}[m.name(function)]
        if of(function.operands[0], x, dtype):
            approximate = "none" if m.name(function) == "erf" else "tanh"
            return _found(operation, "gelu", x, approximate=approximate)
    return None


def silu(operation: Any, kind: str) -> Found | None:
    """`x * sigmoid(x)` and `x / (1 + exp(-x))`."""
    factors = product(operation.results[0])
    if factors.number != 1 or len(factors.above) + len(factors.below) != 2:
        return None
    for x in factors.above:
        others = without(factors.above, x)
        share = made(others[0], "sigmoid") if others else None
        alike = share.operands[0] == x if share else _is_logistic(factors.below, x)
        if alike and m.tensor(x) == m.tensor(operation.results[0]):
            return _found(operation, "silu", x)
    return None


def sigmoid(operation: Any, kind: str) -> Found | None:
    """`1 / (1 + exp(-x))`."""
    factors = product(operation.results[0])
    if factors.number != 1 or factors.above or len(factors.below) != 1:
        return None
    exponential = _plus_one(factors.below[0], "exp")
    negative = product(exponential.operands[0]) if exponential else Product()
    if len(negative.above) != 1 or negative != Product(-1.0, negative.above):
        return None
    (x,) = negative.above
    alike = m.tensor(x) == m.tensor(operation.results[0])
    return _found(operation, "sigmoid", x) if alike else None


def _found(operation: Any, op: str, x: Any, **attrs: Any) -> Found:
    return Found((x,), lambda: m.create(operation, op, [x], **attrs))


def _plus_one(value: Any, *names: str) -> Any | None:
    """The op whose result `value` is, and one more."""
    total = made(value, "add")
    for term, one in orders(total) if total else ():
        if number(one) == 1 and (function := made(term, *names)):
            return function
    return None


def _is_logistic(below: tuple[Any, ...], x: Any) -> bool:
    exponential = _plus_one(below[0], "exp") if len(below) == 1 else None
    return exponential is not None and product(exponential.operands[0]) == Product(-1.0, (x,))


def _is_over_root_of_two(value: Any, x: Any, dtype: DType) -> bool:
    scaled = product(value)
    return scaled == Product(scaled.number, (x,)) and close(scaled.number, math.sqrt(0.5), dtype)


def _is_tanh_form(value: Any, x: Any, dtype: DType) -> bool:
    """Whether `value` is `sqrt(2 / pi) * (x + 0.044715 * x^3)`, or that with x outside."""
    scaled = product(value)
    if scaled.below or not close(scaled.number, math.sqrt(2 / math.pi), dtype):
        return False
    outside = without(scaled.above, x)
    rest = scaled.above if outside is None else outside
    total = made(rest[0], "add") if len(rest) == 1 else None
    powers = 3 if outside is None else 2
    for first, cube in orders(total) if total else ():
        alike = first == x if outside is None else number(first) == 1
        part = product(cube)
        if alike and part == Product(part.number, (x,) * powers):
            return close(part.number, CUBE, dtype)
    return False
