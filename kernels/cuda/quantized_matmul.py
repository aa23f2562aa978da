"""Matrix product by weights in 8 or 4 bits: on tensor cores where x has 16 bits.

Else by the tiles of fused multiply-adds, scaled while they are loaded.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import beside, by_rows, fma, matrices, minimums, scaled
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine, Portion
from heddle.kernels.spec import Launch, Spec

vector = dialect("vector")


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the product."""
    frame = _frame.frame(spec, machine)
    plan = warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            product.emit_product(frame.wait(), plan)
        elif scaled.fits(spec):
            by_rows.emit_ways(frame, beside.ways(spec, scaled.ways))
        else:
            fma.emit_tile(frame, frame.reader(0), Scaled(frame), transposed=True)
    frame.wait()  # Blocks without elements, too.


def launch(spec: Spec) -> Launch:
    """A block for each piece of the result."""
    if scaled.fits(spec):
        return by_rows.launch(spec, beside.ways(spec, scaled.ways))
    return fma.launch(spec)


def split(spec: Spec) -> tuple[Portion, ...]:
    """The rows of the smallest strips, two blocks of which share a multiprocessor, and more.

    Strips of more rows take the registers of all of it, which one kernel for both would do, too.
    Of more rows there are those of short tiles, and others.
    """
    bounds = scaled.FEW, warpgroup_plan.SHORT
    return by_rows.split_at(spec, *bounds) if scaled.fits(spec) else (Portion(spec),)


def late(spec: Spec, machine: Machine) -> bool:
    """Whether it is in strips, which stream the weights."""
    return scaled.fits(spec) and not warpgroup_plan.plan_for(spec, machine)


def ahead(spec: Spec) -> tuple[int, ...]:
    """The weights, scales and minimums of strips."""
    if not scaled.joins(spec):
        return ()
    return by_rows.given(spec, lambda one: 2 if minimums.number(one) is None else 3)


class Scaled:
    """The weights as floats, `[n, k]`.

    A vector lies within one group, and the scale of element i is that of number i // group, as is
    its minimum.
    """

    def __init__(self, frame: _frame.Frame) -> None:
        weights, scales = frame.reader(1), frame.reader(2)
        self.inputs = weights.inputs
        self._bits, self._group = frame.spec.attr("bits"), frame.spec.attr("group")
        self._pointer, self._scales = weights.inputs.pointers[0], scales.inputs.pointers[0]
        self._held, self._dtype = weights.dtype, scales.dtype
        number = minimums.number(frame.spec)
        self._minimums = None
        if number is not None:
            self._minimums = frame.reader(number).inputs.pointers[0]

    def __call__(self, position: Any, lanes: int) -> Any:
        """`lanes` weights from `position` on."""
        integers = self._nibbles if self._bits == 4 else self._bytes
        scale = _frame.load(self._scales, position // self._group, self._dtype, 1)
        if self._minimums is None:
            return integers(position, lanes) * emit.splat(scale, lanes)
        least = _frame.load(self._minimums, position // self._group, self._dtype, 1)
        scale, least = (emit.splat(side, lanes) for side in (scale, least))
        return emit.fma(integers(position, lanes), scale, least)

    def _bytes(self, position: Any, lanes: int) -> Any:
        value = _frame.load(self._pointer, position, self._held, lanes)
        return convert.cast(value, self._held, "float32")

    def _nibbles(self, position: Any, lanes: int) -> Any:
        """Element i is q + 8, or n, in half i % 2 of byte i // 2, the lower half first."""
        count = max(1, lanes // 2)
        pairs = _frame.load(self._pointer, position // 2, "uint8", count)
        low, high = pairs & 15, pairs >> 4
        if lanes == 1:
            halves = emit.select(emit.compare("equal", position % 2, 1), high, low)
        else:
            each = [x for pair in zip(*map(_block.lanes, (low, high)), strict=True) for x in pair]
            halves = vector.from_elements(emit.widen(each[0].type, lanes), each)
        integers = convert.cast(halves, "uint8", "float32")
        return integers if self._minimums is not None else integers - 8.0


def supports(spec: Spec) -> str | None:
    """float32, float16 and bfloat16 by 8 bits, or by two 4-bit weights in a uint8; every body.

    Scales are as x, or float16; minimums as they, beside weights in uint8 alone.
    """
    x, weight, scales, *least = (operand.dtype for operand in spec.operands)
    signed = {8: ("int8", *convert.FLOAT8), 4: ("uint8",)}[spec.attr("bits")]
    known = x in ("float32", "float16", "bfloat16") and scales in (x, "float16")
    if not known or weight not in (("uint8",) if least else signed) or least not in ([], [scales]):
        behind = f" and minimums of {least[0]}" if least else ""
        return f"{x} by {weight} of {spec.attr('bits')} bits and {scales}{behind}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel(
    "quantized_matmul",
    "cuda",
    emit_quantized,
    launch,
    beside.supports_each(supports, scaled.joins),
    space=matrices.SPACE,
    own_launch=warpgroup_plan.own_launch,
    split=split,
    late=late,
    ahead=ahead,
)
