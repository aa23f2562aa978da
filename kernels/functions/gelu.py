"""GELU, its tanh form, and both for results of 16 bits.

Either form is max(x, 0) - |x| S(|x|), where S falls from 1/2 to nothing. In float32, S is a power
of a polynomial: its fourth or eighth root is so nearly straight that few terms give S to the last
bits of 1/2, and at the end of the range the power makes the root's error vanish. No quotient and no
exponential: 13 or 14 multiplications. Coefficients are weighted minimax fits of our own.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from heddle.kernels import emit
from heddle.kernels.emit import compare, fma, select
from heddle.kernels.functions.vector_math import erf, form_of, one_and_falling, polynomial


class _Root(NamedTuple):
    """S(a) = P(a)^(2^squarings) for 0 <= a <= top, where S is below 1e-29 and stays there."""

    top: float
    squarings: int
    coefficients: tuple[float, ...]


_EXACT = _Root(
    5.614875793457031,
    2,
    (
        0.8408963967,
        -0.1677332475,
        -0.05020230112,
        0.004660869893,
        0.003781877154,
        -2.604806637e-05,
        -0.000310743073,
        5.902608178e-05,
        -3.444705166e-06,
    ),
)
_TANH = _Root(
    5.53320837020874,
    3,
    (
        0.9170040468,
        -0.09145691086,
        -0.03194192044,
        -0.000518501537,
        0.001366382635,
        0.0002608562867,
        -0.0002343338179,
        5.207295508e-05,
        -4.009246247e-06,
    ),
)

_NARROW = _Root(
    4.480000019073486,
    2,
    (
        0.8408951662,
        -0.1676072786,
        -0.0507566859,
        0.005194922363,
        0.004054014725,
        -0.000649134737,
    ),
)
_NARROW_TANH = _Root(
    4.339999198913574,
    2,
    (
        0.8408883408,
        -0.1674814142,
        -0.05135203739,
        0.006365901415,
        0.003447035901,
        -0.0005780839508,
    ),
)


def gelu(x: Any) -> Any:
    """The product x Phi(x); its error is below 4 eps |x|."""
    if form_of(x).bits == 32:
        return _by_root(x, _EXACT)
    x = _finite_below(x)
    half = x * 0.5
    return fma(half, erf(x * math.sqrt(0.5)), half)


def narrow_gelu(x: Any) -> Any:
    """GELU of float32 that is about to be rounded to 16 bits; its error is below 2^-15 |x|.

    That is an eighth of what rounding x itself to float16 would lose, a 64th of bfloat16's.
    """
    return _by_root(x, _NARROW)


def narrow_gelu_tanh(x: Any) -> Any:
    """The tanh form, as `narrow_gelu`."""
    return _by_root(x, _NARROW_TANH)


def gelu_tanh(x: Any) -> Any:
    """GELU's tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3).

    Its error is below 4 eps |x|.
    """
    if form_of(x).bits == 32:
        return _by_root(x, _TANH)
    # x sigmoid(2u) is the same.
    x = _finite_below(x)
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x / one_and_falling(x * fma(x * x, 0.044715 * scale, scale))


def _finite_below(x: Any) -> Any:
    """The least float64 for -inf, which times zero is NaN."""
    return emit.maximum(emit.like(x, -sys.float_info.max), x)


def _by_root(x: Any, root: _Root) -> Any:
    a = emit.absolute(x)
    a = select(compare("greater", a, root.top), root.top, a)
    falling = polynomial(a, root.coefficients)
    for _ in range(root.squarings):
        falling = falling * falling
    return fma(-a, falling, emit.maximum(x, 0.0))
