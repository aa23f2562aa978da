"""Root mean square normalisation over the last axis: the mean square, then the scaled row."""

from __future__ import annotations

from heddle.kernels import emit
from heddle.kernels.cuda import _frame, _rows
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_rms_norm(spec: Spec, machine: Machine) -> None:
    """Emits two passes over each row, which is held in registers, or the cache if it is long."""
    frame = _frame.frame(spec, machine)
    x, gamma = frame.reader(0), frame.reader(1)
    write = frame.writer()
    element = emit.register_type(x.dtype)
    rows = _rows.Rows(frame, spec.result.shape, element)
    scale = 1.0 / _rows.as_float(rows.length, element)

    def body(row: Size, lanes: int) -> None:
        start = row * rows.length
        # Weights come before the sum is there, and not one after the other behind what is written.
        pairs = rows.read(lanes, lambda c: (x(start + c, lanes), gamma(c, lanes)))
        squares = pairs.map(lambda pair: pair[0] * pair[0]).reduce(0.0, lambda a, b: a + b)
        steepness = emit.splat(vm.rsqrt(squares * scale + spec.attr("epsilon")), lanes)
        pairs.each(lambda c, pair: write(pair[0] * steepness * pair[1], start + c))

    rows.each([part.inputs for part in (x, gamma, write)], body)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.result.shape
    return Launch(_rows.grid(shape), fold("mul", product(shape), 8), (_frame.THREADS, 1, 1))


KERNEL = Kernel("rms_norm", "cuda", emit_rms_norm, launch, _rows.supports_floats)
