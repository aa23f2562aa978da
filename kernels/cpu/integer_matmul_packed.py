"""a @ b of uint8 by int8 for a b that `pack_b` laid out in fours along k (see `_panels`).

A step takes four elements of each row of a, as one word in every lane, and 32 words of b. Where the
machine has dot products of bytes, a step is one of them for each vector of columns; with AMX it
takes tiles (see `_amx`). Others widen both sides to 16 bits, the even elements and the odd ones
apart, and add products of pairs.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, emit
from heddle.kernels.cpu import _amx, _beside, _deep, _panels
from heddle.kernels.cpu._products import emit_products
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")


def emit_integer(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    block = _amx.BLOCK if machine.tiles else _panels.BLOCK
    for frame in _beside.frames(spec, machine, block):
        if machine.tiles:
            _amx.emit_runs(frame, "int32")
        else:
            emit_products(frame, "int32", _add_fours if machine.dots else _add_pairs)


def _add_fours(left: Any, right: Any, total: Any) -> Any:
    """Adds the dot products of fours: one instruction."""
    name = "llvm.x86.avx512.vpdpbusd.512"
    sides = [_parts(side, 8) for side in (left, right)]
    return llvm.call_intrinsic(total.type, name, [total, *sides], [], [])


def _add_pairs(left: Any, right: Any, total: Any) -> Any:
    """Adds the products of elements 0 and 2, then of 1 and 3, in 16 bits each."""
    pairs = _parts(right, 16)
    eight = emit.like(pairs, 8)
    evens = _products_of_pairs(left & 0x00FF00FF, arith.shrsi(pairs << 8, eight))
    odds = _products_of_pairs((left >> 8) & 0x00FF00FF, arith.shrsi(pairs, eight))
    return total + evens + odds


def _products_of_pairs(left: Any, right: Any) -> Any:
    """The sums of two products of neighbours, in int32."""
    lanes = emit.lanes_of(left)
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes == 2**4 else "llvm.x86.avx2.pmadd.wd"
    return llvm.call_intrinsic(left.type, name, [_parts(left, 16), right], [], [])


def _parts(words: Any, bits: int) -> Any:
    """The 32-bit lanes of a vector as lanes of `bits`."""
    lanes = emit.lanes_of(words) * 32 // bits
    return vector.bitcast(emit.widen(emit.integer(bits), lanes), words)


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """With AMX that of its tasks, and that of long rows."""
    if machine.tiles:
        return _beside.launch(spec, *_amx.tasks(spec))
    return _deep.own_launch(spec, machine)


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
    _beside.launch,
    _beside.supports_each(supports),
    split=_beside.split,
    overwrites="epilogue",
    uses=lambda spec: ("dots", "tiles"),
    own_launch=own_launch,
)
