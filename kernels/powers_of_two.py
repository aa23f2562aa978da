"""2^x for x that is never positive: softmax's exponentials, in base two.

A softmax in base two is the same once its scores are multiplied by log2(e), which costs nothing
where they are scaled anyway. It saves the reduction by a rounded ln(2): the rest of x beside its
nearest integer is exact. Coefficients are weighted minimax fits of our own.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.emit import bitcast, compare, select
from heddle.kernels.vector_math import form_of, polynomial

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


def exp2_falling(x: Any) -> Any:
    """2^x for x <= 0 within 3 ulp, and 0 where it is no normal number; NaN stays NaN."""
    form = form_of(x)
    # Adding 1.5 2^mantissa rounds to an integer, which then lies in the low bits: shifted up, they
    # are what the exponent of 2^r lacks.
    shifter = 1.5 * 2.0**form.mantissa
    shifted = x + shifter
    rest = x - (shifted - shifter)
    power = bitcast(polynomial(rest, _COEFFICIENTS[form.bits]), emit.integer(form.bits))
    power = power + (bitcast(shifted, emit.integer(form.bits)) << form.mantissa)
    lowest = float(1 - form.bias)
    return select(compare("less", x, lowest), 0.0, bitcast(power, emit.element_of(x)))
