"""The configuration of a decoder: a checkpoint's `config.json` and the family that it names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.pipelines.models import decoder_layers
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.config_checks import (
    MOST_LAYERS,
    MOST_SIZE,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    read_object,
    refuse,
)
from heddle.pipelines.models.decoder_families import FAMILIES, Family
from heddle.pipelines.models.decoder_layers import Layer
from heddle.runtime.errors import GraphError

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

EXPERT_COUNTS = (
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "decoder_sparse_step",
)
"""Those of a mixture of experts, where it has them."""

MOST = {"num_hidden_layers": MOST_LAYERS, "hidden_size": MOST_SIZE, "head_dim": MOST_SIZE}
"""What some of them are at most."""

FLAGS = (
    "attention_bias",
    "attention_out_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "norm_topk_prob",
    "use_sliding_window",
)

SCALES = (
    "attention_multiplier",
    "attn_logit_softcapping",
    "embedding_multiplier",
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "query_pre_attn_scalar",
    "residual_multiplier",
    "swiglu_alpha",
    "swiglu_limit",
)
"""Numbers above 0 that scores, values and logits are scaled by or bounded to."""

ALIASES = {"num_local_experts": "num_experts"}
"""Other names of keys, and ours for them; families have more."""

REFUSED: dict[str, Any] = {
    "is_causal": True,
    "per_layer_config": None,
    "use_bidirectional_attention": False,
    "use_qk_norm": False,
    "clip_qkv": None,
}
"""What none of these graphs computes, and the value that says so."""

NONE = ("attn_logit_softcapping", "final_logit_softcapping", "head_dim", "sliding_window")
"""Keys whose null says that there is none, where other nulls leave a value to the family."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (arXiv:1701.06538).

    Attributes:
        count: How many there are.
        chosen: How many of them each token goes to.
        size: The columns between an expert's products.
        normalized: The shares of those that are chosen add up to one.
        shared: The columns between the products of an expert that all tokens go to; 0: none.
        biased: Their products and the router's have biases.
        gain: Their gate is x * sigmoid(gain * x), and what it is multiplied by is one more; 0: it
            is `hidden_act` of x.
        limit: What both are bounded to, where there is a gain.
    """

    count: int
    chosen: int
    size: int
    normalized: bool
    shared: int
    biased: bool
    gain: float
    limit: float


@dataclass(frozen=True)
class DecoderConfig:
    """What the graph of a decoder depends on.

    Attributes:
        family: What it does beside.
        layers: Each layer.
        qkv_bias: Whether the products for queries, keys and values have a bias.
        output_bias: Whether the one behind attention has.
        mlp_bias: Whether those of the feed-forward part have.
        attention_scale: What scores are multiplied by; None: 1 / sqrt(head_dim).
        attention_softcap: What scores are bounded to, by tanh; 0: they are not.
        logits_softcap: Likewise logits.
        embedding_scale: What embeddings are multiplied by.
        residual_scale: What each part of a layer is multiplied by before it is added.
        logits_scale: What logits are multiplied by.
        experts: The mixture of experts of those layers that have one.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    hidden_act: str
    tie_word_embeddings: bool
    layers: tuple[Layer, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    attention_scale: float | None
    attention_softcap: float
    logits_softcap: float
    embedding_scale: float
    residual_scale: float
    logits_scale: float
    experts: Experts | None

    @staticmethod
    def read(path: Path) -> DecoderConfig:
        """The configuration in the JSON file `path`.

        Raises:
            GraphError: The file is missing or no JSON object, a key is missing, or the model is
                not one that this graph computes.
        """
        return DecoderConfig.of(read_object(path), path)

    @staticmethod
    def of(values: Mapping[str, Any], path: Path | None = None) -> DecoderConfig:
        """The configuration in the keys and values of a `config.json`; errors as `read`.

        `path` is the file that they are from, which errors name.
        """
        try:
            return DecoderConfig._of(values)
        except GraphError as error:
            raise GraphError(f"{path}: {error}" if path else str(error)) from None

    @staticmethod
    def _of(values: Mapping[str, Any]) -> DecoderConfig:
        kind = values.get("model_type")
        family = FAMILIES[check_choice("model_type", kind, FAMILIES)]
        values = _completed(values, family)
        missing = [name for name in KEYS if name not in values]
        if missing:
            raise GraphError(f"wanted the keys of a {kind} model, got no {', '.join(missing)}")
        _check(values, family)
        act, hidden = values["hidden_act"], values["hidden_size"]
        heads = values["num_attention_heads"]
        key_heads = values.get("num_key_value_heads", heads)
        if heads % key_heads:
            raise GraphError(
                f"num_key_value_heads: wanted a divisor of {heads} heads, got {key_heads}"
            )
        if "head_dim" not in values and hidden % heads:
            raise GraphError(f"hidden_size: wanted a multiple of {heads} heads, got {hidden}")
        head = values.get("head_dim", hidden // heads)
        if head % 2:
            raise GraphError(f"head_dim: wanted an even number, which rope turns, got {head}")
        bias = values.get("attention_bias", False)
        scalar = values.get("query_pre_attn_scalar")
        return DecoderConfig(
            family=family,
            vocab_size=values["vocab_size"],
            hidden_size=hidden,
            intermediate_size=values["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            head_dim=head,
            max_position_embeddings=values["max_position_embeddings"],
            rms_norm_eps=values["rms_norm_eps"],
            hidden_act=family.activations.get(act, act),
            tie_word_embeddings=values.get("tie_word_embeddings", False),
            layers=decoder_layers.read(values, family, head),
            qkv_bias=bias,
            output_bias=family.output_bias and values.get("attention_out_bias", bias),
            mlp_bias=values.get("mlp_bias", False),
            attention_scale=scalar**-0.5 if scalar else values.get("attention_multiplier"),
            attention_softcap=values.get("attn_logit_softcapping", 0.0),
            logits_softcap=values.get("final_logit_softcapping", 0.0),
            embedding_scale=math.sqrt(hidden)
            if family.scaled_embeddings
            else values.get("embedding_multiplier", 1.0),
            residual_scale=values.get("residual_multiplier", 1.0),
            logits_scale=values.get("logit_scale", 1 / values.get("logits_scaling", 1.0)),
            experts=_experts(values) if family.experts else None,
        )


def _completed(values: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The values that are given, by our names, and the family's for those that are not."""
    given = {name: value for name, value in values.items() if value is not None}
    defaults = {
        name: value
        for name, value in family.defaults.items()
        if name not in NONE or name not in values
    }
    aliases = {**ALIASES, **family.aliases}
    named = {ours: given[name] for name, ours in aliases.items() if name in given}
    return {"hidden_act": "silu", **defaults, **given, **named}


def _check(values: Mapping[str, Any], family: Family) -> None:
    for name, wanted in {**REFUSED, **family.refused}.items():
        refuse(values, name, wanted)
    for name in (*COUNTS, *EXPERT_COUNTS):
        if name in values:
            check_count(name, values[name], 1)
    for name in FLAGS:
        if name in values:
            check_flag(name, values[name])
    for name in ("rms_norm_eps", *SCALES):
        if name in values:
            check_positive(name, values[name])
    for name, most in MOST.items():
        if values.get(name, 0) > most:
            raise GraphError(f"{name}: wanted at most {most}, got {values[name]}")
    check_choice("hidden_act", values["hidden_act"], ACTIVATIONS)


def _experts(values: Mapping[str, Any]) -> Experts:
    for name in ("num_experts", "num_experts_per_tok"):
        if name not in values:
            raise GraphError(f"wanted the keys of a mixture of experts, got no {name}")
    count, chosen = values["num_experts"], values["num_experts_per_tok"]
    if chosen > count:
        raise GraphError(f"num_experts_per_tok: wanted at most {count} experts, got {chosen}")
    return Experts(
        count,
        chosen,
        values.get("moe_intermediate_size", values["intermediate_size"]),
        values.get("norm_topk_prob", False),
        values.get("shared_expert_intermediate_size", 0),
        values.get("expert_bias", False),
        values.get("swiglu_alpha", 0.0),
        values.get("swiglu_limit", math.inf),
    )
