"""Products of integers of 8 and 16 bits that the machine adds to each other."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect

llvm, vector = dialect("llvm"), dialect("vector")


def parts(words: Any, bits: int) -> Any:
    """The 32-bit lanes of a vector as lanes of `bits`."""
    lanes = emit.lanes_of(words) * 32 // bits
    return vector.bitcast(emit.widen(emit.integer(bits), lanes), words)


def dots(total: Any, unsigned: Any, signed: Any) -> Any:
    """Adds dot products of four bytes without signs by four with signs: one instruction."""
    sides = [parts(side, 8) for side in (unsigned, signed)]
    return llvm.call_intrinsic(total.type, "llvm.x86.avx512.vpdpbusd.512", [total, *sides], [], [])


def pairs(left: Any, right: Any) -> Any:
    """The sums of two products of neighbours in 16 bits, in 32."""
    lanes = emit.lanes_of(left) // 2
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes == 2**4 else "llvm.x86.avx2.pmadd.wd"
    return llvm.call_intrinsic(emit.widen(emit.integer(32), lanes), name, [left, right], [], [])


def opaque(total: Any) -> Any:
    """The same, `emit.opaque` where there are 16 registers.

    LLVM would add what several steps add to each other, and spill.
    """
    if emit.lanes_of(total) * emit.bits_of(emit.element_of(total)) == 512:
        return total
    return emit.opaque(total)
