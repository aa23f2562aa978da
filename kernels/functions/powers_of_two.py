"""2^x for x that is hardly positive: softmax's exponentials, in base two; what is made of it.

A softmax in base two is the same once its scores are multiplied by log2(e), which costs nothing
where they are scaled anyway. It saves the reduction by a rounded ln(2): the rest of x beside its
nearest integer is exact. A product with log2(e) that is rounded is exact enough for results of 16
bits. Coefficients are weighted minimax fits of our own.

AVX-512 takes off what is whole (VREDUCEPS) and scales by a power of two (VSCALEFPS), each in one
instruction; they round down, and so the fits are for the numbers from 0 to 1. Where a machine has
powers and reciprocals of its own (`by`), what is rounded to 16 bits is made of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit
from heddle.kernels.emit import bitcast, compare, select
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.vector_math import Format, form_of, polynomial, power_of_biased
from heddle.kernels.mlir import dialect
from heddle.kernels.setting import Setting

llvm = dialect("llvm")

LOG2_E = math.log2(math.e)
"""What scores are multiplied by to be exponents of two."""


@dataclass(frozen=True)
class Unit:
    """What a machine has instructions for, of float32: `exp2` of any x, and `reciprocal`.

    Within 2^-21, where the result is a normal number; below it is 0.
    """

    exp2: Callable[[Any], Any]
    reciprocal: Callable[[Any], Any]


_unit: Setting[Unit | None] = Setting("unit", None)


def by(unit: Unit | None) -> AbstractContextManager[None]:
    """What is emitted in it has the `narrow_` functions below by `unit`; None: by polynomials."""
    return _unit.to(unit)


AVX512 = 64
"""Bytes of a register for which there are VREDUCEPS and VSCALEFPS."""

# 2^r for |r| <= 1/2, and for 0 <= r <= 1, by the dtype that results are rounded to: float16 within
# 2^-18 of it, bfloat16 within 2^-13.
_FROM_NEAREST = {
    "float64": (
        1.0,
        0.6931471805599457,
        0.24022650695910117,
        0.05550410866478991,
        0.009618129107597202,
        0.0013333558152367484,
        0.00015403530458609193,
        1.5252729249273383e-05,
        1.3215432252868377e-06,
        1.0179623735752155e-07,
        7.0746071426721345e-09,
        4.2592494743112034e-10,
    ),
    "float32": (
        1.0,
        0.6931469775950188,
        0.24022242078835124,
        0.05550733746474054,
        0.009671513064347324,
        0.0013264727482808405,
    ),
    "float16": (
        1.0,
        0.6931241934151696,
        0.2402409861020744,
        0.05590642461128456,
        0.009582853085219178,
    ),
    "bfloat16": (1.0, 0.693282927098454, 0.2422109592762341, 0.05500893111898475),
}
_FROM_FLOOR = {
    "float64": (
        1.0,
        0.6931471805599451,
        0.240226506959111,
        0.05550410866459475,
        0.009618129109465199,
        0.0013333558099410617,
        0.00015403529159052585,
        1.5252842097124552e-05,
        1.3212499304907804e-06,
        1.0221888913305457e-07,
        6.692086764972744e-09,
        6.02348837210138e-10,
    ),
    "float32": (
        1.0,
        0.6931513118047002,
        0.24016445015434726,
        0.05579991310556534,
        0.009017030320597794,
        0.001867130070535697,
    ),
    "float16": (
        1.0,
        0.6930448449025541,
        0.2412802047534402,
        0.05224247422086112,
        0.01342668427285007,
    ),
    "bfloat16": (1.0, 0.6951167864369012, 0.22764499114947298, 0.07706704202418124),
}


def finite(top: Any) -> Any:
    """What is taken off scores: their greatest, or 0 where all of them are -inf."""
    return select(compare("equal", top, -math.inf), 0.0, top)


def exp2_falling(x: Any, unit: float = 1.0, result: str = "float32") -> Any:
    """2^(unit x) for unit x <= 6 within 3 ulp of that of the product; NaN stays NaN.

    Where it is no normal number it is 0 or a denormal one. Before it is rounded to a `result` of 16
    bits it may be wrong by a factor of 1 + 2^-18 (float16) or 1 + 2^-13 (bfloat16), a 16th of what
    is lost then.
    """
    form = form_of(x)
    result = "float64" if form.bits == 64 else result
    if count := emit.registers(x, AVX512):
        x = x if unit == 1.0 else x * unit
        return crosslane.joined([_by_floor(part, result) for part in crosslane.parts(x, count)])
    # Adding 1.5 2^mantissa rounds to an integer, which then lies in the low bits; the bias makes
    # them an exponent, that of zero for the lowest.
    lowest, shifter = -form.bias / unit, 1.5 * 2.0**form.mantissa + form.bias
    x = select(compare("less", x, lowest), lowest, x)
    shifted = _product(x, unit, shifter)
    power = power_of_biased(bitcast(shifted, emit.integer(form.bits)), form)
    rest = _product(x, unit, -(shifted - shifter))
    return polynomial(rest, _FROM_NEAREST[result]) * power


def capped(x: Any, cap: float, slope: float = 1.0) -> Any:
    """`cap * tanh(slope x / cap)` within 16 ulp for a positive cap; NaN stays NaN.

    tanh(y) is m / (m + 2) where m = 2^(2 log2(e) y) - 1: of a small m no digit is lost.
    """
    form = form_of(x)
    exponent = 2 * LOG2_E * slope / cap
    top = (form.mantissa + 2) / abs(exponent) if slope else math.inf  # from here on tanh is 1
    x = select(compare("greater", x, top), top, x)
    x = select(compare("less", x, -top), -top, x)
    shifter = 1.5 * 2.0**form.mantissa + form.bias
    shifted = emit.fma(x, exponent, shifter)
    power = power_of_biased(bitcast(shifted, emit.integer(form.bits)), form)
    rest = emit.fma(x, exponent, -(shifted - shifter))
    less = polynomial(rest, _FROM_NEAREST[f"float{form.bits}"][1:]) * rest
    m = emit.fma(power, less, power - 1.0)
    return m / (m + 2.0) * cap


def narrow_silu(x: Any, result: str) -> Any:
    """The product x sigmoid(x) of float32 that is about to be rounded to a `result` of 16 bits.

    It may be wrong as `exp2_falling` where e^x is a normal number, and is near zero below.
    """
    if _unit.get():
        return x * narrow_sigmoid(x)
    power = x * -LOG2_E
    if not emit.registers(x, AVX512):
        top = form_of(x).bias + 1.0  # whose power is infinite
        power = select(compare("greater", power, top), top, power)
    return x / (exp2_falling(power, result=result) + 1.0)


def narrow_sigmoid(x: Any) -> Any:
    """The sigmoid of float32 that is about to be rounded to 16 bits."""
    unit = _unit.get()
    return unit.reciprocal(unit.exp2(x * -LOG2_E) + 1.0) if unit else vm.sigmoid(x)


def narrow_exp(x: Any) -> Any:
    """The exponential of float32 that is about to be rounded to 16 bits."""
    unit = _unit.get()
    return unit.exp2(x * LOG2_E) if unit else vm.exp(x)


def _by_floor(x: Any, result: str) -> Any:
    """2^x for a register of AVX-512: as much of it as `result` wants."""
    form = form_of(x)
    rest = _avx512("reduce", form, x, _FLOOR)
    return _avx512("scalef", form, polynomial(rest, _FROM_FLOOR[result]), x)


def _product(x: Any, unit: float, more: Any) -> Any:
    """`unit` x with `more` added, in one instruction."""
    return x + more if unit == 1.0 else emit.fma(x, unit, more)


_FLOOR, _CURRENT = 9, 4
"""Operands of the instructions: round down, without the flag for it; round as is set."""


def _avx512(name: str, form: Format, x: Any, how: Any) -> Any:
    """An instruction on a whole vector; `how` is a vector, or a number that is part of it."""
    word = emit.integer(32)
    how = emit.constant(word, how) if isinstance(how, int) else how
    every = emit.constant(emit.integer(512 // form.bits), -1)
    kind = {32: "ps", 64: "pd"}[form.bits]
    arguments = [x, how, x, every, emit.constant(word, _CURRENT)]
    return llvm.call_intrinsic(x.type, f"llvm.x86.avx512.mask.{name}.{kind}.512", arguments, [], [])
