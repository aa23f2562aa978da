"""Rotary positions (arXiv:2104.09864): how far each pair of a head turns from token to token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.models.config_checks import check_count, check_flag, check_positive
from heddle.pipelines.models.rotary_scaling import (
    PLAIN,
    Linear,
    Llama3,
    LongRope,
    Ntk,
    Scaling,
    Yarn,
)
from heddle.runtime.errors import GraphError

PART, TURNED = "partial_rotary_factor", "rotary_dim"
"""Keys for the share of a head that is turned, and for how many elements of it are."""

ORIGINAL, GAIN = "original_max_position_embeddings", "llama_4_scaling_beta"
"""Keys for the positions of the first training, and for how queries grow with theirs."""


@dataclass(frozen=True)
class Growth:
    """Queries grow with the logarithm of their position, so that long texts do not blur attention.

    They are multiplied by `1 + gain * log(1 + floor((position + first) / length))`
    (arXiv:2501.19399, as Llama 4 and Ministral 3 have it).
    """

    gain: float
    length: float
    first: int = 0


@dataclass(frozen=True)
class Rope:
    """How queries and keys of a layer are turned.

    Attributes:
        theta: The base of the frequencies.
        size: How many elements of a head are turned, its first ones.
        scaling: How positions are stretched.
        growth: How queries grow with their position; None: not at all.
    """

    theta: float
    size: int
    scaling: Scaling = PLAIN
    growth: Growth | None = None

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
    shares = [of[PART] for of in (rows, newer, values) if of.get(PART) is not None]
    share = next(iter(shares), 1.0)
    check_positive(PART, share)
    part = int(head * min(share, 2))
    size = values.get(TURNED, part)
    check_count(TURNED, size, 0)
    if shares and size != part:
        raise GraphError(f"{TURNED}: wanted {part}, as {PART} says, got {size}")
    if size % 2 or not 0 < size <= head:
        said = values.get(TURNED, share)
        raise GraphError(
            f"{TURNED if TURNED in values else PART}: wanted an even share of heads of {head}, "
            f"got {said}"
        )
    return Rope(
        float(theta), size, _scaling(rows, values, size // 2, longest), _growth(rows, values)
    )


def _growth(rows: Mapping[str, Any], values: Mapping[str, Any]) -> Growth | None:
    gain = rows.get(GAIN)
    if not gain:
        return None
    check_positive(GAIN, gain)
    return Growth(float(gain), float(_original(rows, values)))


def _original(rows: Mapping[str, Any], values: Mapping[str, Any]) -> float:
    """The positions of the first training."""
    trained = (values.get(ORIGINAL), rows.get(ORIGINAL), values["max_position_embeddings"])
    original: float = next(value for value in trained if value)
    check_positive(ORIGINAL, original, 1)
    return original


def _scaling(
    rows: Mapping[str, Any], values: Mapping[str, Any], pairs: int, longest: int
) -> Scaling:
    kind = rows.get("rope_type", rows.get("type", "default"))
    if kind == "dynamic" and rows.get("alpha"):
        return Ntk(_Rows(kind, rows).number("alpha"))
    # A dynamic one begins where the model has no more positions. In three dimensions (arXiv:
    # 2409.12191) the positions of texts are the same in each.
    if kind in ("default", "dynamic", "mrope"):
        return PLAIN
    original = _original(rows, values)
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


def spread(values: Mapping[str, Any]) -> float:
    """What scores of latent attention are multiplied by beside: YaRN's `mscale_all_dim`, squared.

    (DeepSeek-V2's reference code.) `values` are the keys and values of a `config.json`.
    """
    rows = values.get("rope_scaling") or values.get("rope_parameters") or {}
    kind = rows.get("rope_type", rows.get("type", "default"))
    if kind == "default" or not rows.get("mscale_all_dim"):
        return 1.0
    found = _Rows(kind, rows)
    return _mscale(found.number("factor"), found.number("mscale_all_dim")) ** 2


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
