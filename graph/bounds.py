"""What is known about a size before its symbols have values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import lcm

from heddle.graph.dim import MAXIMUM, Atom, Dim
from heddle.graph.types import Shape
from heddle.runtime.errors import GraphError


def bounds(dim: Dim, symbols: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Numbers that the size lies between, ends included, for names within their ranges.

    A tighter pair may exist where a name occurs twice.
    """
    low = high = 0
    for key, factor in dim.terms:
        corners = (factor, factor)
        for atom in key:
            corners = _times(corners, atom_bounds(atom, symbols))
        low, high = low + corners[0], high + corners[1]
    return low, high


def never_negative(dim: Dim, symbols: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the size is certainly 0 or more, also as a difference of a name and its half.

    Or of a name and the lesser of it and a number.
    """
    if bounds(dim, symbols)[0] >= 0:
        return True
    for key, factor in dim.terms:
        match key:
            case (("min" | "max" as op, first, second),):
                rest = dim - Dim.from_expr((op, first.expr, second.expr)) * factor
                found = (never_negative(rest + side * factor, symbols) for side in (first, second))
                return any(found) if (op == "max") == (factor > 0) else all(found)
    divided = []
    for key, factor in dim.terms:
        match key:
            case (("floordiv", inner, by),) if (by.static or 0) > 0:
                dim = dim - (inner // by) * factor
                # What a quotient times its divisor is at the least, and at the most.
                divided.append((factor, inner + 1 - by if factor > 0 else inner, int(by)))
    whole = lcm(*(by for _, _, by in divided))
    parts = (end * (factor * whole // by) for factor, end, by in divided)
    return bool(divided) and bounds(sum(parts, dim * whole), symbols)[0] >= 0


def check_sizes(
    shape: Shape, known: Collection[Dim], symbols: Mapping[str, tuple[int, int]]
) -> None:
    """Raises GraphError where a size may be below 0; `known` are sizes that tensors have."""
    for dim in shape:
        if dim.static is not None or dim in known or not dim.names <= symbols.keys():
            continue
        if not never_negative(dim, symbols):
            ranges = ", ".join(f"{name} from {symbols[name][0]}" for name in sorted(dim.names))
            raise GraphError(
                f"wanted dims of 0 or more, got {dim}, which may be {bounds(dim, symbols)[0]} "
                f"({ranges}); give the Dim a minimum or a maximum"
            )


def atom_bounds(atom: Atom, symbols: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Those of a name or an opaque term."""
    if isinstance(atom, str):
        if atom not in symbols:
            known = ", ".join(symbols) or "none"
            raise GraphError(f"wanted dims of the graph's inputs ({known}), got {atom}")
        return symbols[atom]
    op, (low, high), (other_low, other_high) = (
        atom[0],
        bounds(atom[1], symbols),
        bounds(atom[2], symbols),
    )
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return choose(low, other_low), choose(high, other_high)
    if other_low <= 0:  # a divisor that may be zero or negative bounds nothing
        return -MAXIMUM * MAXIMUM, MAXIMUM * MAXIMUM
    if op == "mod":
        return 0, other_high - 1
    quotients = [a // b for a in (low, high) for b in (other_low, other_high)]
    return min(quotients), max(quotients)


def _times(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    products = [x * y for x in a for y in b]
    return min(products), max(products)
