"""Padding written out in front of windows, which have their own."""

from __future__ import annotations

import math
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import Found, number


def padded(operation: Any, kind: str) -> Found | None:
    """Windows over `concat(fill, x, fill)`, with what their padding is as `fill`."""
    attrs = m.attrs(operation)
    padding = list(attrs["padding"])
    if m.name(operation) == "avg_pool" and not attrs["counts_padding"]:
        return None
    fill = -math.inf if m.name(operation) == "max_pool" else 0.0
    before = 2 if attrs["layout"] == "channels_first" else 1
    x, axes = operation.operands[0], range(before, before + len(padding) // 2)
    while (found := _inside(x, fill)) is not None:
        inner, axis, sizes = found
        if axis not in axes:
            break
        for side, size in enumerate(sizes):
            padding[2 * (axis - before) + side] += size
        x = inner
    if x == operation.operands[0]:
        return None
    operands = [x, *list(operation.operands)[1:]]

    def make() -> Any:
        return m.create(
            operation, m.name(operation), operands, **{**attrs, "padding": tuple(padding)}
        )

    return Found(tuple(operands), make)


def _inside(value: Any, fill: float) -> tuple[Any, int, tuple[int, int]] | None:
    """What `value` is with `fill` around it along an axis, and how much there is on each side."""
    joined = m.owner(value)
    if joined is None or m.name(joined) != "concat":
        return None
    axis, parts = m.attrs(joined)["axis"], list(joined.operands)
    middle = [place for place, part in enumerate(parts) if number(part) != fill]
    if len(middle) != 1:
        return None
    before, behind = parts[: middle[0]], parts[middle[0] + 1 :]
    sizes = [
        sum(m.tensor(part).shape[axis].static or 0 for part in several)
        for several in (before, behind)
    ]
    known = all(m.tensor(part).shape[axis].static is not None for part in (*before, *behind))
    return (parts[middle[0]], axis, (sizes[0], sizes[1])) if known else None
