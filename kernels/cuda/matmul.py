"""Matrix product: on tensor cores where both sides have 16 bits, else by fused multiply-adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cuda import _frame
from heddle.kernels.cuda.products import beside, by_rows, fma, matrices, tensor_cores
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product, short, short_plan
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def emit_matmul(spec: Spec, machine: Machine, of: Callable[[Any], Any] = lambda x: x) -> None:
    """Emits the product of operands 0 and 1; fused multiply-adds see `of` their readers.

    Few rows are multiplied by what may be there before the kernels in front have ended.
    """
    frame = _frame.frame(spec, machine)
    plan, few = warpgroup_plan.plan_for(spec, machine), short_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            product.emit_product(frame.wait(), plan)
        elif few:
            short.emit_short(frame, few)
        elif tensor_cores.fits(spec):
            by_rows.emit_ways(frame, beside.ways(spec, tensor_cores.ways))
        else:
            left, right = (of(frame.reader(number)) for number in range(2))
            fma.emit_tile(frame, left, right, spec.attr("transposed"))
    frame.wait()  # Blocks without elements, too.


def launch(spec: Spec) -> Launch:
    """A block for each piece of the result."""
    if tensor_cores.fits(spec):
        return by_rows.launch(spec, beside.ways(spec, tensor_cores.ways))
    return fma.launch(spec)


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """The launch on `machine`, where wgmma multiplies."""
    few = short_plan.plan_for(spec, machine)
    return short_plan.launch(few) if few else warpgroup_plan.own_launch(spec, machine)


def ahead(spec: Spec) -> tuple[int, ...]:
    """What few rows are multiplied by, in strips and short tiles."""
    return by_rows.given(spec) if tensor_cores.joins(spec) else ()


def late(spec: Spec, machine: Machine) -> bool:
    """Whether rows are known to be few: then it streams b."""
    return by_rows.in_strips(spec) and by_rows.are_few(spec)


def supports(spec: Spec) -> str | None:
    """The floating dtypes and every body; both sides of one dtype."""
    dtypes = {operand.dtype for operand in spec.operands}
    if len(dtypes) > 1 or not emit.is_float(spec.operands[0].dtype):
        return f"matmul of {' and '.join(sorted(dtypes))}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel(
    "matmul",
    "cuda",
    emit_matmul,
    launch,
    beside.supports_each(supports, tensor_cores.joins),
    space=matrices.SPACE,
    own_launch=own_launch,
    split=by_rows.split,
    late=late,
    ahead=ahead,
)
