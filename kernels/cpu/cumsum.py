"""The sums of each element along an axis and all before it.

Along the last axis a task is one row. Within a vector the sums of blocks of 1, 2, 4, ... lanes are
put together; the last lane goes on to the next vector. Along another axis it is a strip of columns
(`_column_sums`). float16 and bfloat16 are added in float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, rows, sizes
from heddle.kernels.cpu import _column_sums
from heddle.kernels.registry import Kernel, Machine, Portion
from heddle.kernels.running_sums import NOTHING, along_rows
from heddle.kernels.spec import Launch, Spec


def launch(spec: Spec) -> Launch:
    """One task for each row, or for each strip of columns."""
    return rows.launch(spec, 8) if along_rows(spec) else _column_sums.launch(spec)


def split(spec: Spec) -> tuple[Portion, ...]:
    """See `_column_sums.split`; rows are added up by one kernel."""
    return (Portion(spec),) if along_rows(spec) else _column_sums.split(spec)


def emit_cumsum(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine)
    if not along_rows(spec):
        _column_sums.emit_columns(frame)
        return
    dtype = spec.operands[0].dtype
    lanes = rows.lanes_for(spec, machine)
    source, finish = rows.Source(frame, lanes), rows.Finish(frame, lanes)
    length = source.length
    whole = length - sizes.mod(length, lanes)
    finish.stream = finish.stream.aligned([length])
    nothing = emit.constant(emit.register_type(dtype), NOTHING, lanes)

    def add_up(row: Any) -> None:
        x_at, out_at = source.row(row, rows.ONCE), finish.row(row, streams=True)

        def further(column: Any, total: Any, mask: Any = None) -> list[Any]:
            sums = _prefix(x_at(column, mask))
            out_at(column, mask, sums + total)
            # One addition from vector to vector: nothing else waits for the vector before.
            return [total + crosslane.shuffle(sums, sums, [lanes - 1] * lanes)]

        (total,) = emit.carry(0, whole, lanes, [nothing], further)
        rest = host.first_lanes(length - whole, lanes)
        further(emit.as_index(whole), total, rest)

    for row in finish.stream.tasks():
        add_up(row)


def _prefix(x: Any) -> Any:
    lanes, half = emit.lanes_of(x), 1
    nothing = emit.like(x, NOTHING)
    while half < lanes:
        # The second half of each block takes the last sum of the first half.
        before = [j // half * half - 1 + lanes if j & half else 0 for j in range(lanes)]
        x = x + crosslane.shuffle(nothing, x, before)
        half *= 2
    return x


KERNEL = Kernel(
    "cumsum", "cpu", emit_cumsum, launch, partial(bodies.of_numbers, what="sum"), split=split
)
