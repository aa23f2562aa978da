"""x / sqrt(mean(x^2) + epsilon) * gamma along the last axis (arXiv:1910.07467).

A task is one row, which comes from memory once: the second pass reads it from cache.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, rows, vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 8)


def emit_rms_norm(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and its two passes."""
    frame = host.frame(spec, machine)
    dtype = spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype], [spec.prologue, spec.epilogue])
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    gamma_at = rows.vector_operand(frame, 1, lanes)
    zero = emit.constant(emit.register_type(dtype), 0, lanes)
    length = source.length

    def normalise(row: Any) -> None:
        before_at, x_at = source.passes(row, 2)

        def square_at(i: Any, mask: Any) -> Any:
            x = before_at(i, mask)
            return x * x

        mean = rows.reduce(length, zero, square_at, rows.add) / rows.as_float(length, dtype)
        scale = vector_math.rsqrt(mean + spec.attr("epsilon"))
        finish.write(row, lambda i, mask: x_at(i, mask) * scale * gamma_at(i, mask))

    for row in finish.tasks():
        normalise(row)


KERNEL = Kernel("rms_norm", "cpu", emit_rms_norm, launch, rows.unsupported)
