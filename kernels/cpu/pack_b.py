"""The right operand of a matmul in panels of 32 columns: [..., ceildiv(n, 32), k, 32].

A task is one panel; what lies beyond column n is zero. A transposed b ([..., n, k]) is read in
square tiles that are turned in registers.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, product

PANEL = 32
"""Columns of a panel."""

TILE = 16
"""The side of the largest tile that is turned."""


def launch(spec: Spec) -> Launch:
    """One task for each panel of each batch."""
    bytes_moved = 2 * emit.ITEM_SIZE[spec.result.dtype]
    return Launch(
        (product(spec.result.shape[:-2]), 1, 1), product((*spec.result.shape, bytes_moved))
    )


def emit_pack_b(spec: Spec, machine: Machine) -> None:
    """Emits the loop over panels."""
    frame = host.frame(spec, machine)
    transposed = spec.attr("transposed")
    *_, rows, columns = frame.shape(spec.operands[0].shape)
    n, k = (rows, columns) if transposed else (columns, rows)
    panels = sizes.ceildiv(n, PANEL)
    pack = turned if transposed else _straight
    for task in emit.loop(frame.first, frame.last):
        item, panel = sizes.split(task, (1, panels))
        pack(frame, item * n * k, panel * PANEL, n, k, task * k * PANEL)


def _straight(frame: host.Frame, base: Any, first: Any, n: Size, k: Size, target: Any) -> None:
    """Copies 32 columns from column `first` on of the [k, n] matrix at `base`."""
    dtype = memory.raw(frame.spec.result.dtype)
    lanes = min(PANEL, host.lanes_for(frame.machine, [dtype]))
    for row in emit.loop(0, k):
        for part in range(0, PANEL, lanes):
            mask = host.first_lanes(n - first - part, lanes)
            value = memory.load(frame.inputs[0], base + row * n + first + part, dtype, lanes, mask)
            memory.store(value, frame.outputs[0], target + row * PANEL + part, dtype)


def turned(frame: host.Frame, base: Size, first: Any, n: Size, k: Size, target: Any) -> None:
    """Turns rows `first` to `first + 31` of the [n, k] matrix at `base` into columns.

    Elements are those of the result; where they are larger than the operand's, it is read as such.
    """
    dtype = memory.raw(frame.spec.result.dtype)
    side = min(TILE, host.lanes_for(frame.machine, [dtype]))
    for part in range(0, PANEL, side):
        for column, mask in host.vectors(0, k, side):
            lines = []
            for line in range(side):
                row = first + (part + line)
                inside = emit.compare("less", row, n)
                # A row beyond n is read nowhere: the mask is empty.
                count = sizes.least(emit.index(side), k - column) if mask is not None else side
                kept = host.first_lanes(emit.select(inside, emit.as_index(count), 0), side)
                where = base + row * k + column
                lines.append(memory.load(frame.inputs[0], where, dtype, side, kept))
            for number, value in enumerate(crosslane.transposed(lines)):
                place = target + (column + number) * PANEL + part
                if mask is None:
                    memory.store(value, frame.outputs[0], place, dtype)
                    continue
                with emit.when(emit.compare("less", column + number, k)):
                    memory.store(value, frame.outputs[0], place, dtype)


def supports(spec: Spec) -> str | None:
    """Any dtype, without bodies: it only moves data."""
    return memory.moves_only(spec)


KERNEL = Kernel("pack_b", "cpu", emit_pack_b, launch, supports)
