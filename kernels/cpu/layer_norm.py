"""(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis.

A task is one row. Mean and variance come from one pass: the sums of d and d^2, d being the distance
from the mean of the row's first vector. E[d^2] - E[d]^2 loses few digits then: those first v of n
numbers alone make the variance at least v / n of E[d]^2, so that its relative error is at most
about 1 + n / v times that of a sum.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit, host, pipeline, row_totals, rows, sizes
from heddle.kernels.functions import vector_math
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 12)


def emit_layer_norm(spec: Spec, machine: Machine) -> None:
    """Emits the rows of the frame's tasks."""
    emit_rows(host.frame(spec, machine))


def emit_rows(frame: host.Frame) -> None:
    """Emits the loop over rows and its two passes."""
    spec = frame.spec
    dtype = spec.operands[0].dtype
    lanes = rows.lanes_for(spec, frame.machine)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    gamma_at, beta_at = (rows.parameter(frame, number, lanes) for number in (1, 2))
    zero = emit.constant(emit.register_type(dtype), 0, lanes)
    count = rows.as_float(source.length, dtype)
    near = sizes.least(source.length, lanes)

    def opening(x_at: rows.At) -> list[Any]:
        mask = host.first_lanes(near, lanes)
        total = crosslane.across(emit.select(mask, x_at(emit.index(0), mask), zero), row_totals.add)
        return [total / rows.as_float(near, dtype)]

    def moments_at(x: Any, column: Any, mask: Any, origin: Any) -> list[Any]:
        distance = x - origin
        return [distance, distance * distance]

    def spread(total: Any, squares: Any, origin: Any) -> list[Any]:
        mean = total / count
        variance = squares / count - mean * mean
        variance = emit.maximum(emit.like(variance, 0), variance)  # NaN, of infinities, stays
        return [origin + mean, vector_math.rsqrt(variance + spec.attr("epsilon"))]

    totals = row_totals.Totals((zero, zero), row_totals.add)
    moments = pipeline.Reduction(totals, moments_at, spread, finds=2, opening=opening)

    def normal(x: Any, column: Any, mask: Any, mean: Any, scale: Any) -> Any:
        return emit.fma((x - mean) * scale, gamma_at(column, mask), beta_at(column, mask))

    behind = pipeline.rows_behind(source.length)
    pipeline.emit_rows(source, finish, [moments], normal, behind=behind)


KERNEL = Kernel("layer_norm", "cpu", emit_layer_norm, launch, rows.unsupported, overwrites="all")
