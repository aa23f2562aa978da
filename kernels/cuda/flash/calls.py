"""Calls of attention with few rows, and with more: kernels of their own, of which each starts one.

Few rows are bound by how fast keys come, and want several small blocks on a multiprocessor; many
are bound by tensor cores, and want one block that fills it.
"""

from __future__ import annotations

from heddle.kernels.registry import Portion
from heddle.kernels.spec import Expr, Spec, fold

_FEW = "few"


def split(spec: Spec, few: Expr) -> tuple[Portion, ...]:
    """`spec` for calls where the size `few` is 1, and for those where it is 0."""
    if isinstance(few, int):
        return (Portion(spec),)
    return Portion(spec.with_attr(_FEW, True), few), Portion(spec, fold("sub", 1, few))


def is_few(spec: Spec, few: Expr) -> bool:
    """Whether `spec` is for the calls where `few` is 1; else it takes all calls."""
    return few == 1 if isinstance(few, int) else bool(spec.attr(_FEW, False))
