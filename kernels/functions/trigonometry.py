"""sin and cos for every float32 and float64, without tables in memory and without calls.

x is reduced to r = x - n pi/2 with |r| <= pi/4: by three parts of pi/2 while n is small (Cody and
Waite, "Software Manual for the Elementary Functions", 1980), else with as many bits of 2/pi as the
exponent of x calls for (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983).
The long way is taken where any lane needs it. Coefficients are minimax fits of our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from heddle.kernels import crosslane, emit
from heddle.kernels.emit import bitcast, compare, fma, select
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.mlir import dialect

arith = dialect("arith")


class _Format(NamedTuple):
    """`half_pi` in three parts, the greatest n that they serve, words of 2/pi for the long way.

    `sin` is (sin r - r) / r^3 and `cos` is (cos r - 1 + r^2 / 2) / r^4, both in r^2.
    """

    half_pi: tuple[float, ...]
    most: int
    words: int
    sin: tuple[float, ...]
    cos: tuple[float, ...]


_FORMATS = {
    32: _Format(
        half_pi=tuple(map(float.fromhex, ("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50"))),
        most=2**16,
        words=3,
        sin=(-0.16666664650292082, 0.008332745936380422, -0.00019587387068464458),
        cos=(0.04166666464745738, -0.00138883006969039, 2.454743721019318e-05),
    ),
    64: _Format(
        half_pi=tuple(
            map(
                float.fromhex,
                ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110"),
            )
        ),
        most=2**22,
        words=6,
        sin=(
            -0.16666666666666666,
            0.008333333333330925,
            -0.00019841269836722513,
            2.755731608385524e-06,
            -2.5051127950193333e-08,
            1.591784887081778e-10,
        ),
        cos=(
            0.041666666666666664,
            -0.0013888888888887382,
            2.4801587298742897e-05,
            -2.7557317259956607e-07,
            2.087614381867608e-09,
            -1.1382456132668527e-11,
        ),
    ),
}

_WORD = 32


def _two_over_pi(words: int) -> list[int]:
    """A word of zeros, then the first bits of 2/pi, by Machin's formula in integers."""
    bits = _WORD * words
    one = 1 << (bits + 64)

    def arctan_of_inverse(number: int) -> int:
        power = total = one // number
        for odd in range(3, 2 * one.bit_length(), 2):
            power //= -number * number
            total += power // odd
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    digits = (one << (bits + 1)) // pi
    return [digits >> (bits - _WORD * place) & (2**_WORD - 1) for place in range(words + 1)]


def sin(x: Any) -> Any:
    """The sine within 2 ulp in float32 and 3 ulp in float64; NaN for infinities."""
    # r^3 loses the sign of -0.
    return select(compare("equal", x, 0.0), x, _wave(x, 0))


def cos(x: Any) -> Any:
    """The cosine within 2 ulp in float32 and 3 ulp in float64; NaN for infinities."""
    return _wave(x, 1)


def _wave(x: Any, quarter: int) -> Any:
    """The sine of x and `quarter` right angles."""
    form, bits = _FORMATS[_bits(x)], _bits(x)
    r, n = _reduced(x)
    z = r * r
    sine = fma(r * z, vm.polynomial(z, form.sin), r)
    cosine = fma(z * z, vm.polynomial(z, form.cos), fma(z, -0.5, 1.0))
    n = n + quarter
    value = select(compare("not_equal", n & 1, 0), cosine, sine)
    value = bitcast(
        bitcast(value, emit.integer(bits)) ^ ((n & 2) << (bits - 2)), emit.element_of(x)
    )
    # The bits of an infinity are no number's.
    return select(compare("less", emit.absolute(x), math.inf), value, x - x)


def _reduced(x: Any) -> tuple[Any, Any]:
    """`x - n pi/2`, and n as an integer of which the two low bits count."""
    form, bits = _FORMATS[_bits(x)], _bits(x)
    shifter = 1.5 * 2.0 ** vm.form_of(x).mantissa

    def short() -> list[Any]:
        shifted = fma(x, 2.0 / math.pi, shifter)
        whole, r = shifted - shifter, x
        for part in form.half_pi:
            r = fma(whole, -part, r)
        return [r, bitcast(shifted, emit.integer(bits))]

    size = emit.absolute(x)
    far = compare("greater", size, (form.most - 0.5) * math.pi / 2)
    far = far & compare("less", size, math.inf)

    def long() -> list[Any]:
        pairs = zip(_long(x), short(), strict=True)
        return [select(far, there, here) for there, here in pairs]

    types = [x.type, emit.widen(emit.integer(bits), emit.lanes_of(x))]
    r, n = emit.either(crosslane.across(far, lambda a, b: a | b), types, long, short)
    return r, n


def _long(x: Any) -> list[Any]:
    """The reduction of |x| above 1 by a window of 2/pi, with the sign of x put back.

    With x = m 2^e, bits of 2/pi whose product with m 2^e is a multiple of 4 do not count. The
    window begins after them, so that its product's two highest bits are n modulo 4.
    """
    form, layout = _FORMATS[_bits(x)], vm.form_of(x)
    bits, wide = layout.bits, emit.integer(64)
    pattern = bitcast(emit.absolute(x), emit.integer(bits))
    mantissa = (pattern & ((1 << layout.mantissa) - 1)) | (1 << layout.mantissa)
    first = _WORD - 2 - layout.bias - layout.mantissa
    place = _widened((pattern >> layout.mantissa) + first, bits)
    window = _window(place, form.words, 2 * layout.bias + first)
    digits = _product(_widened(mantissa, bits), window)
    value = (digits[0] << _WORD) | digits[1]
    n = (value + (1 << 61)) >> 62
    rest = value - (n << 62)
    kind = emit.widen(emit.memory_type("float64"), emit.lanes_of(x))
    high = arith.sitofp(kind, rest)
    # What the conversion dropped, and the digits below.
    dropped = rest - arith.fptosi(emit.widen(wide, emit.lanes_of(x)), high)
    low = arith.sitofp(kind, dropped)
    if len(digits) > 3:
        below = (digits[2] << _WORD) | digits[3]
        low = fma(arith.uitofp(kind, below), 2.0**-64, low)
    r = (high + low) * (math.pi / 2 * 2.0**-62)
    negative = compare("less", x, 0.0)
    r = select(negative, -r, r)
    n = select(negative, -n, n)
    if bits == 64:
        return [r, n]
    narrow = emit.widen(emit.integer(32), emit.lanes_of(x))
    return [arith.truncf(x.type, r), arith.trunci(narrow, n)]


def _window(place: Any, words: int, most: int) -> list[Any]:
    """`words` words of 2/pi from bit `place` on, which is at most `most`."""
    index, shift = place >> 5, place & 31
    count = most // _WORD + words + 1
    found: list[Any] = [emit.like(place, word) for word in _two_over_pi(count)]
    step = 1 << ((most // _WORD).bit_length() - 1)
    # A shift by whole words, one bit of the index after the other.
    while step:
        skips = compare("not_equal", index & step, 0)
        found = [
            select(skips, found[min(i + step, len(found) - 1)], word)
            for i, word in enumerate(found[: words + step])
        ]
        step //= 2
    return [
        ((high << shift) | (low >> (emit.like(shift, _WORD) - shift))) & (2**_WORD - 1)
        for high, low in pairwise(found)
    ]


def _product(mantissa: Any, window: Sequence[Any]) -> list[Any]:
    """The words of `mantissa * window`, as long as the window."""
    low, high = mantissa & (2**_WORD - 1), mantissa >> _WORD
    digits: list[Any] = []
    carry = emit.like(mantissa, 0)
    parts = [carry] * 2
    for word in reversed(window):
        first, second = low * word, high * word
        total = carry + (first & (2**_WORD - 1)) + parts[0]
        digits.insert(0, total & (2**_WORD - 1))
        # Of the next place: the high word of this product, and the low one of the high half's.
        parts = [(first >> _WORD) + (second & (2**_WORD - 1)) + parts[1], second >> _WORD]
        carry = total >> _WORD
    return digits


def _bits(x: Any) -> int:
    return emit.bits_of(emit.element_of(x))


def _widened(value: Any, bits: int) -> Any:
    if bits == 64:
        return value
    return arith.extui(emit.widen(emit.integer(64), emit.lanes_of(value)), value)
