"""Queries and keys that are scaled in front of attention, which scales their products itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms.reading import Found, scaled

SCALED = {"attention": 2, "ragged_attention": 2, "paged_attention": 1}
"""How many of the first operands of an op may be scaled; keys of blocks are no op's result."""

MOVES = ("broadcast_to", "reshape", "transpose")
"""Ops that numbers go through as they are."""

MOST_MOVES = 6
"""Moves between where something is scaled and the attention."""


def attention(operation: Any, kind: str) -> Found | None:
    """Attention of `q * number` or `k * number`: its kernels keep scores in float32.

    So of 16 bits nothing is rounded, or beyond their range, that was not before.
    """
    attrs, operands = m.attrs(operation), list(operation.operands)
    makers, leaves, scale = [], list(operands), attrs["scale"]
    for place in range(SCALED[m.name(operation)]):
        maker, leaves[place], factor = _unscaled(operation, operands[place], MOST_MOVES)
        makers.append(maker)
        scale *= factor
    if leaves == operands or not scale or not math.isfinite(scale):
        return None

    def make() -> Any:
        read = [maker() for maker in makers] + operands[len(makers) :]
        return m.create(operation, m.name(operation), read, **{**attrs, "scale": scale})

    return Found(tuple(leaves), make)


def _unscaled(like: Any, value: Any, most: int) -> tuple[Callable[[], Any], Any, float]:
    """Makes `value` of what it is a number times, by way of moves; that, and the number."""
    inner, factor = scaled(value)
    if inner != value:
        maker, inner, more = _unscaled(like, inner, most)
        return maker, inner, factor * more
    move = m.owner(value)
    if move is not None and m.name(move) in MOVES and m.only_user(value) is not None and most:
        maker, inner, factor = _unscaled(like, move.operands[0], most - 1)
        if inner != move.operands[0]:
            name, attrs = m.name(move), m.attrs(move)
            return lambda: m.create(like, name, [maker()], **attrs), inner, factor
    return lambda: value, value, 1.0
