"""e^(x - max) over its sum along the last axis; a row of -inf gives zeros.

A task is one row, which comes from memory once. The exponentials of a short row are kept on the
stack; those of a longer one are computed again.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, host, memory, pipeline, row_totals, rows
from heddle.kernels.functions.powers_of_two import exp2_falling
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

KEPT = 2**16
"""Bytes of a row's exponentials that are kept: they stay in L2 with the rows that are worked on."""


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 40)


def emit_softmax(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and its three passes."""
    frame = host.frame(spec, machine)
    dtype = spec.operands[0].dtype
    lanes = rows.lanes_for(spec, machine)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    element, length, result = emit.register_type(dtype), source.length, spec.result.dtype
    stored = "float64" if dtype == "float64" else "float32"
    zero, lowest = (emit.constant(element, number, lanes) for number in (0, -math.inf))

    kept = None
    if isinstance(length, int) and length * emit.ITEM_SIZE[stored] <= KEPT:
        kept = host.byte_buffer((length + lanes) * emit.ITEM_SIZE[stored])

    def finite(top: Any) -> list[Any]:
        return [emit.select(emit.compare("equal", top, -math.inf), 0.0, top)]

    def larger(top: Any, x: Any) -> Any:
        return emit.maximum(x, top)  # without NaN, which the sum will have

    tops = pipeline.Reduction(
        row_totals.Totals((lowest,), larger), lambda x, column, mask: [x], finite
    )

    def exponential(x: Any, top: Any) -> Any:
        # In base two, as attention's: that takes fewer instructions.
        return exp2_falling(x - top, math.log2(math.e), result)

    def exponentials_at(x: Any, column: Any, mask: Any, top: Any) -> list[Any]:
        value = exponential(x, top)
        if kept is not None:
            memory.store(value, kept, column, stored)
        return [value]

    def scale(total: Any, top: Any) -> list[Any]:
        return [top, 1.0 / emit.select(emit.compare("equal", total, 0.0), 1.0, total)]

    exponentials = pipeline.Reduction(
        row_totals.Totals((zero,), row_totals.add), exponentials_at, scale, finds=2
    )

    def share(x: Any, column: Any, mask: Any, top: Any, scale: Any) -> Any:
        if kept is not None:
            return memory.load(kept, column, stored, lanes) * scale
        return exponential(x, top) * scale

    # Exponentials side by side: a core does not look far enough ahead for those of registers of 32.
    several = rows.Source(frame, row_totals.CHAINS * lanes) if machine.vector_bytes == 32 else None
    pipeline.emit_rows(source, finish, [tops, exponentials], share, several)


KERNEL = Kernel("softmax", "cpu", emit_softmax, launch, rows.unsupported, overwrites="all")
