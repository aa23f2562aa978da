"""The configuration of a decoder: a checkpoint's `config.json` and the family that it names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heddle.pipelines.json_files import read_object
from heddle.pipelines.models import rotary
from heddle.pipelines.models.activations import ACTIVATIONS, LEARNED
from heddle.pipelines.models.config_checks import (
    MORE,
    MOST_LAYERS,
    MOST_SIZE,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    refuse,
)
from heddle.pipelines.models.decoder import expert_config, latent_config
from heddle.pipelines.models.decoder import layers as layer_config
from heddle.pipelines.models.decoder.expert_config import Experts
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.models.decoder.latent_config import Latent
from heddle.pipelines.models.decoder.layers import Layer
from heddle.pipelines.models.decoder.traits import Family
from heddle.pipelines.models.text_part import TIED, text_part
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

MOST = {"num_hidden_layers": MOST_LAYERS, "hidden_size": MOST_SIZE, "head_dim": MOST_SIZE}
"""What some of them are at most."""

FLAGS = (
    "attention_bias",
    "attention_out_bias",
    "mlp_bias",
    TIED,
    "rope_interleave",
    "use_parallel_residual",
    "use_qk_norm",
    "use_sliding_window",
)

SCALES = (
    "attention_multiplier",
    "attn_logit_softcapping",
    "clip_qkv",
    "embedding_multiplier",
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "query_pre_attn_scalar",
    "residual_multiplier",
)
"""Numbers above 0 that scores, values and logits are scaled by or bounded to."""

ALIASES = {"num_local_experts": "num_experts", "n_routed_experts": "num_experts"}
"""Other names of keys, and ours for them; families have more."""

FIRST = ("hidden_activation",)
"""Those that count where ours says something else: the reference code of Gemma reads no other."""

REFUSED: dict[str, Any] = {
    "is_causal": True,
    "per_layer_config": None,
    "use_bidirectional_attention": False,
}
"""What none of these graphs computes, and the value that says so."""

NONE = (
    "attention_chunk_size",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "head_dim",
    "sliding_window",
)
"""Keys whose null says that there is none, where other nulls leave a value to the family."""


@dataclass(frozen=True)
class DecoderConfig:
    """What the graph of a decoder depends on.

    Attributes:
        family: What it does beside.
        num_key_value_heads: The heads of a cache: of latents there is one for all.
        head_dim: Columns of a head of queries.
        layers: Each layer.
        more_layers: How many the checkpoint has behind them, which guess later tokens and are left
            out (arXiv:2404.19737).
        positions: How many places have vectors that are added to those of tokens; 0: none.
        parallel: Attention and the feed-forward part both read what comes before the layer.
        qk_norm: Queries and keys are normalised: each head by itself, or all heads together; or
            each head without weights, once it is turned.
        qkv_limit: What queries, keys and values are bounded to before they are turned; infinite:
            they are not.
        qkv_bias: Whether the products for queries, keys and values have a bias.
        output_bias: Whether the one behind attention has.
        mlp_bias: Whether those of the feed-forward part have.
        latent: The latents that keys and values are made of, if they are.
        interleaved: Neighbours are turned together, not elements half a head apart.
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
    more_layers: int
    positions: int
    parallel: bool
    qk_norm: Literal["", "head", "all", "turned"]
    qkv_limit: float
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    latent: Latent | None
    interleaved: bool
    attention_scale: float | None
    attention_softcap: float
    logits_softcap: float
    embedding_scale: float
    residual_scale: float
    logits_scale: float
    experts: Experts | None

    @property
    def caches(self) -> dict[str, tuple[int, int]]:
        """What each layer has a cache of, with its heads and the columns of each."""
        if self.latent is not None:
            return {"latents": (self.num_key_value_heads, self.latent.cached)}
        return dict.fromkeys(("keys", "values"), (self.num_key_value_heads, self.head_dim))

    @staticmethod
    def read(path: Path) -> DecoderConfig:
        """The configuration in the JSON file `path`.

        Raises:
            GraphError: The file is missing or no JSON object, a key is missing, or the model is
                not one that this graph computes.
        """
        return DecoderConfig.of(read_object(path), path)

    @staticmethod
    def of(
        values: Mapping[str, Any], path: Path | None = None, context: int | None = None
    ) -> DecoderConfig:
        """The configuration in the keys and values of a `config.json`; errors as `read`.

        `path` is the file that they are from, which errors name; `context` the tokens of the
        longest text, by default as many as the model takes.
        """
        try:
            return DecoderConfig._of(values, context)
        except GraphError as error:
            raise GraphError(f"{path}: {error}" if path else str(error)) from None

    @staticmethod
    def _of(values: Mapping[str, Any], context: int | None) -> DecoderConfig:
        values = text_part(values)
        kind = values.get("model_type")
        family = FAMILIES[check_choice("model_type", kind, FAMILIES)]
        values = _completed(values, family)
        if family.variant:
            family, values = family.variant(family, values)
        missing = [name for name in KEYS if name not in values]
        if missing:
            raise GraphError(f"wanted the keys of a {kind} model, got no {', '.join(missing)}")
        _check(values, family)
        longest = values["max_position_embeddings"] if context is None else context
        if not 1 <= longest <= values["max_position_embeddings"]:
            most = values["max_position_embeddings"]
            raise GraphError(f"context: wanted 1 to {most} tokens, got {context}")
        latent = latent_config.read(values) if family.latent else None
        if latent is not None:
            values = latent_config.without_share(values, latent)
            values |= {"num_key_value_heads": 1, "head_dim": latent.head}
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
        name, turned = ("qk_rope_head_dim", latent.turned) if latent else ("head_dim", head)
        if turned % 2:
            raise GraphError(f"{name}: wanted an even number, which rope turns, got {turned}")
        layers = layer_config.read(values, family, turned, longest)
        if latent is not None:
            values = {**values, "attention_multiplier": rotary.spread(values) * head**-0.5}
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
            max_position_embeddings=longest,
            rms_norm_eps=values["rms_norm_eps"],
            hidden_act=family.activations.get(act, act),
            tie_word_embeddings=values.get(TIED, False),
            layers=layers,
            more_layers=values.get(MORE, 0),
            positions=values["max_position_embeddings"] if family.names.positions else 0,
            parallel=values.get("use_parallel_residual", family.parallel),
            qk_norm=family.qk_norm if values.get("use_qk_norm", True) else "",
            qkv_limit=values.get("clip_qkv", math.inf),
            qkv_bias=bias,
            output_bias=family.output_bias and values.get("attention_out_bias", bias),
            mlp_bias=values.get("mlp_bias", False),
            latent=latent,
            interleaved=values.get("rope_interleave", family.interleaved),
            attention_scale=scalar**-0.5 if scalar else values.get("attention_multiplier"),
            attention_softcap=values.get("attn_logit_softcapping", 0.0),
            logits_softcap=values.get("final_logit_softcapping", 0.0),
            embedding_scale=math.sqrt(hidden)
            if family.scaled_embeddings
            else values.get("embedding_multiplier", 1.0),
            residual_scale=values.get("residual_multiplier", 1.0),
            logits_scale=values.get("logit_scale", 1 / values.get("logits_scaling", 1.0)),
            experts=expert_config.read(values, family.experts, family.router)
            if family.experts
            else None,
        )


def _completed(values: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The values that are given, by our names, and the family's for those that are not."""
    given = {name: value for name, value in values.items() if value is not None}
    defaults = {
        name: value
        for name, value in family.defaults.items()
        if name not in NONE or name not in values
    }
    for name, ours in {**ALIASES, **family.aliases}.items():
        if name in given:
            value = given[name]
            other = given.setdefault(ours, value)
            if name in FIRST:
                given[ours] = value
            elif other != value:
                raise GraphError(f"{name}: wanted {other!r}, as {ours} says, got {value!r}")
    return {"hidden_act": "silu", **defaults, **given}


def _check(values: Mapping[str, Any], family: Family) -> None:
    unknown = {} if family.qk_norm else {"use_qk_norm": False}
    if not (family.parallel and family.norms.before_mlp):
        unknown["use_parallel_residual"] = family.parallel
    for name, wanted in {**REFUSED, **unknown, **family.refused}.items():
        refuse(values, name, wanted)
    for name in COUNTS:
        if name in values:
            check_count(name, values[name], 1)
    check_count(MORE, values.get(MORE, 0), 0)
    for name in FLAGS:
        if name in values:
            check_flag(name, values[name])
    for name in ("rms_norm_eps", *SCALES):
        if name in values:
            check_positive(name, values[name])
    for name, most in MOST.items():
        if values.get(name, 0) > most:
            raise GraphError(f"{name}: wanted at most {most}, got {values[name]}")
    learned = () if family.experts else (LEARNED,)
    check_choice("hidden_act", values["hidden_act"], (*ACTIVATIONS, *learned))
