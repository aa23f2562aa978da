"""x to the power of y for floats: e^(y log x), with the logarithm in two numbers.

The exponent of the result multiplies the error of the logarithm, so that one number does not hold
it (Dekker, "A floating-point technique for extending the available precision", 1971).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from heddle.kernels import emit
from heddle.kernels.emit import compare, fma, select
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.division import floor


class _Format(NamedTuple):
    """2/3 in two parts, and (log((1+s)/(1-s)) / s - 2 - 2 s^2 / 3) / s^4 in s^2."""

    third: tuple[float, float]
    rest: tuple[float, ...]


_FORMATS = {
    32: _Format(
        third=(0.6666666865348816, float.fromhex("-0x1.555556p-26")),
        rest=(0.3999999990458559, 0.28571532106035885, 0.22204729914012325, 0.19121329961085828),
    ),
    64: _Format(
        third=(0.6666666666666666, float.fromhex("0x1.5555555555555p-55")),
        rest=(
            0.4,
            0.28571428571429375,
            0.2222222222165228,
            0.18181818336194255,
            0.15384594878036528,
            0.13334809247949173,
            0.1170611514702209,
            0.11724439777590295,
        ),
    ),
}


def power(x: Any, y: Any) -> Any:
    """`x^y` within 2 ulp, with the special cases of C (ISO/IEC 9899, F.10.4.4)."""
    size = emit.absolute(x)
    high, low = _log(size)
    product = y * high
    rest = fma(y, high, -product) + y * low
    # Where this is not small the product is far beyond the exponents, or infinite.
    rest = select(compare("less", emit.absolute(rest), 0.001), rest, 0.0)
    result = select(compare("equal", size, 1.0), 1.0, vm.exp_of_sum(product, rest))
    half = y * 0.5
    odd = compare("equal", floor(y), y) & compare("not_equal", floor(half), half)
    # An infinite base has every power.
    negative = compare("less", x, 0.0) & compare("less", size, math.inf)
    result = select(negative & compare("not_equal", floor(y), y), math.nan, result)
    result = select(odd, emit.copy_sign(result, x), result)
    one = compare("equal", y, 0.0) | compare("equal", x, 1.0)
    return select(one, 1.0, result)


def _log(x: Any) -> tuple[Any, Any]:
    """The logarithm of x, which is not negative, as a sum."""
    form = vm.form_of(x)
    own = _FORMATS[form.bits]
    e, m = vm.split_log(x, form)
    f = m - 1.0
    # s = f / (m + 1) and what it misses; m + 1 is exactly `bottom` and what it misses.
    bottom = m + 1.0
    missing = m - (bottom - 1.0)
    s = f / bottom
    s_low = fma(-s, missing, fma(-s, bottom, f)) / bottom
    z = s * s
    z_low = fma(s, s, -z) + s * s_low * 2.0
    # 2/3 + z Q(z), then times z s.
    tail = z * vm.polynomial(z, own.rest)
    r = tail + own.third[0]
    r_low = tail - (r - own.third[0]) + own.third[1]
    zr = z * r
    zr_low = fma(z, r, -zr) + z * r_low + z_low * r
    cube = zr * s
    cube_low = fma(zr, s, -cube) + zr * s_low + zr_low * s
    high, low = _sum(s * 2.0, cube)
    low = low + (cube_low + s_low * 2.0)
    exponent = e * form.ln2_high
    total, error = _sum(exponent, high)
    low = error + (low + e * form.ln2_low)
    high, low = _fast_sum(total, low)
    usual = compare("greater", x, 0.0) & compare("less", x, math.inf)
    limit = select(compare("equal", x, 0.0), -math.inf, x)
    return select(usual, high, limit), select(usual, low, 0.0)


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """`a + b` and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The same where |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)
