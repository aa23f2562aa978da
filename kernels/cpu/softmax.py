"""e^(x - max) over its sum along the last axis; a row of -inf gives zeros.

A task is one row, which comes from memory once. The exponentials are computed twice rather than
kept, for they may not fit the output's dtype.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import bodies, emit, host, rows, vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 40)


def emit_softmax(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and its three passes."""
    frame = host.frame(spec, machine)
    dtype = spec.operands[0].dtype
    lanes = host.lanes_for(machine, [dtype], [spec.prologue, spec.epilogue])
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    element, length = emit.register_type(dtype), source.length
    zero, lowest = (emit.constant(element, number, lanes) for number in (0, -math.inf))

    def larger(a: Any, b: Any) -> Any:
        return bodies.maximum(dtype, a, b)

    def share_out(row: Any) -> None:
        first_at, second_at, third_at = source.passes(row, 3)
        top = rows.reduce(length, lowest, first_at, larger)
        top = emit.select(emit.compare("equal", top, -math.inf), 0.0, top)

        def exponential(x_at: rows.At) -> rows.At:
            return lambda i, mask: vector_math.exp_falling(x_at(i, mask) - top)

        total = rows.reduce(length, zero, exponential(second_at), rows.add)
        scale = 1.0 / emit.select(emit.compare("equal", total, 0.0), 1.0, total)
        share_at = exponential(third_at)
        finish.write(row, lambda i, mask: share_at(i, mask) * scale)

    for row in finish.tasks():
        share_out(row)


KERNEL = Kernel("softmax", "cpu", emit_softmax, launch, rows.unsupported)
