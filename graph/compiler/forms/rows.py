"""Softmax and norms of rows, written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import (
    Found,
    close,
    filled,
    flat,
    last_axis,
    made,
    number,
    orders,
    product,
    vector,
    without,
)


def softmax(operation: Any, kind: str) -> Found | None:
    """`e / sum(e)` where `e = exp(x - max(x))`; without max(x) it would overflow elsewhere."""
    ratio = product(operation.results[0])
    if ratio.number != 1 or (len(ratio.above), len(ratio.below)) != (1, 1):
        return None
    (shares,), total = ratio.above, made(ratio.below[0], "sum")
    exponential = made(shares, "exp")
    minus = made(exponential.operands[0], "sub") if exponential else None
    if not total or not minus or total.operands[0] != shares:
        return None
    x, top = minus.operands[0], made(minus.operands[1], "max")
    if top is None or top.operands[0] != x or m.attrs(top) != m.attrs(total):
        return None
    return Found((x,), lambda: m.create(operation, "softmax", [x], **m.attrs(top)))


def norm(operation: Any, kind: str) -> Found | None:
    """`c / sqrt(mean(c^2) + epsilon) * gamma + beta`: layer_norm if `c = x - mean(x)`.

    Without a gamma it is one, without a beta zero.
    """
    if m.name(operation) != "add":
        found = _normal(operation.results[0])
        return found.made_for(operation, None) if found else None
    for value, beta in orders(operation):
        if m.owner_name(value) in ("mul", "div") and m.only_user(value) is not None:
            found = _normal(value)
            if found and found.centered:
                return found.made_for(operation, beta)
    return None


@dataclass(frozen=True)
class _Normal:
    """A row over the root of its mean square, times what else there is."""

    row: Any
    epsilon: float
    others: tuple[Any, ...]

    @property
    def centered(self) -> Any | None:
        """What the row was before its mean was taken off."""
        minus = made(self.row, "sub")
        if minus is None:
            return None
        x, mean = minus.operands[0], _mean(minus.operands[1])
        return x if mean is not None and mean == x else None  # a value refuses to equal None

    def made_for(self, operation: Any, beta: Any | None) -> Found | None:
        """The norm with a gamma and a beta that are one for each element of a row."""
        type = m.tensor(self.row)
        size = type.shape[-1]
        given = [*self.others, *([] if beta is None else [beta])]
        vectors = [vector(value, size) for value in given]
        if len(self.others) > 1 or any(value is None for value in vectors):
            return None
        if m.tensor(operation.results[0]) != type:
            return None
        if any(m.tensor(value).dtype is not type.dtype for value in vectors):
            return None
        x = self.centered

        def parameter(given: bool, neutral: float) -> Any:
            if given:
                return flat(operation, vectors.pop(0))
            return filled(operation, neutral, type.dtype, size)

        def make() -> Any:
            operands = [x or self.row, parameter(bool(self.others), 1.0)]
            if x:
                operands.append(parameter(beta is not None, 0.0))
            op = "layer_norm" if x else "rms_norm"
            return m.create(operation, op, operands, epsilon=self.epsilon)

        return Found((x or self.row, *vectors), make)


def _normal(value: Any) -> _Normal | None:
    ratio = product(value)
    if ratio.number != 1:
        return None
    inverse = [(each, without(ratio.above, each), ratio.below) for each in ratio.above]
    roots = [(each, ratio.above, without(ratio.below, each)) for each in ratio.below]
    for op, power, found in (("rsqrt", -0.5, inverse), ("sqrt", 0.5, roots)):
        for root, above, below in found:
            square = _mean_square(made(root, op) or _power(root, power))
            others = without(above or (), square[0]) if square and not below else None
            if square and others is not None:
                return _Normal(*square, others)
    return None


def _power(value: Any, power: float) -> Any | None:
    """The op that `value` is that power by."""
    found = made(value, "pow")
    return found if found and number(found.operands[1]) == power else None


def _mean_square(root: Any | None) -> tuple[Any, float] | None:
    """The c and the epsilon of a root of `mean(c^2) + epsilon`."""
    total = made(root.operands[0], "add") if root else None
    for mean, epsilon in orders(total) if total else ():
        known = number(epsilon)
        square = _mean(mean) if known is not None and known > 0 else None
        factors = product(square) if square is not None else None
        if factors and factors.number == 1 and not factors.below and len(factors.above) == 2:
            first, second = factors.above
            if first == second and known is not None:
                return first, known
    return None


def _mean(value: Any) -> Any | None:
    """What `value` is the mean of, along the last axis."""
    mean = made(value, "mean")
    if mean is not None:
        return mean.operands[0] if last_axis(mean) else None
    factors = product(value)
    total = made(factors.above[0], "sum") if len(factors.above) == 1 else None
    if total is None or factors.below or not last_axis(total):
        return None
    type = m.tensor(total.operands[0])
    count = type.shape[-1].static
    alike = count and close(factors.number, 1 / count, type.dtype)
    return total.operands[0] if alike else None
