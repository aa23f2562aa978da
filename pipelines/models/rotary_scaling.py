"""How rotary positions are stretched for longer texts than a model was first trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Frequencies = NDArray[np.float64]


class Scaling(Protocol):
    """How positions are stretched for longer sequences than a model was first trained on."""

    @property
    def magnitude(self) -> float:
        """What queries and keys are multiplied by."""

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """The frequencies instead of those of the base `theta`."""


@dataclass(frozen=True)
class Plain:
    """No scaling."""

    magnitude = 1.0

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """The same."""
        return frequencies


PLAIN = Plain()


@dataclass(frozen=True)
class Linear:
    """All frequencies are divided by `factor` (arXiv:2306.15595)."""

    factor: float
    magnitude = 1.0

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """The quotients."""
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3:
    """Of Llama 3.1 (its reference code, arXiv:2407.21783).

    Frequencies whose wavelength is above `original / low` are divided by `factor`, those below
    `original / high` stay, and between them one goes smoothly into the other.
    """

    factor: float
    low: float
    high: float
    original: float
    magnitude = 1.0

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """Each by its wavelength."""
        turns = self.original * frequencies / (2 * math.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (share + (1 - share) / self.factor)


@dataclass(frozen=True)
class Yarn:
    """YaRN (arXiv:2309.00071).

    Pairs that turn `fast` times and more within `original` positions keep their frequency, those
    that turn `slow` times and less are divided by `factor`, between them by a ramp over their
    numbers, whose ends are whole ones where `truncated`.
    """

    factor: float
    original: float
    fast: float
    slow: float
    truncated: bool
    magnitude: float

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """Each by its number."""
        count = len(frequencies)

        def number(turns: float) -> float:
            """Of the pair that turns so many times."""
            return count * math.log(self.original / (turns * 2 * math.pi)) / math.log(theta)

        first, last = number(self.fast), number(self.slow)
        if self.truncated:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * count - 1)
        width = last - first or 0.001
        share = np.clip((np.arange(count) - first) / width, 0, 1)
        stretched: Frequencies = frequencies * (1 - share + share / self.factor)
        return stretched


@dataclass(frozen=True)
class LongRope:
    """LongRoPE (arXiv:2402.13753): each frequency is divided by a factor of its own."""

    factors: tuple[float, ...]
    magnitude: float

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """The quotients."""
        stretched: Frequencies = frequencies / np.array(self.factors)
        return stretched


@dataclass(frozen=True)
class Ntk:
    """The base is `alpha ** (d / (d - 2))` times as large, d twice the number of pairs.

    So the last pair turns `alpha` times as slowly, and the first as ever (NTK-aware scaling, as
    Hunyuan's reference code has it).
    """

    alpha: float
    magnitude = 1.0

    def stretched(self, frequencies: Frequencies, theta: float) -> Frequencies:
        """Each by its number."""
        shares = np.linspace(0, 1, len(frequencies))
        stretched: Frequencies = frequencies * self.alpha**-shares
        return stretched
