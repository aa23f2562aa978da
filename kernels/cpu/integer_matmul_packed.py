"""a @ b of uint8 by int8 for a b that `pack_b` laid out in fours along k (see `products.panels`).

A step takes four elements of each row of a, as one word in every lane, and 32 words of b. Where the
machine has dot products of bytes, a step is one of them for each vector of columns; with AMX it
takes tiles (see `amx.products`). Others widen both sides to 16 bits, the even elements and the odd
ones apart, and add products of pairs.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cpu.amx import products
from heddle.kernels.cpu.products import beside, deep, integers, panels, staged
from heddle.kernels.cpu.products.tile import Step
from heddle.kernels.cpu.products.vectors import emit_products
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

arith = dialect("arith")


def emit_integer(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    block = products.BLOCK if machine.tiles else panels.BLOCK
    for frame in beside.frames(spec, machine, block):
        if machine.tiles:
            products.emit_runs(frame, "int32")
        else:
            emit_products(frame, FOURS if machine.dots else PAIRS)


def _add_fours(left: Any, right: Any, total: Any) -> Any:
    """Adds the dot products of fours."""
    return integers.dots(total, left, right)


def _unsigned(fours: Any) -> list[Any]:
    """Elements 0 and 2, then 1 and 3, in 16 bits each."""
    return [word & 0x00FF00FF for word in (fours, fours >> 8)]


def _signed(fours: Any) -> list[Any]:
    """The same, with their signs."""
    pairs = integers.parts(fours, 16)
    eight = emit.like(pairs, 8)
    return [arith.shrsi(pairs << 8, eight), arith.shrsi(pairs, eight)]


def _add_pairs(left: Any, right: Any, total: Any) -> Any:
    """Adds the sums of two products of neighbours."""
    return integers.opaque(total + integers.pairs(integers.parts(left, 16), right))


FOURS = Step("int32", _add_fours)
PAIRS = Step("int32", _add_pairs, "uint32", 2, _unsigned, _signed)


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """With AMX that of its tasks, and those of rows that go on the stack."""
    if machine.tiles:
        return beside.launch(spec, products.BLOCK, products.RUN)
    return staged.own_launch(spec, machine) or deep.own_launch(spec, machine)


def supports(spec: Spec) -> str | None:
    """uint8 by int8; no prologue, which would be computed again for each panel."""
    a, b = (operand.dtype for operand in spec.operands)
    if (a, b) != ("uint8", "int8"):
        return f"wanted uint8 by int8, got {a} by {b}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel(
    "integer_matmul_packed",
    "cpu",
    emit_integer,
    beside.launch,
    beside.supports_each(supports),
    split=beside.split,
    overwrites="epilogue",
    uses=lambda spec: ("dots", "tiles"),
    own_launch=own_launch,
)
