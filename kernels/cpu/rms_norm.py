"""x / sqrt(mean(x^2) + epsilon) * gamma along the last axis (arXiv:1910.07467).

A task is one row, which comes from memory once: the second pass reads it from cache.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, pipeline, row_totals, rows
from heddle.kernels.functions import vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 8)


def emit_rms_norm(spec: Spec, machine: Machine) -> None:
    """Emits the rows of the frame's tasks."""
    emit_rows(host.frame(spec, machine))


def emit_rows(frame: host.Frame) -> None:
    """Emits the loop over rows and its two passes."""
    spec = frame.spec
    dtype = spec.operands[0].dtype
    lanes = rows.lanes_for(spec, frame.machine)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    gamma_at = rows.parameter(frame, 1, lanes)
    zero = emit.constant(emit.register_type(dtype), 0, lanes)
    count = rows.as_float(source.length, dtype)

    def scale(total: Any) -> list[Any]:
        return [vector_math.rsqrt(total / count + spec.attr("epsilon"))]

    squares = pipeline.Reduction(
        row_totals.Totals((zero,), row_totals.add), lambda x, column, mask: [x * x], scale
    )

    def normal(x: Any, column: Any, mask: Any, scale: Any) -> Any:
        return x * scale * gamma_at(column, mask)

    behind = pipeline.rows_behind(source.length)
    pipeline.emit_rows(source, finish, [squares], normal, behind=behind)


KERNEL = Kernel("rms_norm", "cpu", emit_rms_norm, launch, rows.unsupported, overwrites="all")
