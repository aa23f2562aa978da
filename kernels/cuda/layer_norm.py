"""Layer normalisation over the last axis: mean, variance about it, then the affine result."""

from __future__ import annotations

from heddle.kernels import emit
from heddle.kernels.cuda import _frame, _rows
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_layer_norm(spec: Spec, machine: Machine) -> None:
    """Emits three passes over each row; two for the moments, so that nothing cancels."""
    frame = _frame.frame(spec, machine)
    x, gamma, beta = (frame.reader(i) for i in range(3))
    write = frame.writer()
    element = emit.register_type(x.dtype)
    rows = _rows.Rows(frame, spec.result.shape, element)
    scale = 1.0 / _rows.as_float(rows.length, element)

    def body(row: Size, lanes: int) -> None:
        start = row * rows.length
        values = rows.read(lanes, lambda c: x(start + c, lanes))
        mean = emit.splat(values.reduce(0.0, lambda a, b: a + b) * scale, lanes)
        distances = values.map(lambda value: value - mean)
        squares = distances.map(lambda value: value * value).reduce(0.0, lambda a, b: a + b)
        steepness = emit.splat(vm.rsqrt(squares * scale + spec.attr("epsilon")), lanes)

        def finish(c: Size, distance: Size) -> None:
            normal = distance * steepness
            write(emit.fma(normal, gamma(c, lanes), beta(c, lanes)), start + c)

        distances.each(finish)

    rows.each([part.inputs for part in (x, gamma, beta, write)], body)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.result.shape
    return Launch(_rows.grid(shape), fold("mul", product(shape), 12), (_frame.THREADS, 1, 1))


KERNEL = Kernel("layer_norm", "cuda", emit_layer_norm, launch, _rows.supports_floats)
