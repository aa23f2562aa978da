"""Sorting rows by their group: a count of each group, then the rows in turn. It is one task.

`kind` says what is wanted: `offsets` of the groups, the `order` of the rows, or their `places` in
that order. A group that is not there is reported in the status word and clamped.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, emit, host, memory
from heddle.kernels.cpu.gather import clamped, report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold

INT64 = 8
"""Bytes of a count."""


def launch(spec: Spec) -> Launch:
    """One task."""
    (rows,) = spec.operands[0].shape
    return Launch((1, 1, 1), fold("add", fold("mul", rows, 8), spec.attr("groups")))


def emit_group_rows(spec: Spec, machine: Machine) -> None:
    """Emits the counts, their sums, and the second walk over the rows."""
    frame = host.frame(spec, machine, checks=True)
    kind, groups = spec.attr("kind"), spec.attr("groups")
    counts = frame.outputs[0] if kind == "offsets" else host.byte_buffer((groups + 1) * INT64)
    rows = frame.size(spec.operands[0].shape[0])
    zero = emit.index(0)

    def group_of(row: Any) -> Any:
        dtype = spec.operands[0].dtype
        return convert.cast(memory.load(frame.inputs[0], row, dtype), dtype, "int64")

    def raise_count(number: Any) -> Any:
        """Adds one; what it was before."""
        before = memory.load(counts, number, "int64")
        memory.store(before + 1, counts, number, "int64")
        return before

    for _ in emit.loop(frame.first, frame.last):
        for number in emit.loop(0, groups + 1):
            memory.store(zero, counts, number, "int64")
        for row in emit.loop(0, rows):
            group = group_of(row)
            with emit.when(emit.compare("greater_equal", group, groups, unsigned=True)):
                report(frame, group, groups, spec.operands[0].dtype)
            raise_count(clamped(group, groups) + 1)

        def add(number: Any, before: Any) -> list[Any]:
            total = before + memory.load(counts, number, "int64")
            memory.store(total, counts, number, "int64")
            return [total]

        emit.carry(1, groups + 1, 1, [zero], add)
        if kind != "offsets":
            for row in emit.loop(0, rows):
                place = raise_count(clamped(group_of(row), groups))
                at, value = (place, row) if kind == "order" else (row, place)
                memory.store(value, frame.outputs[0], at, "int64")


KERNEL = Kernel(
    "group_rows", "cpu", emit_group_rows, launch, memory.moves_integers, checks=True, moves=True
)
