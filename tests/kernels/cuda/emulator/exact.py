"""Multiply-adds of float64 that are rounded once, which NumPy does not have."""

import numpy as np

SPLIT = 2.0**27 + 1
LEAST, MOST = 2.0**-400, 2.0**400
"""Between such magnitudes nothing that is computed of factors over- or underflows."""


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`a * b + c`; of factors beyond `MOST` or below `LEAST` with the 64 bits of x87.

    By two sums of which what is lost is rounded to odd: Boldo and Melquiond, "Emulation of a FMA
    and correctly rounded sums: proved algorithms using rounding to odd" (IEEE Transactions on
    Computers 57, 2008).
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        wide = (a.astype(np.longdouble) * b.astype(np.longdouble) + c).astype(np.float64)
        high, low = _product(a, b)
        kept, lost = _sum(c, low)
        result, more = _sum(high, kept)
        result = result + _to_odd(lost, more)
        inside = (np.abs(c) < MOST**2) & ((c == 0) | (np.abs(c) > LEAST**2))
        for factor in (a, b):
            inside &= (np.abs(factor) > LEAST) & (np.abs(factor) < MOST)
    return np.where(inside, result, wide)


def _sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum, and what is lost by rounding it (Knuth)."""
    total = a + b
    own = total - a
    return total, (a - (total - own)) + (b - own)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product, and what is lost by rounding it (Dekker)."""
    product = a * b
    (high, low), (other_high, other_low) = _halves(a), _halves(b)
    rest = high * other_high - product + high * other_low + low * other_high
    return product, rest + low * other_low


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers of 26 bits whose sum it is (Veltkamp)."""
    scaled = SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def _to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum, rounded to the neighbour whose last bit is 1 where it is none of both."""
    total, lost = _sum(a, b)
    even = (total.view(np.int64) & 1) == 0
    nearer = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    return np.where(even & (lost != 0), nearer, total)
