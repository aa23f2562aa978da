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
    if half.below or not close(half.number, 0.5, dtype):
        return None
    for share in half.above:
        function = _plus_one(share, "erf", "tanh")
        if function is None:
            continue
        of = {"erf": _is_over_root_of_two, "tanh": _is_tanh_form}[m.name(function)]
        factors = without(half.above, share) or ()
        for x in factors:
            if of(function.operands[0], x, dtype):
                approximate = "none" if m.name(function) == "erf" else "tanh"
                return _gated(operation, "gelu", x, share, factors, approximate=approximate)
    return None


def silu(operation: Any, kind: str) -> Found | None:
    """`x * sigmoid(x)` and `x / (1 + exp(-x))`."""
    factors = product(operation.results[0])
    if factors.number != 1 or len(factors.below) > 1:
        return None
    for share in factors.below or factors.above:
        function = made(share, "sigmoid")
        x = function.operands[0] if function else None
        if factors.below:
            x = _of_logistic(share)
        others = factors.above if factors.below else without(factors.above, share) or ()
        if x is not None and x in others:
            return _gated(operation, "silu", x, share, others)
    return None


def sigmoid(operation: Any, kind: str) -> Found | None:
    """`1 / (1 + exp(-x))`."""
    factors = product(operation.results[0])
    if factors.number != 1 or factors.above or len(factors.below) != 1:
        return None
    x = _of_logistic(factors.below[0])
    if x is None or m.tensor(x) != m.tensor(operation.results[0]):
        return None
    return Found((x,), lambda: m.create(operation, "sigmoid", [x]))


def _gated(
    operation: Any, op: str, x: Any, share: Any, above: tuple[Any, ...], **attrs: Any
) -> Found | None:
    """`op` of `x`, which is its `share` of x, times all others `above`: gates before the share.

    Where x and its share are in one operand, that alone is the form.
    """
    others = without(above, x) or ()
    factors = [product(operand) for operand in operation.operands]
    if others and any(x in each.above and share in each.above + each.below for each in factors):
        return None
    if not others and m.tensor(x) != m.tensor(operation.results[0]):
        return None

    def make() -> Any:
        value = m.create(operation, op, [x], **attrs)
        for other in others:
            value = m.create(operation, "mul", [value, other])
        return value

    return Found((x, *others), make)


def _plus_one(value: Any, *names: str) -> Any | None:
    """The op whose result `value` is, and one more."""
    total = made(value, "add")
    for term, one in orders(total) if total else ():
        if number(one) == 1 and (function := made(term, *names)):
            return function
    return None


def _of_logistic(below: Any) -> Any | None:
    """The x of `1 + exp(-x)`."""
    exponential = _plus_one(below, "exp")
    negative = product(exponential.operands[0]) if exponential else Product()
    alone = len(negative.above) == 1 and negative == Product(-1.0, negative.above)
    return negative.above[0] if alone else None


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
