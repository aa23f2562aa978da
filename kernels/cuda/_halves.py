"""How integers become floats of 16 bits, exactly, by a mask and one multiplication."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Half:
    """A float of 16 bits: bits of its fraction, bias of its exponent, and where weights go.

    The bits of an integer below 256, read as such a float, are the integer times the least
    subnormal number, 2**(1 - bias - fraction). Weights become q * 2**place, which is exact.
    """

    fraction: int
    bias: int
    place: int

    def power(self, exponent: int) -> int:
        """The bits of 2**exponent, twice in a word."""
        return ((exponent + self.bias) << self.fraction) * 0x10001

    def lift(self, shift: int) -> int:
        """What brings integers that lie `shift` bits too high to their place."""
        return self.power(self.place - (1 - self.bias - self.fraction) - shift)

    def lower(self, offset: int) -> int:
        """The bits of -(2**offset) in the place of weights, twice in a word."""
        return self.power(self.place + offset) | 0x80008000


HALVES = {"f16": Half(10, 15, -10), "bf16": Half(7, 127, -13)}
"""By PTX's type."""
