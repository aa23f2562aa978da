"""Ops that are written out in others become themselves, so that their kernels compute them.

People write softmax, norms, activations and attention in the functions that they are made of. What
comes out is the same but for rounding, of which there is less, and for rows that hide all of their
scores by -inf: those are zeros as an op, and NaN where their maximum is taken off by hand.
"""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.forms import activations, attention, rotary, rows, scaling, windows
from heddle.graph.compiler.forms.reading import Form, closed
from heddle.graph.compiler.passes.canonicalize import canonicalize
from heddle.graph.compiler.passes.fold_constants import fold_constants

ROUNDS: tuple[dict[str, tuple[Form, ...]], ...] = (
    {
        "add": (rows.norm, rotary.of_whole),
        "mul": (rows.norm, activations.gelu, activations.silu),
        "div": (rows.softmax, rows.norm, activations.silu, activations.sigmoid, activations.gelu),
        "concat": (rotary.of_halves,),
        "reshape": (rotary.of_pairs,),
        **dict.fromkeys(("conv", "avg_pool", "max_pool"), (windows.padded,)),
    },
    # Of a softmax and of a rotation, which may have been written out.
    {"matmul": (attention.attention,), "concat": (rotary.of_part,)},
    dict.fromkeys(scaling.SCALED, (scaling.attention,)),
)
"""The forms that end in an op, in the order in which they are looked for."""


def recognize(module: Any, kind: str) -> None:
    """Looks at each op that floats come out of, the last first: it may end the longest form."""
    changed = False
    for forms in ROUNDS:
        for operation in reversed(m.operations(module)):
            if not m.users(operation.results[0]):
                operation.erase()  # it was part of a form
                continue
            value = _recognized(operation, forms.get(m.name(operation), ()), kind)
            if value is not None:
                m.replace(operation, value)
                changed = True
    if changed:
        canonicalize(module, kind)
        fold_constants(module, kind)


def _recognized(operation: Any, forms: tuple[Form, ...], kind: str) -> Any | None:
    if not forms or not m.tensor(operation.results[0]).dtype.is_float:
        return None
    for form in forms:
        found = form(operation, kind)
        if found is not None and closed(operation, found.leaves):
            value = found.make()
            if value.type == operation.results[0].type:
                return value
            m.discard(value)  # a factor of one, say, made the result wider
    return None
