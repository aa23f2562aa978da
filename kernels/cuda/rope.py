"""Pairs of each row turned by the angles whose cosines and sines are given (arXiv:2104.09864).

The grid sweeps over the pairs, in vectors of them.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.emit import fma
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def emit_rope(spec: Spec, machine: Machine) -> None:
    """Emits the sweep, in one of the two forms."""
    frame = _frame.frame(spec, machine)
    x, write = frame.reader(0), frame.writer()
    tables, pairs = spec.operands[1:], _pairs(spec)
    angles = _frame.Inputs(frame, pairs, tables, frame.inputs[1:3])
    half = frame.size(pairs[-1])
    neighbours = spec.attr("interleaved")

    def body(lanes: int) -> None:
        for position in _frame.sweep(frame.size(product(pairs)), lanes):
            cos, sin = (
                convert.cast(value, operand.dtype, _wide(x.dtype))
                for value, operand in zip(angles.load(position, lanes), tables, strict=True)
            )
            row, column = sizes.floordiv(position, half), sizes.mod(position, half)
            start = position * 2 if neighbours else row * (2 * half) + column
            places = (start, start + (lanes if neighbours else half))
            values = [x(place, lanes) for place in places]
            for value, place in zip(turned(values, cos, sin, neighbours), places, strict=True):
                write(value, place)

    _frame.in_vectors(frame, [angles, x.inputs, write.inputs], [half], body)


def turned(values: list[Any], cos: Any, sin: Any, neighbours: bool) -> list[Any]:
    """Two vectors of a row, the first and the second ones of its pairs or neighbours, turned."""
    lanes = emit.lanes_of(cos)
    a, b = _exchanged(values, lanes, True) if neighbours else values
    values = [fma(a, cos, -(b * sin)), fma(b, cos, a * sin)]
    return _exchanged(values, lanes, False) if neighbours else values


def _exchanged(values: list[Any], lanes: int, separate: bool) -> list[Any]:
    """Neighbours in two vectors as the first and the second ones of pairs, or back again."""
    if lanes == 1:
        return values
    order = [*range(0, 2 * lanes, 2), *range(1, 2 * lanes, 2)]
    if not separate:
        order = [number // 2 + number % 2 * lanes for number in range(2 * lanes)]
    first, second = values
    return [crosslane.shuffle(first, second, part) for part in (order[:lanes], order[lanes:])]


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _pairs(spec: Spec) -> tuple[Expr, ...]:
    """The shape of x, in pairs."""
    *outer, size = spec.operands[0].shape
    return (*outer, fold("floordiv", size, 2))


def launch(spec: Spec) -> Launch:
    """Blocks enough for four pairs in each thread."""
    shape = _pairs(spec)
    work = fold("mul", product(shape), 8 + 2 * bodies.work(spec.epilogue))
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Floats, with any body after them."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"rope of {spec.operands[0].dtype}"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("rope", "cuda", emit_rope, launch, supports)
