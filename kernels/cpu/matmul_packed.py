"""a @ b for a b that `pack_b` laid out in panels of 32 columns (see `_panels`).

A 16-bit b stays so in memory and is widened in registers; a is float32 then.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit, host, memory, sizes
from heddle.kernels.cpu import _panels
from heddle.kernels.cpu._panels import PANEL, Tile
from heddle.kernels.cpu._tile import add_products, copies_of, merged
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_matmul(spec: Spec, machine: Machine) -> None:
    """Emits the products of all tiles."""
    frame = host.frame(spec, machine)
    b, dtype = frame.inputs[1], spec.operands[1].dtype
    k = frame.size(spec.operands[0].shape[-1])
    lanes = host.lanes_for(machine, [dtype])
    zero = emit.constant(emit.register_type(dtype), 0, lanes)

    def multiply(tile: Tile, scratch: Any) -> None:
        together = copies_of(tile.height)
        left_at = _panels.left_reader(frame, tile, k, lanes)
        start = tile.panel * k * PANEL

        def right_at(step: Any) -> list[Any]:
            row = start + step * PANEL
            _panels.ask_ahead(frame, tile, row, dtype, PANEL)
            first = row + tile.part
            return [memory.load(b, first + half * lanes, dtype, lanes) for half in range(2)]

        whole = k - sizes.mod(k, together)
        zeros = [zero] * (2 * tile.height * together)
        sums = merged(add_products(zeros, 0, whole, left_at, right_at, together), together)
        if together > 1:
            sums = add_products(sums, whole, k, left_at, right_at)
        for number, value in enumerate(sums):
            memory.store(value, scratch, number * lanes, spec.operands[0].dtype)

    _panels.emit_tiles(frame, lanes, multiply)


def supports(spec: Spec) -> str | None:
    """Floats; no prologue, which would be computed again for each panel."""
    a, b = (operand.dtype for operand in spec.operands)
    if a not in ("float32", "float64"):
        return f"a: wanted float32 or float64, got {a}"
    if not emit.is_float(b) or (b == "float64") != (a == "float64"):
        return f"b: wanted a float for {a}, got {b}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("matmul_packed", "cpu", emit_matmul, _panels.launch, supports)
