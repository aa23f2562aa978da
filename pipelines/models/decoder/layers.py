"""Which layers of a decoder see a window of keys, turn by position, and have experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.pipelines.models import rotary
from heddle.pipelines.models.config_checks import (
    LAYER_TYPES,
    check_choice,
    check_count,
    check_positive,
)
from heddle.pipelines.models.decoder.traits import Family
from heddle.pipelines.models.rotary import Growth, Rope
from heddle.runtime.errors import GraphError

MLP_TYPES = ("dense", "sparse")
"""What `mlp_layer_types` says of each layer."""


@dataclass(frozen=True)
class Layer:
    """What one layer does.

    Attributes:
        window: How many keys a token sees; 0: all before it.
        rope: How queries and keys are turned; None: not at all.
        sparse: Whether its feed-forward part is a mixture of experts.
        growth: How queries grow with their position; None: not at all.
    """

    window: int
    rope: Rope | None
    sparse: bool
    growth: Growth | None = None


def read(values: Mapping[str, Any], family: Family, head: int, longest: int) -> tuple[Layer, ...]:
    """Each layer, from the keys and values of a `config.json`.

    `head` is the size of a head, `longest` the tokens of the longest text.

    Raises:
        GraphError: A value is none that it can have.
    """
    windows = _windows(values, family)
    ropes = {
        kind: rotary.read(
            values, kind, head, longest, family.plain_in_windows and kind == "sliding_attention"
        )
        for kind in LAYER_TYPES
    }
    kinds = (LAYER_TYPES[window > 0] for window in windows)
    _check_chunks(values, longest)
    growth = _growth(values)
    return tuple(
        Layer(window, ropes[kind], sparse, ropes[kind].growth)
        if turned
        else Layer(window, None, sparse, growth)
        for window, kind, turned, sparse in zip(
            windows, kinds, _turned(values, family, windows), _sparse(values, family), strict=True
        )
    )


def _check_chunks(values: Mapping[str, Any], longest: int) -> None:
    """Refuses texts of more than one of Llama 4's chunks: most of its layers see one alone."""
    chunk = values.get("attention_chunk_size", longest)
    check_count("attention_chunk_size", chunk, 1)
    if chunk < longest:
        raise GraphError(
            f"attention_chunk_size: wanted a chunk of the {longest} tokens of the longest text, "
            f"got {chunk}; take --context {chunk}"
        )


def _growth(values: Mapping[str, Any]) -> Growth | None:
    """How queries grow in layers that do not turn them, by Llama 4's keys."""
    if not values.get("attn_temperature_tuning", False):
        return None
    for name in ("attn_scale", "floor_scale"):
        check_positive(name, values[name])
    return Growth(float(values["attn_scale"]), float(values["floor_scale"]), 1)


def _windows(values: Mapping[str, Any], family: Family) -> list[int]:
    """For each layer the keys that a token sees."""
    layers: int = values["num_hidden_layers"]
    window: int = values.get("sliding_window", 0)
    check_count("sliding_window", window, 0)
    kinds = values.get("layer_types")
    if kinds is not None:
        _check_length("layer_types", kinds, layers)
        for name in kinds:
            if name not in LAYER_TYPES:
                raise GraphError(f"layer_types: wanted {' or '.join(LAYER_TYPES)}, got {name!r}")
        slides = [kind == "sliding_attention" for kind in kinds]
    elif isinstance(family.windows, int):
        pattern = values.get("sliding_window_pattern", family.windows)
        check_count("sliding_window_pattern", pattern, 1)
        slides = [(layer + 1) % pattern != 0 for layer in range(layers)]
    elif window and (not family.asked or values.get("use_sliding_window", False)):
        slides = _slides(values, family, layers)
    else:
        slides = [False] * layers
    if any(slides) and not window:
        raise GraphError("sliding_window: wanted that of the layers that slide, got none")
    return [window if sliding else 0 for sliding in slides]


def _slides(values: Mapping[str, Any], family: Family, layers: int) -> list[bool]:
    """For each layer whether it sees a window of keys, where there is one."""
    if family.windows in ("", "all"):
        return [family.windows == "all"] * layers
    if family.windows == "unturned":
        return [not turned for turned in _listed(values)]
    bound = values["max_window_layers"]
    check_count("max_window_layers", bound, 0)
    if family.windows == "last":
        return [layer >= bound for layer in range(layers)]
    return [layer < bound and layer % 2 == 0 for layer in range(layers)]


def _turned(values: Mapping[str, Any], family: Family, windows: list[int]) -> list[bool]:
    """For each layer whether it turns queries and keys."""
    if family.turned == "windows" or (family.turned == "windows or all" and any(windows)):
        return [window > 0 for window in windows]
    return _listed(values) if family.turned == "listed" else [family.turned != ""] * len(windows)


def _listed(values: Mapping[str, Any]) -> list[bool]:
    """For each layer whether it turns queries and keys, by SmolLM3's keys."""
    layers, listed = values["num_hidden_layers"], values.get("no_rope_layers")
    if listed is not None:
        _check_length("no_rope_layers", listed, layers)
        return [bool(value) for value in listed]
    interval = values["no_rope_layer_interval"]
    check_count("no_rope_layer_interval", interval, 1)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def _sparse(values: Mapping[str, Any], family: Family) -> list[bool]:
    """For each layer whether it has a mixture of experts."""
    layers, kinds = values["num_hidden_layers"], values.get("mlp_layer_types")
    if kinds is not None and family.experts is not None:
        _check_length("mlp_layer_types", kinds, layers)
        return [check_choice("mlp_layer_types", kind, MLP_TYPES) == "sparse" for kind in kinds]
    plain = values.get("mlp_only_layers", [])
    if not isinstance(plain, list):
        raise GraphError(f"mlp_only_layers: wanted a list, got {plain!r}")
    step, first = values.get("decoder_sparse_step", 1), values.get("first_k_dense_replace", 0)
    check_count("decoder_sparse_step", step, 1)
    check_count("first_k_dense_replace", first, 0)
    last = values.get("moe_layer_end_index", -1)
    check_count("moe_layer_end_index", last, -1)
    return [
        family.experts is not None
        and layer not in plain
        and (layer + 1) % step == 0
        and first <= layer <= (layers if last == -1 else last)
        for layer in range(layers)
    ]


def _check_length(name: str, found: Any, wanted: int) -> None:
    if not isinstance(found, list) or len(found) != wanted:
        got = len(found) if isinstance(found, list) else repr(found)
        raise GraphError(f"{name}: wanted {wanted}, got {got}")
