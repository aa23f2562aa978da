"""The right operand of a matmul in panels of 32 columns: [..., ceildiv(n, 32), k, 32].

With a `group` of 2 or 4, so many elements along k make a word of 32 bits, zero beyond k:
[..., ceildiv(n, 32), ceildiv(k, group), 32, group]. A step of a panel is then 128 bytes, which the
dot products of pairs of bfloat16 and of fours of int8 take at once.

A task is one panel; what lies beyond column n is zero. A transposed b ([..., n, k]) is read in
square tiles that are turned in registers.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, product

vector = dialect("vector")

WORD = 4
"""Bytes of a group."""

TILE = 16
"""The side of the largest tile that is turned."""


def launch(spec: Spec) -> Launch:
    """One task for each panel of each batch."""
    panels = product(spec.result.shape[: len(spec.operands[0].shape) - 1])
    bytes_moved = 2 * emit.ITEM_SIZE[spec.result.dtype]
    return Launch((panels, 1, 1), product((*spec.result.shape, bytes_moved)))


def emit_pack_b(spec: Spec, machine: Machine) -> None:
    """Emits the loop over panels."""
    frame = host.frame(spec, machine)
    transposed, group = spec.attr("transposed"), spec.attr("group", 1)
    *_, rows, columns = frame.shape(spec.operands[0].shape)
    n, k = (rows, columns) if transposed else (columns, rows)
    panels, steps = sizes.ceildiv(n, PANEL), sizes.ceildiv(k, group)
    pack = turned if transposed else _straight
    for task in emit.loop(frame.first, frame.last):
        item, panel = sizes.split(task, (1, panels))
        pack(frame, item * n * k, panel * PANEL, n, k, task * steps * PANEL, group)


def _straight(
    frame: host.Frame, base: Any, first: Any, n: Size, k: Size, target: Any, group: int
) -> None:
    """Copies 32 columns from column `first` on of the [k, n] matrix at `base`."""
    dtype, word = _dtypes(frame, group)
    lanes = min(PANEL, host.lanes_for(frame.machine, [word]))

    def part_of(row: Any, column: Any, beyond: bool) -> Any:
        count = n - column
        if beyond:  # a row beyond k is read nowhere: the mask is empty
            count = emit.select(emit.compare("less", row, k), count, 0)
        mask = host.first_lanes(count, lanes)
        return memory.load(frame.inputs[0], base + row * n + column, dtype, lanes, mask)

    for step in emit.loop(0, sizes.ceildiv(k, group)):
        for part in range(0, PANEL, lanes):
            rows = [part_of(step * group + i, first + part, i > 0) for i in range(group)]
            value = convert.cast(rows[0], dtype, word)
            for number, row in enumerate(rows[1:], 1):
                shift = 8 * emit.ITEM_SIZE[dtype] * number
                value = value | (convert.cast(row, dtype, word) << shift)
            memory.store(value, frame.outputs[0], target + step * PANEL + part, word)


def turned(
    frame: host.Frame, base: Size, first: Any, n: Size, k: Size, target: Any, group: int = 1
) -> None:
    """Turns rows `first` to `first + 31` of the [n, k] matrix at `base` into columns.

    Elements are those of the result; where they are larger than the operand's, it is read as such.
    `target` counts words of `group` elements.
    """
    dtype, word = _dtypes(frame, group)
    side = min(TILE, host.lanes_for(frame.machine, [word]))
    steps = sizes.ceildiv(k, group)
    whole = group == 1 or (isinstance(k, int) and k % group == 0)
    for part in range(0, PANEL, side):
        for step, mask in host.vectors(0, steps, side):
            count: Size = side * group
            if mask is not None or not whole:
                count = sizes.least(emit.index(count), k - step * group)
            lines = []
            for line in range(side):
                row = first + (part + line)
                inside = emit.compare("less", row, n)
                # A row beyond n is read nowhere: the mask is empty.
                kept = host.first_lanes(emit.select(inside, emit.as_index(count), 0), side * group)
                where = base + row * k + step * group
                value = memory.load(frame.inputs[0], where, dtype, side * group, kept)
                kind = emit.widen(emit.memory_type(word), side)
                lines.append(vector.bitcast(kind, value) if group > 1 else value)
            for number, value in enumerate(crosslane.transposed(lines)):
                place = target + (step + number) * PANEL + part
                if mask is None:
                    memory.store(value, frame.outputs[0], place, word)
                    continue
                with emit.when(emit.compare("less", step + number, steps)):
                    memory.store(value, frame.outputs[0], place, word)


def _dtypes(frame: host.Frame, group: int) -> tuple[str, str]:
    """What is read of the operand, and what is written: the bits of `group` elements."""
    size = emit.ITEM_SIZE[frame.spec.result.dtype]
    return f"uint{8 * size}", f"uint{8 * size * group}"


def supports(spec: Spec) -> str | None:
    """Any dtype, without bodies: it only moves data; groups make words of 32 bits."""
    dtype, group = spec.result.dtype, spec.attr("group", 1)
    if group > 1 and group * emit.ITEM_SIZE[dtype] != WORD:
        return f"group: wanted 1 or what makes {WORD} bytes, got {group} of {dtype}"
    return memory.moves_only(spec)


KERNEL = Kernel("pack_b", "cpu", emit_pack_b, launch, supports, moves=True)
