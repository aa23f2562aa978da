"""The configuration of a decoder of the Llama family: a checkpoint's `config.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.runtime.errors import GraphError

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")

KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
)
"""What each of these models says in its configuration."""

COUNTS = (*(name for name in KEYS if name != "rms_norm_eps"), "num_key_value_heads", "head_dim")
"""The sizes, of which there is at least one of each."""

FLAGS = ("attention_bias", "mlp_bias", "tie_word_embeddings")

MOST_LAYERS = 4096
"""More than any model has: a graph of so many would not end."""

LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class RopeScaling:
    """How the frequencies of rotary positions are stretched for longer sequences.

    `linear` divides all of them by `factor` (arXiv:2306.15595). `llama3` divides those whose
    wavelength is above `original / low` by it, leaves those below `original / high`, and goes
    smoothly from one to the other (Llama 3.1's reference code, arXiv:2407.21783).
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def apply(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """The stretched frequencies."""
        if self.kind == "linear":
            return frequencies / self.factor
        turns = self.original * frequencies / (2 * math.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (share + (1 - share) / self.factor)


@dataclass(frozen=True)
class DecoderConfig:
    """What the graph of a decoder depends on.

    Attributes:
        windows: For each layer how many keys a token sees; 0: all before it.
        qkv_bias: Whether the products for queries, keys and values have a bias.
        output_bias: Whether the one behind attention has.
        mlp_bias: Whether those of the feed-forward part have.
        qk_norm: Whether queries and keys are normalised, head by head.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    hidden_act: str
    tie_word_embeddings: bool
    windows: tuple[int, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @staticmethod
    def read(path: Path) -> DecoderConfig:
        """The configuration in the JSON file `path`.

        Raises:
            GraphError: The file is missing or no JSON object, a key is missing, or the model is
                not one that this graph computes.
        """
        values = read_object(path)
        try:
            return DecoderConfig.of(values)
        except GraphError as error:
            raise GraphError(f"{path}: {error}") from None

    @staticmethod
    def of(values: Mapping[str, Any]) -> DecoderConfig:
        """The configuration in the keys and values of a `config.json`; errors as `read`."""
        kind = values.get("model_type")
        if kind not in MODEL_TYPES:
            raise GraphError(f"model_type: wanted one of {', '.join(MODEL_TYPES)}, got {kind!r}")
        missing = [name for name in KEYS if values.get(name) is None]
        if missing:
            raise GraphError(f"wanted the keys of a {kind} model, got no {', '.join(missing)}")
        for name in COUNTS:
            if values.get(name) is not None:
                _check_count(name, values[name], 1)
        if values["num_hidden_layers"] > MOST_LAYERS:
            raise GraphError(
                f"num_hidden_layers: wanted at most {MOST_LAYERS}, got "
                f"{values['num_hidden_layers']}"
            )
        for name in FLAGS:
            if not isinstance(values.get(name) or False, bool):
                raise GraphError(f"{name}: wanted true or false, got {values[name]!r}")
        _check_positive("rms_norm_eps", values["rms_norm_eps"])
        _refuse(values, "quantization_config", None)
        _refuse(values, "partial_rotary_factor", 1.0)
        activation = values.get("hidden_act", "silu")
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise GraphError(f"hidden_act: wanted one of {known}, got {activation!r}")
        heads = values["num_attention_heads"]
        key_heads = values.get("num_key_value_heads") or heads
        if heads % key_heads:
            raise GraphError(
                f"num_key_value_heads: wanted a divisor of {heads} heads, got {key_heads}"
            )
        if not values.get("head_dim") and values["hidden_size"] % heads:
            raise GraphError(
                f"hidden_size: wanted a multiple of {heads} heads, got {values['hidden_size']}"
            )
        head = values.get("head_dim") or values["hidden_size"] // heads
        if head % 2:
            raise GraphError(f"head_dim: wanted an even number, which rope turns, got {head}")
        bias = values.get("attention_bias") or False
        theta, scaling = _rope(values)
        return DecoderConfig(
            **{name: values[name] for name in KEYS},
            num_key_value_heads=key_heads,
            head_dim=head,
            rope_theta=theta,
            rope_scaling=scaling,
            hidden_act=activation,
            tie_word_embeddings=values.get("tie_word_embeddings") or False,
            windows=_windows(values),
            qkv_bias=kind == "qwen2" or bias,
            output_bias=kind != "qwen2" and bias,
            mlp_bias=values.get("mlp_bias") or False,
            qk_norm=kind == "qwen3",
        )

    def frequencies(self) -> NDArray[np.float32]:
        """Radians of rotation for each position, float32 [head_dim / 2] (arXiv:2104.09864)."""
        exponents = np.arange(0, self.head_dim, 2) / self.head_dim
        plain = self.rope_theta**-exponents
        scaled = self.rope_scaling.apply(plain) if self.rope_scaling else plain
        return scaled.astype(np.float32)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`.

    Raises:
        GraphError: It is missing, or none.
    """
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise GraphError(f"{path}: wanted a model's config.json, got {error}") from None
    if not isinstance(values, dict):
        raise GraphError(f"{path}: wanted a model's config.json, got no JSON object")
    return values


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{name}: wanted an integer of at least {least}, got {value!r}")


def _check_positive(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise GraphError(f"{name}: wanted a finite number above 0, got {value!r}")


def _refuse(values: Mapping[str, Any], name: str, wanted: Any) -> None:
    found = values.get(name)
    if found is not None and found != wanted:
        raise GraphError(f"{name}: wanted {wanted or 'none'}, got {found!r}")


def _rope(values: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """The base, and the scaling; `rope_parameters` is the newer place of both."""
    newer = values.get("rope_parameters") or {}
    rows = values.get("rope_scaling") or newer
    for name, value in (("rope_parameters", newer), ("rope_scaling", rows)):
        if not isinstance(value, dict):
            raise GraphError(f"{name}: wanted a JSON object, got {value!r}")
    given = (newer.get("rope_theta"), values.get("rope_theta"), 10000.0)
    theta = next(value for value in given if value is not None)
    _check_positive("rope_theta", theta)
    kind = rows.get("rope_type", rows.get("type", "default"))
    if kind == "default":
        return float(theta), None
    names = {
        "linear": {"factor": "factor"},
        "llama3": {
            "factor": "factor",
            "low": "low_freq_factor",
            "high": "high_freq_factor",
            "original": "original_max_position_embeddings",
        },
    }
    if kind not in names:
        raise GraphError(f"rope_scaling: wanted default, linear or llama3, got {kind!r}")
    missing = [name for name in names[kind].values() if name not in rows]
    if missing:
        raise GraphError(f"rope_scaling {kind}: wanted {', '.join(missing)}, got none")
    for name in names[kind].values():
        _check_positive(f"rope_scaling {kind}: {name}", rows[name])
    if kind == "llama3" and not rows["low_freq_factor"] < rows["high_freq_factor"]:
        raise GraphError(
            "rope_scaling llama3: wanted a high_freq_factor above low_freq_factor, got "
            f"{rows['high_freq_factor']} and {rows['low_freq_factor']}"
        )
    return float(theta), RopeScaling(kind, **{own: rows[name] for own, name in names[kind].items()})


def _windows(values: Mapping[str, Any]) -> tuple[int, ...]:
    """For each layer the keys that a token sees; Qwen slides in its last layers, if at all."""
    layers: int = values["num_hidden_layers"]
    window: int = values.get("sliding_window") or 0
    _check_count("sliding_window", window, 0)
    kinds = values.get("layer_types")
    if kinds is not None:
        if len(kinds) != layers:
            raise GraphError(f"layer_types: wanted {layers}, got {len(kinds)}")
        for name in kinds:
            if name not in LAYER_TYPES:
                raise GraphError(f"layer_types: wanted {' or '.join(LAYER_TYPES)}, got {name!r}")
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if values["model_type"] == "mistral":
        return (window,) * layers
    if not values.get("use_sliding_window", False):
        return (0,) * layers
    first = values.get("max_window_layers", layers)
    return tuple(window if layer >= first else 0 for layer in range(layers))
