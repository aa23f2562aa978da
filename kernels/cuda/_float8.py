"""Floats of 8 bits as pairs of 16, in words of registers: all of them are exact there."""

from __future__ import annotations

from typing import Any

from heddle.kernels import crosslane, emit
from heddle.kernels.mlir import dialect, ir

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")


def halves(word: Any, dtype: str) -> list[Any]:
    """Four codes in a word of 32 bits as float16, two in a word: the first two, the others."""
    four, element = emit.widen(emit.integer(8), 4), emit.integer(32)
    codes, zeros = llvm.bitcast(four, word), emit.constant(emit.integer(8), 0, 4)
    upper = [
        llvm.bitcast(element, crosslane.shuffle(codes, zeros, [4, first, 4, first + 1]))
        for first in (0, 2)
    ]
    return upper if dtype == "float8_e5m2" else [_widened(pair) for pair in upper]


def bfloats(word: Any, dtype: str) -> list[Any]:
    """The same as bfloat16, which are the upper halves of their float32."""
    return [_upper_halves(pair) for pair in halves(word, dtype)]


def _widened(codes: Any) -> Any:
    """From float8_e4m3fn in the upper bytes of both halves.

    One bit further down, they are float16 of 2**-8 times the value. A magnitude of 127, which is
    NaN, gets the exponent of NaN.
    """
    is_nan = ((codes & 0x7F007F00) + 0x01000100) & 0x80008000
    small = ((codes >> 1) & 0x3F803F80) | (codes & 0x80008000) | (is_nan >> 1)
    pair = emit.widen(ir.F16Type.get(), 2)
    times = emit.constant(ir.F16Type.get(), 2.0**8, 2)
    return llvm.bitcast(emit.integer(32), arith.mulf(llvm.bitcast(pair, small), times))


def _upper_halves(pair: Any) -> Any:
    wide = arith.extf(
        emit.widen(ir.F32Type.get(), 2), llvm.bitcast(emit.widen(ir.F16Type.get(), 2), pair)
    )
    bits = emit.bitcast(wide, emit.integer(32))
    low, high = (vector.extract(bits, [], [i]) for i in range(2))
    return (low >> 16) | (high & 0xFFFF0000)
