"""Rotary positions (arXiv:2104.09864): how far each pair of a head turns from token to token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.models.config_checks import check_flag, check_positive
from heddle.runtime.errors import GraphError

Frequencies = NDArray[np.float64]

PART, ORIGINAL = "partial_rotary_factor", "original_max_position_embeddings"
"""Keys for the share of a head that is turned, and for the positions of the first training."""


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
class Rope:
    """How queries and keys of a layer are turned.

    Attributes:
        theta: The base of the frequencies.
        size: How many elements of a head are turned, its first ones.
        scaling: How positions are stretched.
    """

    theta: float
    size: int
    scaling: Scaling = Plain()

    def frequencies(self) -> NDArray[np.float32]:
        """Radians of rotation for each position, float32 [size / 2]."""
        plain = self.theta ** -(np.arange(0, self.size, 2) / self.size)
        return self.scaling.stretched(plain, self.theta).astype(np.float32)


def read(values: Mapping[str, Any], kind: str, head: int, longest: int, plain: bool) -> Rope:
    """The positions of layers of a `kind`, from the keys and values of a `config.json`.

    `rope_parameters` is the newer place of all that says something about them, and may have an
    object for each kind of layers.

    Args:
        values: The keys and values.
        kind: `"full_attention"` or `"sliding_attention"`.
        head: The size of a head.
        longest: The longest sequence that the model is made for; LongRoPE depends on it.
        plain: Whether the older keys for scaling are of other layers than these.

    Raises:
        GraphError: A value is missing or no such value, or the scaling is not known.
    """
    newer = values.get("rope_parameters") or {}
    older = values.get("rope_scaling") or {}
    for name, value in (("rope_parameters", newer), ("rope_scaling", older)):
        if not isinstance(value, dict):
            raise GraphError(f"{name}: wanted a JSON object, got {value!r}")
    if isinstance(newer.get(kind), dict):
        newer = newer[kind]
    rows = newer if plain else older or newer
    local = values.get("rope_local_base_freq") if plain else None
    given = (rows.get("rope_theta"), newer.get("rope_theta"), local, values.get("rope_theta"))
    theta = next((value for value in given if value is not None), 10000.0)
    check_positive("rope_theta", theta, 1)
    share = next((of[PART] for of in (rows, newer, values) if of.get(PART)), 1.0)
    check_positive(PART, share)
    size = int(head * min(share, 2))
    if size % 2 or not 0 < size <= head:
        raise GraphError(f"{PART}: wanted an even share of heads of {head}, got {share}")
    return Rope(float(theta), size, _scaling(rows, values, size // 2, longest))


def _scaling(
    rows: Mapping[str, Any], values: Mapping[str, Any], pairs: int, longest: int
) -> Scaling:
    kind = rows.get("rope_type", rows.get("type", "default"))
    if kind in ("default", "dynamic"):
        return Plain()  # a dynamic one begins where the model has no more positions
    trained = (values.get(ORIGINAL), rows.get(ORIGINAL), values["max_position_embeddings"])
    original = next(value for value in trained if value)
    check_positive(ORIGINAL, original, 1)
    found = _Rows(kind, {**rows, ORIGINAL: original})
    if kind == "linear":
        return Linear(found.number("factor"))
    if kind == "llama3":
        low, high = found.number("low_freq_factor"), found.number("high_freq_factor")
        if not low < high:
            raise GraphError(
                f"rope_scaling llama3: wanted a high_freq_factor above low_freq_factor, got "
                f"{high} and {low}"
            )
        return Llama3(found.number("factor"), low, high, original)
    if kind == "yarn" and "short_factor" not in rows:
        factor = found.number("factor")
        wide, narrow = (
            found.number(name) if rows.get(name) else 0.0 for name in ("mscale", "mscale_all_dim")
        )
        ratio = _mscale(factor, wide) / _mscale(factor, narrow) if wide and narrow else None
        truncated = rows.get("truncate", True)
        check_flag("rope_scaling yarn: truncate", truncated)
        return Yarn(
            factor,
            original,
            found.number("beta_fast", 32.0),
            found.number("beta_slow", 1.0),
            truncated,
            found.number("attention_factor", ratio or _mscale(factor, 1.0)),
        )
    if kind in ("longrope", "su", "yarn"):
        factor = found.number("factor", values["max_position_embeddings"] / original)
        spread = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        name = "long_factor" if longest > original else "short_factor"
        return LongRope(found.numbers(name, pairs), found.number("attention_factor", spread))
    known = "default, linear, llama3, yarn, longrope or dynamic"
    raise GraphError(f"rope_scaling: wanted {known}, got {kind!r}")


def _mscale(factor: float, scale: float) -> float:
    """What YaRN multiplies queries and keys by (arXiv:2309.00071, equation 22)."""
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


@dataclass(frozen=True)
class _Rows:
    """The values of a scaling of some kind."""

    kind: str
    rows: Mapping[str, Any]

    def number(self, name: str, default: float | None = None) -> float:
        """The number above 0 called `name`."""
        value = self.rows.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise GraphError(f"rope_scaling {self.kind}: wanted {name}, got none")
        check_positive(f"rope_scaling {self.kind}: {name}", value)
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """`count` numbers above 0."""
        values = self.rows.get(name)
        if not isinstance(values, list) or len(values) != count:
            got = f"{len(values)}" if isinstance(values, list) else repr(values)
            raise GraphError(f"rope_scaling {self.kind}: {name}: wanted {count} numbers, got {got}")
        for value in values:
            check_positive(f"rope_scaling {self.kind}: {name}", value)
        return tuple(map(float, values))
