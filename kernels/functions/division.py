"""Quotients rounded down, their remainders, and rounding, for integers and floats."""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import convert, crosslane, emit
from heddle.kernels.emit import compare, fma, select
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.mlir import dialect

arith, mlir_math = dialect("arith"), dialect("math")


def floor_divide(dtype: str, x: Any, y: Any) -> Any:
    """The quotient rounded down; of integers 0 where y is 0, of floats as NumPy has it."""
    if not emit.is_float(dtype):
        return _integers(dtype, x, y)[0]
    rest, opposite = _signed_rest(x, y)
    quotient = (x - rest) / y
    quotient = select(opposite, quotient - 1.0, quotient)
    whole = floor(quotient)
    whole = select(compare("greater", quotient - whole, 0.5), whole + 1.0, whole)
    ratio = x / y
    zero = emit.copy_sign(emit.like(x, 0.0), ratio)
    whole = select(compare("equal", quotient, 0.0), zero, whole)
    return select(compare("equal", y, 0.0), ratio, whole)


def mod(dtype: str, x: Any, y: Any) -> Any:
    """What `floor_divide` leaves, with the sign of y; of integers 0 where y is 0. Exact."""
    if not emit.is_float(dtype):
        return _integers(dtype, x, y)[1]
    rest, opposite = _signed_rest(x, y)
    zero = emit.copy_sign(emit.like(x, 0.0), y)
    return select(compare("equal", rest, 0.0), zero, select(opposite, rest + y, rest))


def floor(x: Any) -> Any:
    """`x` rounded down."""
    return mlir_math.floor(x)


def ceil(x: Any) -> Any:
    """`x` rounded up."""
    return -floor(-x)


def round_even(x: Any) -> Any:
    """`x` rounded to the nearest whole number, to the even one of two."""
    return mlir_math.roundeven(x)


def _signed_rest(x: Any, y: Any) -> tuple[Any, Any]:
    """The remainder with the sign of x, and whether y has the other sign and something is left."""
    rest = emit.copy_sign(_rest(emit.absolute(x), emit.absolute(y)), x)
    # Nothing is left of an infinity or beside a zero.
    usable = compare("less", emit.absolute(x), math.inf) & compare("not_equal", y, 0.0)
    rest = select(usable, rest, math.nan)
    opposite = compare("less", rest, 0.0) ^ compare("less", y, 0.0)
    return rest, opposite & compare("not_equal", rest, 0.0)


def _rest(x: Any, y: Any) -> Any:
    """The remainder of x by y, neither negative: long division, 16 or 32 bits of x / y at a time.

    Most quotients are short, so that there is no step but the last.
    """
    form = vm.form_of(x)
    shift = {32: 4, 64: 5}[form.bits]
    word = emit.integer(64)

    def exponent(value: Any) -> Any:
        return emit.bitcast(value, emit.integer(form.bits)) >> form.mantissa

    # The exponent of a denormal y may be that much lower.
    spare = select(compare("equal", exponent(y), 0), emit.like(exponent(y), form.mantissa), 0)
    apart = emit.maximum(exponent(x) - exponent(y) + spare, emit.like(spare, 0))
    proper = compare("less", x, math.inf) & compare("greater", y, 0.0)
    most = crosslane.across(select(proper, apart, 0), emit.maximum) >> shift
    most = arith.extui(word, most) if form.bits < 64 else most

    def further(i: Any, rest: Any) -> list[Any]:
        quarter = (most - i) << (shift - 2)
        quarter = arith.trunci(emit.integer(32), quarter) if form.bits < 64 else quarter
        # Up to the whole range of exponents: no one number holds such a power of two.
        scaled = y
        for _ in range(4):
            scaled = scaled * vm.power_of_two(quarter, form)
        return [_reduced(rest, scaled)]

    (rest,) = emit.carry(0, most, 1, [x], further)
    return _reduced(rest, y)


def _reduced(rest: Any, y: Any) -> Any:
    """`rest` modulo y. The quotient is off by one at most, and what it leaves is exact."""
    left = fma(-floor(rest / y), y, rest)
    left = select(compare("less", left, 0.0), left + y, left)
    return select(compare("less", rest, y), rest, left)


def _integers(dtype: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder; neither 0 nor the overflow of the least one by -1 traps."""
    signed = not emit.is_unsigned(dtype)
    nothing = compare("equal", y, 0)
    minus = compare("equal", y, -1) if signed else None
    divisor = select(nothing if minus is None else nothing | minus, emit.like(y, 1), y)
    if emit.ITEM_SIZE[dtype] == 8:
        quotient = (arith.divsi if signed else arith.divui)(x, divisor)
    else:
        # Vectors divide floats alone. Truncated, the quotient is that of the integers, for a
        # fraction is further from the next integer than it is rounded.
        wide = "float64" if emit.ITEM_SIZE[dtype] == 4 else "float32"
        ratio = convert.cast(x, dtype, wide) / convert.cast(divisor, dtype, wide)
        quotient = convert.cast(ratio, wide, dtype)
    rest = x - quotient * divisor
    if minus is not None:
        below = compare("less", rest, 0) ^ compare("less", divisor, 0)
        below = below & compare("not_equal", rest, 0)
        quotient = select(below, quotient - 1, quotient)
        rest = select(below, rest + divisor, rest)
        quotient = select(minus, -x, quotient)
    return select(nothing, emit.like(x, 0), quotient), select(nothing, emit.like(x, 0), rest)
