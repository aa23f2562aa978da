"""Rows in 8 bits: of each group along k a scale, what is taken off its sums, and its integers.

They are for weights that are raised, so that they have no sign: minus the sum of the integers times
as much is what their products begin with. The largest magnitude of a group is found while its
elements go on the stack as float32; then they become integers. A task is one row.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit, host, memory, row_totals, rows
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

arith = dialect("arith")

HEAD = 8
"""Bytes in front of a group's integers: its scale, a float32, and what is taken off, an int32."""

RAISED = {4: 8, 8: 128}
"""How much is added to weights of so many bits."""

LARGEST = 127
"""The largest integer."""

LEAST = 2.0**-120
"""Groups whose largest magnitude is below this one are zero: its inverse would be no number."""

NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
"""The order of eight integers beside weights of 4 bits: that of the lower halves of the bytes of a
word, then of the upper ones (see `pack_int4`)."""

ROUNDS = 1.5 * 2**23
"""A number whose last bit counts 1 in float32: what is added to it is rounded to an integer."""


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 4)


def emit_rows(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and their groups."""
    frame = host.frame(spec, machine)
    dtype, group = spec.operands[0].dtype, spec.attr("group")
    lanes = host.lanes_for(machine, [dtype, "float32"], [spec.prologue])
    source, kept = rows.Source(frame, lanes), host.byte_buffer(group * emit.ITEM_SIZE["float32"])
    size = frame.size(spec.result.shape[-1])
    for row in emit.loop(frame.first, frame.last):
        at = source.row(row)
        for first in emit.loop(0, source.length, group):
            largest = _largest(at, first, kept, group, lanes)
            start = row * size + first // group * (group + HEAD)
            _write(frame.outputs[0], start, largest, kept, spec, lanes)


def _largest(at: rows.At, first: Any, kept: Any, group: int, lanes: int) -> Any:
    """Keeps the group of element `first`, and finds its largest magnitude; NaN is above all."""

    def turn(i: Any, before: Any) -> list[Any]:
        value = at(first + i, None)
        memory.store(value, kept, i, "float32")
        bits = emit.bitcast(emit.absolute(value), emit.integer(32))
        return [emit.maximum(bits, before)]

    zero = emit.constant(emit.integer(32), 0, lanes)
    (bits,) = emit.carry(0, group, lanes, [zero], turn)
    return emit.bitcast(crosslane.across(bits, emit.maximum), emit.register_type("float32"))


def _write(result: Any, start: Any, largest: Any, kept: Any, spec: Spec, lanes: int) -> None:
    """Writes a group from byte `start` on."""
    group, bits, word = spec.attr("group"), spec.attr("bits"), emit.integer(32)
    known = emit.compare("greater_equal", largest, LEAST)
    inverse = emit.splat(emit.select(known, float(LARGEST) / largest, 0.0), lanes)
    integers_at = memory.at(result, start + HEAD, "int8")
    nothing = emit.bitcast(emit.constant(emit.register_type("float32"), ROUNDS), word)
    order = [i // 8 * 8 + NIBBLES[i % 8] for i in range(lanes)]

    def turn(i: Any, total: Any) -> list[Any]:
        value = memory.load(kept, i, "float32", lanes)
        found = emit.bitcast(emit.fma(value, inverse, ROUNDS), word) - nothing
        ordered = crosslane.shuffle(found, found, order) if bits == 4 else found
        narrow = arith.trunci(emit.widen(emit.integer(8), lanes), ordered)
        memory.store(narrow, integers_at, i, "int8")
        return [total + found]

    (total,) = emit.carry(0, group, lanes, [emit.constant(word, 0, lanes)], turn)
    head = memory.at(result, start, "int8")
    # What is no number makes the scale none.
    scale = largest * (1.0 / LARGEST) + largest * 0.0
    memory.store(scale, head, 0, "float32")
    memory.store(crosslane.across(total, row_totals.add) * -RAISED[bits], head, 1, "int32")


def supports(spec: Spec) -> str | None:
    """Whole groups of float32 or bfloat16."""
    if spec.operands[0].dtype not in ("float32", "bfloat16"):
        return f"wanted float32 or bfloat16, got {spec.operands[0].dtype}"
    if spec.epilogue is not None:
        return "it takes no epilogue"
    return rows.unsupported(spec)


KERNEL = Kernel("round_rows", "cpu", emit_rows, launch, supports)
