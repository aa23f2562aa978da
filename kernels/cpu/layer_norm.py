"""(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis.

A task is one row. It comes from memory once; the mean and then the variance about it are taken
over the row in cache, which keeps the digits that E[x^2] - E[x]^2 would lose.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, rows, vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 12)


def emit_layer_norm(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and its three passes."""
    frame = host.frame(spec, machine)
    dtype = spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype], [spec.prologue, spec.epilogue])
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    gamma_at, beta_at = (rows.vector_operand(frame, number, lanes) for number in (1, 2))
    zero = emit.constant(emit.register_type(dtype), 0, lanes)
    length = source.length
    count = rows.as_float(length, dtype)

    def normalise(row: Any) -> None:
        first_at, second_at, third_at = source.passes(row, 3)
        mean = rows.reduce(length, zero, first_at, rows.add) / count

        def square_at(i: Any, mask: Any) -> Any:
            difference = second_at(i, mask) - mean
            return difference * difference

        variance = rows.reduce(length, zero, square_at, rows.add) / count
        scale = vector_math.rsqrt(variance + spec.attr("epsilon"))

        def normal_at(i: Any, mask: Any) -> Any:
            normal = (third_at(i, mask) - mean) * scale
            return emit.fma(normal, gamma_at(i, mask), beta_at(i, mask))

        finish.write(row, normal_at)

    for row in finish.tasks():
        normalise(row)


KERNEL = Kernel("layer_norm", "cpu", emit_layer_norm, launch, rows.unsupported)
