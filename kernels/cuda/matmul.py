"""Matrix product: on tensor cores where both sides have 16 bits, else by fused multiply-adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import (
    _beside,
    _by_rows,
    _fma,
    _frame,
    _product,
    _tensor_cores,
    _warpgroup_plan,
    _warpgroup_product,
)
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def emit_matmul(spec: Spec, machine: Machine, of: Callable[[Any], Any] = lambda x: x) -> None:
    """Emits the product of operands 0 and 1; fused multiply-adds see `of` their readers."""
    frame = _frame.frame(spec, machine)
    plan = _warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            _warpgroup_product.emit_product(frame, plan)
        elif _tensor_cores.fits(spec):
            _by_rows.emit_ways(frame, _beside.ways(spec, _tensor_cores.ways))
        else:
            left, right = (of(frame.reader(number)) for number in range(2))
            _fma.emit_tile(frame, left, right, spec.attr("transposed"))


def launch(spec: Spec) -> Launch:
    """A block for each piece of the result."""
    if _tensor_cores.fits(spec):
        return _by_rows.launch(spec, _beside.ways(spec, _tensor_cores.ways))
    return _fma.launch(spec)


def supports(spec: Spec) -> str | None:
    """The floating dtypes and every body; both sides of one dtype."""
    dtypes = {operand.dtype for operand in spec.operands}
    if len(dtypes) > 1 or not emit.is_float(spec.operands[0].dtype):
        return f"matmul of {' and '.join(sorted(dtypes))}"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel(
    "matmul",
    "cuda",
    emit_matmul,
    launch,
    _beside.supports_each(supports, _tensor_cores.joins),
    space=_product.SPACE,
    own_launch=_warpgroup_plan.own_launch,
    split=_by_rows.split,
)
