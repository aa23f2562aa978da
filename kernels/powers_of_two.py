"""2^x for x that is never positive: softmax's exponentials, in base two.

A softmax in base two is the same once its scores are multiplied by log2(e), which costs nothing
where they are scaled anyway. It saves the reduction by a rounded ln(2): the rest of x beside its
nearest integer is exact. Coefficients are weighted minimax fits of our own.

AVX-512 takes off what is whole (VREDUCEPS) and scales by a power of two (VSCALEFPS), each in one
instruction; they round down, and so the fits are for the numbers from 0 to 1.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.emit import bitcast, compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.vector_math import Format, form_of, polynomial, power_of_biased

llvm = dialect("llvm")

# 2^r for |r| <= 1/2.
_COEFFICIENTS = {
    32: (
        1.0,
        0.6931469775950188,
        0.24022242078835124,
        0.05550733746474054,
        0.009671513064347324,
        0.0013264727482808405,
    ),
    64: (
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
}


# 2^r for 0 <= r <= 1; for results of bfloat16 within 2^-13 of it.
_FROM_FLOOR = {
    32: (
        1.0,
        0.6931513118047002,
        0.24016445015434726,
        0.05579991310556534,
        0.009017030320597794,
        0.001867130070535697,
    ),
    64: (
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
}
_COARSE = (1.0, 0.6951167864369012, 0.22764499114947298, 0.07706704202418124)


def exp2_falling(x: Any, coarse: bool = False, unit: float = 1.0) -> Any:
    """2^(unit x) for x <= 0 within 3 ulp of that of the product; NaN stays NaN.

    Where it is no normal number it is 0 or a denormal one. A `coarse` one may be wrong by a factor
    of 1 + 2^-13, which is a 16th of what is lost when it is rounded to bfloat16.
    """
    form = form_of(x)
    if emit.lanes_of(x) * form.bits == 512:
        x = x if unit == 1.0 else x * unit
        fit = _COARSE if coarse and form.bits == 32 else _FROM_FLOOR[form.bits]
        return _avx512("scalef", form, polynomial(_avx512("reduce", form, x, _FLOOR), fit), x)
    # Adding 1.5 2^mantissa rounds to an integer, which then lies in the low bits; the bias makes
    # them an exponent, that of zero for the lowest.
    lowest, shifter = -form.bias / unit, 1.5 * 2.0**form.mantissa + form.bias
    x = select(compare("less", x, lowest), lowest, x)
    shifted = _product(x, unit, shifter)
    power = power_of_biased(bitcast(shifted, emit.integer(form.bits)), form)
    rest = _product(x, unit, -(shifted - shifter))
    return polynomial(rest, _COEFFICIENTS[form.bits]) * power


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
