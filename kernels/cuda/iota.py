"""start + a size + i * step along one axis, swept in vectors."""

from __future__ import annotations

from heddle.kernels import bodies, convert, crosslane, emit
from heddle.kernels.cuda import _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_iota(spec: Spec, machine: Machine) -> None:
    """Emits the sweep."""
    frame = _frame.frame(spec, machine)
    dtype = spec.result.dtype
    start, step, write = frame.reader(0), frame.reader(1), frame.writer()
    length, (begin,) = frame.size(spec.result.shape[0]), frame.shape(spec.starts)
    # Of small floats the count is not rounded, as no number on the way to a result is.
    counted = "float32" if emit.is_float(dtype) and emit.ITEM_SIZE[dtype] < 4 else dtype

    def body(lanes: int) -> None:
        first, further = (scalar(emit.index(0), 1) for scalar in (start, step))
        first = first + convert.cast(emit.as_index(begin), "int64", counted)
        first, further = (emit.splat(scalar, lanes) for scalar in (first, further))
        for position in _frame.sweep(length, lanes):
            numbers = crosslane.numbers(emit.integer(64), lanes) + position
            write(convert.cast(numbers, "int64", counted) * further + first, position)

    _frame.in_vectors(frame, [write.inputs], [length], body)


def supports(spec: Spec) -> str | None:
    """Numbers, with any body after them."""
    return "no steps of bool" if spec.result.dtype == "bool" else bodies.unsupported(spec.epilogue)


KERNEL = Kernel("iota", "cuda", emit_iota, _frame.sweep_launch, supports)
