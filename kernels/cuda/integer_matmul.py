"""Product of 8-bit integers: on tensor cores; by tiles in int32 where something comes before it."""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert
from heddle.kernels.cuda import (
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


def emit_integer(spec: Spec, machine: Machine) -> None:
    """Emits the product."""
    frame = _frame.frame(spec, machine)
    plan = _warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            _warpgroup_product.emit_product(frame, plan)
        elif _tensor_cores.fits(spec):
            _by_rows.emit_ways(frame, _tensor_cores.ways(spec))
        else:
            left, right = (_Widened(frame.reader(number)) for number in range(2))
            _fma.emit_tile(frame, left, right, spec.attr("transposed"))


def launch(spec: Spec) -> Launch:
    """A block for each piece of the result."""
    if _tensor_cores.fits(spec):
        return _by_rows.launch(spec, _tensor_cores.ways(spec))
    return _fma.launch(spec)


class _Widened:
    """An operand as int32."""

    def __init__(self, reader: _frame.Reader) -> None:
        self.inputs, self._reader = reader.inputs, reader

    def __call__(self, position: Any, lanes: int) -> Any:
        """`lanes` elements from `position` on."""
        return convert.cast(self._reader(position, lanes), self._reader.dtype, "int32")


def supports(spec: Spec) -> str | None:
    """int8 or uint8 by int8, and every body."""
    a, b = (operand.dtype for operand in spec.operands)
    if a not in ("int8", "uint8") or b != "int8":
        return f"integer_matmul of {a} by {b}"
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel(
    "integer_matmul",
    "cuda",
    emit_integer,
    launch,
    supports,
    space=_product.SPACE,
    own_launch=_warpgroup_plan.own_launch,
    split=_by_rows.split,
)
