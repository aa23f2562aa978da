"""a @ b for weights in 8 or 4 bits, in panels of 32 columns (see `_panels`), each group scaled.

The integers become float32 in registers and are multiplied as they are; a group's sums are scaled
once, when they are complete. An integer is so never rounded, and a scale costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, emit, host, memory
from heddle.kernels.cpu import _panels
from heddle.kernels.cpu._panels import PANEL, Tile
from heddle.kernels.cpu._tile import add_rows, copies_of, merged, rows_of
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec

arith, llvm = dialect("arith"), dialect("llvm")

STEP = 8
"""Elements along k that are taken at once: the 4-bit weights in a uint32."""


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the products of all tiles."""
    frame = host.frame(spec, machine)
    weights, scales = spec.operands[1:]
    group = spec.attr("group")
    k, groups = (frame.size(size) for size in (spec.operands[0].shape[-1], scales.shape[1]))
    lanes = host.lanes_for(machine, ["float32"])
    zero = emit.constant(emit.register_type("float32"), 0, lanes)
    add_some = _add_bytes if weights.dtype == "int8" else _add_nibbles

    def multiply(tile: Tile) -> list[Any]:
        copies = copies_of(tile.height)
        left_at = _panels.left_reader(frame, tile, k, lanes)
        zeros = [zero] * (2 * tile.height * copies)

        def add_group(number: Any, *totals: Any) -> list[Any]:
            def step(inner: Any, *sums: Any) -> list[Any]:
                return add_some(frame, tile, number * group + inner, sums, left_at, copies)

            sums = emit.carry(0, group, STEP, zeros, step)
            shares = (tile.panel * groups + number) * PANEL + tile.part
            scale = [
                memory.load(frame.inputs[2], shares + half * lanes, scales.dtype, lanes)
                for half in range(2)
            ]
            pairs = enumerate(zip(sums, totals, strict=True))
            return [emit.fma(value, scale[i % 2], total) for i, (value, total) in pairs]

        return merged(emit.carry(0, groups, 1, zeros, add_group), copies)

    _panels.emit_tiles(frame, lanes, "float32", multiply)


def _add_bytes(
    frame: host.Frame, tile: Tile, k: Any, sums: Sequence[Any], left_at: Any, copies: int
) -> list[Any]:
    """Adds the products of int8, a row of the panel for each k."""
    rows, lanes = frame.size(frame.spec.operands[1].shape[1]), emit.lanes_of(sums[0])
    first = (tile.panel * rows + k) * PANEL
    for pair in range(0, STEP, 2):
        _panels.ask_ahead(frame, tile, first + pair * PANEL, "int8", 2 * PANEL)

    def row_at(ahead: Any) -> list[Any]:
        start = first + ahead * PANEL + tile.part
        row = [memory.load(frame.inputs[1], start + i * lanes, "int8", lanes) for i in range(2)]
        return [convert.cast(value, "int8", "float32") for value in row]

    if _few(frame, tile):
        return add_rows(sums, k, left_at, map(row_at, range(STEP)), copies)
    return emit.carry(
        0, STEP, 1, sums, lambda i, *sums: add_rows(sums, k + i, left_at, [row_at(i)], copies)
    )


def _add_nibbles(
    frame: host.Frame, tile: Tile, k: Any, sums: Sequence[Any], left_at: Any, copies: int
) -> list[Any]:
    """Adds the products of uint32, a row of the panel for eight k, the first in the lowest bits."""
    rows, lanes = frame.size(frame.spec.operands[1].shape[1]), emit.lanes_of(sums[0])
    row = (tile.panel * rows + k // STEP) * PANEL
    _panels.ask_ahead(frame, tile, row, "uint32", PANEL)
    start = row + tile.part
    words = [memory.load(frame.inputs[1], start + i * lanes, "uint32", lanes) for i in range(2)]
    if _few(frame, tile):
        return add_rows(sums, k, left_at, map(partial(_nibbles, words), range(STEP)), copies)

    def step(i: Any, low: Any, high: Any, *sums: Any) -> list[Any]:
        right = _nibbles([low, high], 0)
        return [low >> 4, high >> 4, *add_rows(sums, k + i, left_at, [right], copies)]

    return emit.carry(0, STEP, 1, [*words, *sums], step)[2:]


def _few(frame: host.Frame, tile: Tile) -> bool:
    """Whether the sums leave registers for the right sides of several steps."""
    return tile.height <= rows_of(frame.machine) // 2


def _nibbles(words: Sequence[Any], number: int) -> list[Any]:
    """The integers q of bits 4 number to 4 number + 3 of `words`, which are q + 8, as float32."""
    lowest = [word >> (4 * number) if number else word for word in words]
    if emit.lanes_of(words[0]) == 2**4:
        return [_looked_up(word) for word in lowest]
    return [convert.cast(word & 15, "int32", "float32") - 8.0 for word in lowest]


def _looked_up(numbers: Any) -> Any:
    """-8.0 to 7.0 by the lowest four bits of each lane: a register is the whole table."""
    element = emit.register_type("float32")
    kind = emit.widen(element, 2**4)
    entries = [ir.FloatAttr.get(element, float(q)) for q in range(-8, 8)]
    table = arith.constant(kind, ir.DenseElementsAttr.get(entries, kind))
    name = "llvm.x86.avx512.permvar.sf.512"
    return llvm.call_intrinsic(kind, name, [table, numbers], [], [])


def supports(spec: Spec) -> str | None:
    """Whole groups of int8, or of 4 bits in uint32; no prologue."""
    a, weights, scales = (operand.dtype for operand in spec.operands)
    if a != "float32" or weights not in ("int8", "uint32"):
        return f"wanted float32 by int8 or uint32, got {a} by {weights}"
    if scales not in ("float32", "float16", "bfloat16"):
        return f"scales: wanted float32, float16 or bfloat16, got {scales}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("quantized_matmul_packed", "cpu", emit_quantized, _panels.launch, supports)
