"""Product of 8-bit integers: on tensor cores; by tiles in int32 where something comes before it."""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert
from heddle.kernels.cuda import _frame, matmul
from heddle.kernels.cuda.products import beside, by_rows, matrices, tensor_cores
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_integer(spec: Spec, machine: Machine) -> None:
    """Emits the product."""
    matmul.emit_matmul(spec, machine, _Widened)


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
    return bodies.unsupported_in(spec)


KERNEL = Kernel(
    "integer_matmul",
    "cuda",
    emit_integer,
    matmul.launch,
    beside.supports_each(supports, tensor_cores.joins),
    space=matrices.SPACE,
    own_launch=matmul.own_launch,
    split=by_rows.split,
    late=matmul.late,
    ahead=matmul.ahead,
)
