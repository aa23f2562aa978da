"""2^x for x that is never positive: softmax's exponentials, in base two; and a silu by it.

A softmax in base two is the same once its scores are multiplied by log2(e), which costs nothing
where they are scaled anyway. It saves the reduction by a rounded ln(2): the rest of x beside its
nearest integer is exact. A product with log2(e) that is rounded is exact enough for results of 16
bits. Coefficients are weighted minimax fits of our own.

AVX-512 takes off what is whole (VREDUCEPS) and scales by a power of two (VSCALEFPS), each in one
instruction; they round down, and so the fits are for the numbers from 0 to 1.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import crosslane, emit
from heddle.kernels.emit import bitcast, compare, select
from heddle.kernels.functions.vector_math import Format, form_of, polynomial, power_of_biased
from heddle.kernels.mlir import dialect

llvm = dialect("llvm")

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


def exp2_falling(x: Any, unit: float = 1.0, result: str = "float32") -> Any:
    """2^(unit x) for x <= 0 within 3 ulp of that of the product; NaN stays NaN.

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


def narrow_silu(x: Any, result: str) -> Any:
    """The product x sigmoid(x) of float32 that is about to be rounded to a `result` of 16 bits.

    It may be wrong as `exp2_falling` where e^x is a normal number, and is near zero below.
    """
    power = x * -math.log2(math.e)
    if not emit.registers(x, AVX512):
        top = form_of(x).bias + 1.0  # whose power is infinite
        power = select(compare("greater", power, top), top, power)
    return x / (exp2_falling(power, result=result) + 1.0)


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
