"""Rounding to bfloat16, and products of it, by the instructions of AVX512-BF16.

To them a denormal number is zero (Intel SDM, volume 2, VCVTNEPS2BF16): a vector that has one is
rounded by integer operations, unless what computes it loses denormal numbers anyway.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial, reduce
from operator import or_
from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

PART = 16
"""float32 in a register of AVX-512."""


def conversions(machine: Machine, loses: bool = False) -> AbstractContextManager[None]:
    """What is emitted in it rounds as well as the machine can.

    `loses`: by the instruction alone, which makes denormal results zero, as dot products do.
    """
    return convert.bfloat16_by(partial(_rounded, loses) if machine.dots else None)


def add_dots(left: Any, right: Any, total: Any) -> Any:
    """Adds both products of pairs of bfloat16 in words of 32 bits."""
    pairs = ir.VectorType.get([2 * emit.lanes_of(total)], ir.BF16Type.get())
    # The second one may be read from memory, an element for all lanes: a row's are on the left.
    sides = [vector.bitcast(pairs, side) for side in (right, left)]
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    return llvm.call_intrinsic(total.type, name, [total, *sides], [], [])


def narrowed(low: Any, high: Any | None = None) -> Any:
    """The bits of one or two registers of float32 as bfloat16, one behind the other."""
    if high is None:
        narrow = arith.truncf(ir.VectorType.get([PART], ir.BF16Type.get()), low)
    else:
        kind = ir.VectorType.get([2 * PART], ir.BF16Type.get())
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        narrow = llvm.call_intrinsic(kind, name, [high, low], [], [])
    return arith.bitcast(emit.widen(emit.integer(16), emit.lanes_of(narrow)), narrow)


def _rounded(loses: bool, value: Any) -> Any:
    """The bits of float32 rounded to bfloat16, to nearest even."""
    lanes = emit.lanes_of(value)
    if lanes not in (PART, 2 * PART):
        return convert.bfloat16_bits(value)
    parts = crosslane.parts(value, lanes // PART)
    bits = narrowed(*parts)
    if loses:
        return bits
    denormal = reduce(or_, map(_denormal, parts))
    some = vector.reduction(emit.integer(1), vector.CombiningKind.OR, denormal)
    some = llvm.intr_expect(some, emit.constant(emit.integer(1), 0))
    return emit.either(some, [bits.type], lambda: [convert.bfloat16_bits(value)], lambda: [bits])[0]


def _denormal(part: Any) -> Any:
    """Which lanes of a register hold denormal numbers."""
    kind = emit.widen(emit.integer(1), PART)
    which = emit.constant(emit.integer(32), 0x20)
    return llvm.call_intrinsic(kind, "llvm.x86.avx512.fpclass.ps.512", [part, which], [], [])
