"""e^(x - max) over its sum along the last axis; a row of -inf gives zeros.

A task is one row, which comes from memory once. The exponentials of a short row are kept on the
stack; those of a longer one are computed again.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

KEPT = 2**13
"""Bytes of a row's exponentials that are kept: they share L1 with the row and the next one."""


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
    wide = "float64" if dtype == "float64" else "float32"
    zero, lowest = (emit.constant(element, number, lanes) for number in (0, -math.inf))

    kept = None
    if isinstance(length, int) and length * emit.ITEM_SIZE[wide] <= KEPT:
        kept = host.byte_buffer(KEPT + machine.vector_bytes)

    def larger(a: Any, b: Any) -> Any:
        return bodies.maximum(dtype, a, b)

    def share_out(row: Any) -> None:
        first_at, *others_at = source.passes(row, 3 if kept is None else 2)
        top = rows.reduce(length, lowest, first_at, larger)
        top = emit.select(emit.compare("equal", top, -math.inf), 0.0, top)

        def exponential(x_at: rows.At, i: Any, mask: Any) -> Any:
            value = vector_math.exp_falling(x_at(i, mask) - top)
            if kept is not None:
                memory.store(value, kept, i, wide)
            return value

        def again(i: Any, mask: Any) -> Any:
            if kept is not None:
                return memory.load(kept, i, wide, lanes)
            return exponential(others_at[-1], i, mask)

        total = rows.reduce(length, zero, partial(exponential, others_at[0]), rows.add)
        scale = 1.0 / emit.select(emit.compare("equal", total, 0.0), 1.0, total)
        finish.write(row, lambda i, mask: again(i, mask) * scale)

    for row in finish.tasks():
        share_out(row)


KERNEL = Kernel("softmax", "cpu", emit_softmax, launch, rows.unsupported)
