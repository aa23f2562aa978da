"""Floats of 8 bits in registers.

As pairs of 16 bits in words, where all of them are exact; and the instructions that convert them,
from sm_89 on (PTX ISA 9.0, "cvt").
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Machine

arith, llvm, nvvm, vector = (dialect(name) for name in ("arith", "llvm", "nvvm", "vector"))

_TYPES = {"float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}

_LIMITS = {"float8_e4m3fn": 464.0, "float8_e5m2": 61440.0}
"""Halfway between the largest number and what would come next: the even one is the smaller in
float8_e4m3fn, and infinity in float8_e5m2."""


def conversions(machine: Machine) -> AbstractContextManager[None]:
    """What is emitted in it converts as well as the machine can."""
    return convert.float8_by(Instructions() if machine.float8 else None)


class Instructions:
    """cvt of pairs: see `heddle.kernels.convert.Float8Unit`.

    It makes the largest number of what is too large, where `convert` has NaN or infinity.
    """

    def decode(self, code: Any, dtype: str) -> Any:
        """Codes as float32, by way of float16."""
        lanes = emit.lanes_of(code)
        pairs = [_pair(self.widened(pair, dtype)) for pair in _pairs(code, lanes)]
        wide = emit.widen(ir.F16Type.get(), lanes)
        return arith.extf(emit.widen(ir.F32Type.get(), lanes), _joined(pairs, wide))

    def encode(self, value: Any, dtype: str) -> Any:
        """Rounds to nearest even, once."""
        lanes = emit.lanes_of(value)
        kind = ir.TypeAttr.get(ir.Type.parse(_TYPES[dtype]))
        rounds = ir.Attribute.parse("#nvvm.fp_rnd_mode<rn>")
        saturates = ir.Attribute.parse("#nvvm.sat_mode<satfinite>")
        byte, pairs = emit.integer(8), []
        for low, high in (_pair(pair) for pair in _pairs(value, lanes)):
            pair = emit.widen(byte, 2)
            found = nvvm.convert_f32x2_to_f8x2(pair, high, low, kind, rnd=rounds, sat=saturates)
            pairs.append(_pair(found))
        code = _joined(pairs, emit.widen(byte, lanes))
        sign = arith.trunci(code.type, emit.bitcast(value, emit.integer(32)) >> 24) & 0x80
        if dtype == "float8_e4m3fn":
            fits = emit.compare("less_equal", emit.absolute(value), _LIMITS[dtype])
            return emit.select(fits, code, sign | 0x7F)
        fits = emit.compare("less", emit.absolute(value), _LIMITS[dtype])
        is_nan = emit.compare("not_equal", value, value)
        beyond = emit.select(is_nan, sign | 0x7E, sign | 0x7C)
        return emit.select(fits, code, beyond)

    @staticmethod
    def widened(pair: Any, dtype: str) -> Any:
        """Two codes as two float16."""
        kind = ir.TypeAttr.get(ir.Type.parse(_TYPES[dtype]))
        return nvvm.convert_f8x2_to_f16x2(emit.widen(ir.F16Type.get(), 2), pair, kind)


def _pairs(value: Any, lanes: int) -> list[Any]:
    """The lanes two by two; a single one twice."""
    if lanes == 1:
        return [vector.from_elements(emit.widen(value.type, 2), [value, value])]
    return crosslane.parts(value, lanes // 2)


def _pair(value: Any) -> list[Any]:
    return [vector.extract(value, [], [i]) for i in range(2)]


def _joined(pairs: list[list[Any]], kind: Any) -> Any:
    """A vector of them, or the first where `kind` is none."""
    scalars = [scalar for pair in pairs for scalar in pair]
    return vector.from_elements(kind, scalars) if isinstance(kind, ir.VectorType) else scalars[0]


def halves(word: Any, dtype: str) -> list[Any]:
    """Four codes in a word of 32 bits as float16, two in a word: the first two, the others."""
    four, element = emit.widen(emit.integer(8), 4), emit.integer(32)
    codes, zeros = llvm.bitcast(four, word), emit.constant(emit.integer(8), 0, 4)
    unit = convert.float8_unit()
    if isinstance(unit, Instructions) and dtype == "float8_e4m3fn":
        pairs = _pairs(codes, 4)
        return [llvm.bitcast(element, unit.widened(pair, dtype)) for pair in pairs]
    upper = [
        llvm.bitcast(element, crosslane.shuffle(codes, zeros, [4, first, 4, first + 1]))
        for first in (0, 2)
    ]
    return upper if dtype == "float8_e5m2" else [_widened(pair) for pair in upper]


def bfloats(word: Any, dtype: str) -> list[Any]:
    """The same as bfloat16, by way of float32."""
    return [_bfloat(pair) for pair in halves(word, dtype)]


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


def _bfloat(pair: Any) -> Any:
    """Two float16 in a word as bfloat16: a cvt rounds both at once, and has nothing to round."""
    half, single, brain = (
        emit.widen(kind.get(), 2) for kind in (ir.F16Type, ir.F32Type, ir.BF16Type)
    )
    wide = arith.extf(single, llvm.bitcast(half, pair))
    return llvm.bitcast(emit.integer(32), arith.truncf(brain, wide))
