"""Multiply-adds of float64, beside exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from emulator.exact import fma64


def scaled(size: int, least: int, most: int) -> np.ndarray:
    """Normal numbers by powers of two."""
    rng = np.random.default_rng(abs(least))
    return rng.standard_normal(size) * 2.0 ** rng.integers(least, most, size)


A, B = scaled(3000, -300, 300), scaled(3000, -90, 90)
NEAR = np.random.default_rng(1).integers(-9, 9, 3000) * 2.0**-52
ADDED = {
    "anything": scaled(3000, -301, 301),
    "what cancels": -(A * B),
    "nearly that": -(A * B) * (1 + NEAR),
    "nothing": np.zeros(3000),
}


@pytest.mark.parametrize("what", ADDED)
def test_rounded_once(what):
    rows = zip(A, B, ADDED[what], strict=True)
    wanted = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in rows]
    assert fma64(A, B, ADDED[what]).tolist() == wanted


@pytest.mark.parametrize("c", [0.0, -1.5, np.inf])
@pytest.mark.parametrize("b", [0.0, 1e300, np.inf, np.nan])
def test_what_is_no_number_or_beyond(b, c):
    found = fma64(np.array([1e10, -0.0]), np.array([b, b]), np.array([c, c]))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.array([1e10, -0.0]) * b + c)
