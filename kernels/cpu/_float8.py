"""Floats of 8 bits as bfloat16 or float32, many at once: all of them are exact in either.

A code without its sign is one of 128 numbers, whose bfloat16 fill four registers of AVX-512: two
look-ups by six bits, of which the seventh picks one. Elsewhere they become bfloat16 of a smaller
exponent, which a product makes right.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.mlir import dialect, ir

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

TOGETHER = 4
"""Codes along k that lie together in a word of packed weights."""

SCALE = {dtype: 2.0 ** (127 - bias) for dtype, (_, bias) in convert.FLOAT8.items()}
"""By what `halves` are less than their codes' numbers."""

_ENTRIES = 2**5
"""bfloat16 in a register."""


def split(words: Any, dtype: str) -> list[Any]:
    """Words of 32 bits with codes 0, 1, 2 and 3: both pairs of bfloat16, (0, 1) and (2, 3).

    AVX-512 alone.
    """
    count = emit.lanes_of(words)
    parts = vector.bitcast(emit.widen(emit.integer(8), 4 * count), words)
    order = [4 * word + byte for word in range(count) for byte in (0, 2, 1, 3)]
    sorted_codes = crosslane.shuffle(parts, parts, order)
    upper = vector.bitcast(emit.widen(emit.integer(16), 2 * count), sorted_codes)
    return [_looked_up(upper << 8, upper, dtype), _looked_up(upper, upper >> 8, dtype)]


def joined(codes: Any, dtype: str) -> Any:
    """32 codes as bfloat16, two in a word of 32 bits. AVX-512 alone."""
    wide = arith.extui(emit.widen(emit.integer(16), emit.lanes_of(codes)), codes)
    return _looked_up(wide << 8, wide, dtype)


def halves(words: Any, dtype: str) -> list[Any]:
    """Words with codes 0, 1, 2 and 3: (0, 2) and (1, 3) as pairs of bfloat16, less `SCALE`.

    On any CPU. A code without its sign is where exponent and mantissa begin, and the exponent is
    less by the difference of the biases: so denormal numbers stay what they are.
    """
    count = 2 * emit.lanes_of(words)
    odd = vector.bitcast(emit.widen(emit.integer(16), count), words)
    return [vector.bitcast(words.type, _scaled(codes, dtype)) for codes in (odd << 8, odd)]


def less(codes: Any, dtype: str) -> Any:
    """Codes as bfloat16 less `SCALE`, in order. On any CPU."""
    wide = arith.extui(emit.widen(emit.integer(16), emit.lanes_of(codes)), codes)
    return _scaled(wide << 8, dtype)


def _scaled(codes: Any, dtype: str) -> Any:
    """The bits of bfloat16 for codes in the upper bytes of 16 bits."""
    if dtype == "float8_e4m3fn":
        bits = arith.shrsi(codes, emit.like(codes, 4)) & 0x87F0
        nan = emit.compare("equal", codes | 0x80FF, 0xFFFF)
        return bits | arith.extsi(bits.type, nan)
    bits = arith.shrsi(codes, emit.like(codes, 3)) & 0x8FE0
    large = emit.compare("greater", bits & 0x7FFF, 0x0F7F)  # infinity and NaN
    return bits | (arith.extsi(bits.type, large) & 0x7000)


def _looked_up(signed: Any, codes: Any, dtype: str) -> Any:
    """bfloat16 in words of 32 bits: `codes` are in the lower bytes, `signed` in the upper ones."""
    large = emit.compare("not_equal", codes & 0x40, 0)
    small, great = (_permuted(codes, dtype, first) for first in (0, 2 * _ENTRIES))
    bits = emit.select(large, great, small) | (signed & 0x8000)
    return vector.bitcast(emit.widen(emit.integer(32), emit.lanes_of(bits) // 2), bits)


def _permuted(codes: Any, dtype: str, first: int) -> Any:
    """The bfloat16 of the code `first` plus the lowest six bits of each lane."""
    low, high = (_table(dtype, start) for start in (first, first + _ENTRIES))
    name = "llvm.x86.avx512.vpermi2var.hi.512"
    return llvm.call_intrinsic(low.type, name, [low, codes, high], [], [])


def _table(dtype: str, first: int) -> Any:
    """The bits of the bfloat16 of codes from `first` on."""
    entries = [ir.IntegerAttr.get(emit.integer(16), _bfloat16(dtype, first + i)) for i in range(32)]
    kind = emit.widen(emit.integer(16), _ENTRIES)
    return arith.constant(kind, ir.DenseElementsAttr.get(entries, kind))


def _bfloat16(dtype: str, code: int) -> int:
    """The bits of a code without sign as bfloat16."""
    mantissa, bias = convert.FLOAT8[dtype]
    exponent, fraction = code >> mantissa, code % (1 << mantissa)
    if code > convert.LARGEST[dtype]:
        return 0x7FC0 if fraction or dtype == "float8_e4m3fn" else 0x7F80
    if exponent == 0:
        if fraction == 0:
            return 0
        shift = mantissa + 1 - fraction.bit_length()
        exponent, fraction = 1 - shift, fraction << shift
    return int((exponent + 127 - bias) << 7 | fraction % (1 << mantissa) << (7 - mantissa))
