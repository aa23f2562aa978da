"""What both kernels that put rows at indices compute alike."""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit, memory
from heddle.kernels.spec import Expr, Spec, product

_COMBINE = {
    "add": lambda dtype, there, new: there + new,
    "mul": lambda dtype, there, new: there * new,
    "max": bodies.maximum,
    "min": bodies.minimum,
}


def extents(spec: Spec) -> tuple[Expr, Expr, Expr, Expr]:
    """Runs of places, places of a run, updates of a run, and elements of a row."""
    x, indices = (operand.shape for operand in spec.operands[:2])
    axis = spec.attr("axis")
    return product(x[:axis]), x[axis], indices[axis], product(x[axis + 1 :])


def moved(spec: Spec) -> str:
    """The dtype of rows in registers: bits, where nothing is computed with them."""
    dtype = spec.result.dtype
    return memory.raw(dtype) if spec.attr("reduce") == "none" else dtype


def combined(spec: Spec, there: Any, new: Any) -> Any:
    """What an element and its update become; `there` is asked for where it matters."""
    combine = _COMBINE.get(spec.attr("reduce"))
    return combine(spec.result.dtype, there(), new) if combine else new


def unsupported(spec: Spec) -> str | None:
    """Why a kernel does not take `spec`, or None: integers as indices, and no bodies.

    A sum or product of 16 bits would be rounded at each update.
    """
    reduce, dtype, kind = spec.attr("reduce"), spec.result.dtype, spec.operands[1].dtype
    if emit.is_float(kind) or kind == "bool":
        return f"{spec.op} by {kind}"
    if reduce != "none" and dtype == "bool":
        return f"{reduce} of {dtype}"
    if reduce in ("add", "mul") and dtype in emit.NARROW:
        return f"{reduce} of {dtype}, which is rounded once"
    return memory.moves_only(spec)
