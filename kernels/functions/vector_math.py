"""exp, log, tanh, erf and their relatives as polynomials, for float32 and float64.

Every function takes a scalar or a vector and calls nothing. The bounds in the docstrings are in
units in the last place of the result, over the whole range of the type unless said otherwise;
`tests/kernels/cpu/test_vector_math.py` holds them. Coefficients are weighted minimax fits of our
own.

Long because every function is here, beside the reductions that they share.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from heddle.kernels import emit
from heddle.kernels.emit import bitcast, compare, fma, select, sqrt


class Format(NamedTuple):
    """What the algorithms need to know of a floating type.

    `ln2_high` has enough trailing zeros that its product with an exponent is exact. `exp` and `log`
    are for what is left of e^r and of the logarithm, `whole_exp` for e^r itself: a step less.
    """

    bits: int
    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float
    exp_low: float
    exp_high: float
    exp: tuple[float, ...]
    whole_exp: tuple[float, ...]
    log: tuple[float, ...]


# (e^r - 1 - r) / r^2 for |r| <= ln(2)/2, and (log((1+s)/(1-s)) - 2s) / s^3 in s^2 for
# |s| <= (sqrt(2) - 1) / (sqrt(2) + 1).
_EXP64 = (
    0.5000000000000012,
    0.1666666666666669,
    0.041666666666515924,
    0.008333333333312761,
    0.0013888888946852675,
    0.00019841269906200484,
    2.480149012621888e-05,
    2.755722571198831e-06,
    2.763121214773642e-07,
    2.511502652185666e-08,
)
_FORMATS = {
    32: Format(
        bits=32,
        mantissa=23,
        bias=127,
        ln2_high=float.fromhex("0x1.62E4p-1"),
        ln2_low=float.fromhex("0x1.7F7D1CF79ABCAp-20"),
        exp_low=-104.0,
        exp_high=89.0,
        exp=(
            0.5000000104623578,
            0.16666519606316677,
            0.04166618310128764,
            0.008368797810392115,
            0.0013951725815731697,
        ),
        whole_exp=(
            1.0,
            0.999999706297,
            0.499991478258,
            0.166676381748,
            0.0418981610835,
            0.00829026913338,
        ),
        log=(0.6666677766489831, 0.3997739983323885, 0.2987508359327529),
    ),
    64: Format(
        bits=64,
        mantissa=52,
        bias=1023,
        ln2_high=float.fromhex("0x1.62E42FEFAp-1"),
        ln2_low=float.fromhex("0x1.CF79ABC9E3B39803p-40"),
        exp_low=-746.0,
        exp_high=710.0,
        exp=_EXP64,
        whole_exp=(1.0, 1.0, *_EXP64),
        log=(
            0.6666666666666734,
            0.3999999999941302,
            0.28571428742899624,
            0.22222198508500132,
            0.1818356824325383,
            0.15313937712719566,
            0.14797191370347937,
        ),
    ),
}

# erf(x) / x = P(x^2) / Q(x^2) for |x| <= 3.92, where float32's erf becomes 1.
_ERF32_TOP = 3.92
_ERF32_P = (
    1.1283791456018668,
    0.19044709211271446,
    0.052753982127434346,
    0.00376730303423208,
    0.000284911703537402,
    2.049673392577655e-06,
)
_ERF32_Q = (
    1.0,
    0.5021120729825171,
    0.11412579990575837,
    0.01497262981406227,
    0.0011629258708294838,
    3.8088910365935304e-05,
)
# erf(x) / x in x^2 for |x| <= 1, and (1 + 2x) e^(x^2) erfc(x) in t = (x - 4) / (x + 4) for
# 1 <= x <= 6 (after Johnson's Faddeeva package: a variable in which it is nearly flat).
_ERF64_TOP = 6.0
_ERF64_SMALL = (
    1.1283791670955126,
    -0.3761263890318352,
    0.11283791670944197,
    -0.026866170643114338,
    0.005223977606146569,
    -0.0008548325930824196,
    0.00012055293625701023,
    -1.492471329194409e-05,
    1.6447144267040486e-06,
    -1.620641369923637e-07,
    1.3711421149153012e-08,
    -7.780302251518506e-10,
)
_ERFC64 = (
    1.2329951186255526,
    -0.13962111684056253,
    0.015379652102619318,
    0.06809705425470046,
    -0.1010390660361597,
    0.09373283499770714,
    -0.06633036582633843,
    0.03716751553517378,
    -0.016197733495760144,
    0.00503197163176612,
    -0.0007577809323810359,
    -0.00019930657110152537,
    0.00015057171040006127,
    -2.4066527595235298e-05,
    -9.857160109493959e-06,
    8.081869221645786e-06,
    2.4288962355071717e-06,
)


def exp(x: Any) -> Any:
    """e^x within 2 ulp."""
    return exp_of_sum(x)


def exp_of_sum(x: Any, low: Any = None) -> Any:
    """e^(x + low) within 2 ulp, where `low` is what rounding has taken from x."""
    form = form_of(x)
    x = select(compare("less", x, form.exp_low), form.exp_low, x)
    x = select(compare("greater", x, form.exp_high), form.exp_high, x)
    return _exp_of_clamped(x, form, low)


def _exp_of_clamped(x: Any, form: Format, low: Any = None) -> Any:
    n, tail = split_exp(x, form, 2 * form.bias)
    if low is not None:
        tail = fma(low, tail + 1.0, tail)
    # Two factors of about 2^(n/2): both are normal where e^x itself overflows or is denormal.
    half = n >> 1
    power = power_of_biased(half, form)
    return fma(tail, power, power) * power_of_biased(n - half, form)


def exp_falling(x: Any) -> Any:
    """e^x for x <= 0 within 2 ulp, and 0 or a denormal where it is no normal number.

    Softmax needs no more.
    """
    form = form_of(x)
    # From here on 2^n is given as zero.
    lowest = -form.bias * math.log(2.0)
    n, tail = split_exp(select(compare("less", x, lowest), lowest, x), form, form.bias)
    power = power_of_biased(n, form)
    return fma(tail, power, power)


def expm1(x: Any) -> Any:
    """e^x - 1 within 2 ulp, also where it is near 0."""
    form = form_of(x)
    inside = select(compare("less", x, form.exp_low), form.exp_low, x)
    inside = select(compare("greater", inside, form.exp_high), form.exp_high, inside)
    n, tail = split_exp(inside, form, 2 * form.bias)
    # As e^x, in two factors; what is taken off is the second one's reciprocal.
    half = n >> 1
    power, rest = power_of_biased(half, form), n - half
    less = fma(tail, power, power - power_of_biased(-rest + 2 * form.bias, form))
    return emit.copy_sign(less * power_of_biased(rest, form), x)


def log(x: Any) -> Any:
    """The natural logarithm within 1 ulp; -inf at 0, NaN below."""
    return _log_or_none(x, x, _log_of_positive(x))


def log1p(x: Any) -> Any:
    """log(1 + x) within 1 ulp, also where it is near 0; -inf at -1, NaN below."""
    return emit.copy_sign(_log_or_none(x, x + 1.0, _log1p(x)), x)


def softplus(x: Any) -> Any:
    """log(1 + e^x) within 2 ulp."""
    # The exponent is never positive, so that nothing overflows.
    form = form_of(x)
    low = -emit.absolute(x)
    e = _exp_of_clamped(select(compare("less", low, form.exp_low), form.exp_low, low), form)
    return select(compare("greater", x, 0.0), x, 0.0) + _log1p(e)


def _log1p(x: Any) -> Any:
    """log(1 + x) for finite x above -1; of either zero it is 0."""
    one_and = x + 1.0
    # What rounding the sum has taken from x.
    return _log_of_positive(one_and, (x - (one_and - 1.0)) / one_and)


def _log_of_positive(x: Any, more: Any = None) -> Any:
    """log(x) + more, for positive finite x."""
    form = form_of(x)
    e, m = split_log(x, form)
    f = m - 1.0
    s = f / (m + 1.0)
    z = s * s
    # log(1+f) = f - f^2/2 + s (f^2/2 + s^2 R): the leading terms are exact (fdlibm's arrangement).
    half_square = f * f * 0.5
    low = fma(s, fma(z, polynomial(z, form.log), half_square), e * form.ln2_low)
    low = low if more is None else low + more
    return fma(e, form.ln2_high, f - (half_square - low))


def _log_or_none(x: Any, argument: Any, result: Any) -> Any:
    """The logarithm of what may be no positive finite `argument`, of a function of x."""
    result = select(compare("less", x, math.inf), result, x)
    result = select(compare("equal", argument, 0.0), -math.inf, result)
    return select(compare("less", argument, 0.0), math.nan, result)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent within 3 ulp."""
    form = form_of(x)
    top = float(2 * form.mantissa)
    twice = emit.absolute(x) * 2.0
    n, tail = split_exp(select(compare("greater", twice, top), top, twice), form, form.bias)
    # With m = e^|2x| - 1, tanh |x| = m / (m + 2).
    power = power_of_biased(n, form)
    m = fma(power, tail, power - 1.0)
    return emit.copy_sign(m / (m + 2.0), x)


def erf(x: Any) -> Any:
    """The error function within 6 ulp in float32 and 2 ulp in float64."""
    if form_of(x).bits == 32:
        a = select(compare("greater", x, _ERF32_TOP), _ERF32_TOP, x)
        a = select(compare("less", a, -_ERF32_TOP), -_ERF32_TOP, a)
        z = a * a
        ratio = a * polynomial(z, _ERF32_P) / polynomial(z, _ERF32_Q)
        ratio = select(compare("greater", ratio, 1.0), 1.0, ratio)
        return select(compare("less", ratio, -1.0), -1.0, ratio)
    small = x * polynomial(x * x, _ERF64_SMALL)
    a = emit.absolute(x)
    b = select(compare("greater", a, _ERF64_TOP), _ERF64_TOP, a)
    scaled = polynomial((b - 4.0) / (b + 4.0), _ERFC64) / fma(b, 2.0, 1.0)
    large = fma(scaled, -exp(-(b * b)), 1.0)
    return select(compare("less", a, 1.0), small, emit.copy_sign(large, x))


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x) within 3 ulp."""
    # The exponent is never positive, so that the left tail keeps its digits.
    form = form_of(x)
    low = -emit.absolute(x)
    e = _exp_of_clamped(select(compare("less", low, form.exp_low), form.exp_low, low), form)
    return select(compare("greater_equal", x, 0.0), 1.0, e) / (e + 1.0)


def silu(x: Any) -> Any:
    """The product x sigmoid(x) within 4 ulp where e^x is a normal number."""
    return x / one_and_falling(x)


def one_and_falling(x: Any) -> Any:
    """1 + e^-x, and infinity from where e^x is no normal number any more."""
    form = form_of(x)
    lowest, x = (1 - form.bias) * math.log(2.0), -x
    x = select(compare("less", x, lowest), lowest, x)
    x = select(compare("greater", x, form.exp_high), form.exp_high, x)
    n, r = reduced(x, form, form.bias)
    # At the end of the range the power is infinite: e^r is positive, e^r - 1 may not be.
    return fma(polynomial(r, form.whole_exp), power_of_biased(n, form), 1.0)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x) within 2 ulp."""
    return emit.like(x, 1.0) / sqrt(x)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """`c[0] + c[1] x + c[2] x^2 + ...` by Horner's rule, with a fused multiply-add each."""
    total = emit.like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def form_of(x: Any) -> Format:
    """The format of the elements of `x`."""
    return _FORMATS[emit.bits_of(emit.element_of(x))]


def split_exp(x: Any, form: Format, bias: int) -> tuple[Any, Any]:
    """Integers n + bias, and e^r - 1, with x = n ln(2) + r and |r| <= ln(2)/2.

    The integers are as those of `reduced`.
    """
    n, r = reduced(x, form, bias)
    return n, fma(r * r, polynomial(r, form.exp), r)


def reduced(x: Any, form: Format, bias: int) -> tuple[Any, Any]:
    """Integers n + bias, and r, with x = n ln(2) + r and |r| <= ln(2)/2.

    The integers are the low bits of words, whose other bits are those of the number that rounds.
    """
    # Adding 1.5 2^mantissa rounds to an integer, which then lies in the low bits.
    shifter = 1.5 * 2.0**form.mantissa + bias
    shifted = fma(x, 1.0 / math.log(2.0), shifter)
    n = bitcast(shifted, emit.integer(form.bits))
    whole = shifted - shifter
    return n, fma(whole, -form.ln2_low, fma(whole, -form.ln2_high, x))


def split_log(x: Any, form: Format) -> tuple[Any, Any]:
    """e, a whole number, and m from sqrt(1/2) to sqrt(2) with x = m 2^e, for positive finite x."""
    denormal = compare("less", x, 2.0 ** (1 - form.bias))
    normal = select(denormal, x * 2.0**form.mantissa, x)
    # e is kept positive by an offset until it is a float.
    cut = float_bits(math.sqrt(0.5), form)
    offset = 2 * form.bias + 2
    from_cut = bitcast(normal, emit.integer(form.bits)) - cut
    m = bitcast((from_cut & ((1 << form.mantissa) - 1)) + cut, emit.element_of(x))
    positive = (from_cut + (offset << form.mantissa)) >> form.mantissa
    counted = bitcast(positive | float_bits(2.0**form.mantissa, form), emit.element_of(x))
    e = counted - select(denormal, emit.like(x, offset + form.mantissa), float(offset))
    return e - 2.0**form.mantissa, m


def power_of_two(n: Any, form: Format) -> Any:
    """2^n for the integers n whose power is a normal number."""
    return power_of_biased(n + form.bias, form)


def power_of_biased(n: Any, form: Format) -> Any:
    """2^(n - bias), a normal number, by the low bits of the integers n."""
    return bitcast(n << form.mantissa, emit.memory_type(f"float{form.bits}"))


def float_bits(number: float, form: Format) -> int:
    """The bits of `number` in a format."""
    layout = {32: ("<f", "<I"), 64: ("<d", "<Q")}[form.bits]
    return int(struct.unpack(layout[1], struct.pack(layout[0], number))[0])
