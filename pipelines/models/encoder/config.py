"""The configuration of an encoder: a checkpoint's `config.json`.

BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692) and XLM-R (arXiv:1911.02116), DistilBERT
(arXiv:1910.01108), MPNet (arXiv:2004.09297), ModernBERT (arXiv:2412.13663) and NomicBERT
(arXiv:2402.01613).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.config_checks import LAYER_TYPES, MOST_LAYERS, MOST_SIZE
from heddle.pipelines.models.config_values import Values

BUCKETS = 32
"""Rows of the table of biases that MPNet's distances share."""


@dataclass(frozen=True)
class LayerKind:
    """What differs between the layers of an encoder.

    Attributes:
        window: How far before and behind it a token sees others; 0: all of them.
        theta: The base of its rotary positions; None: it has none.
    """

    window: int = 0
    theta: float | None = None


@dataclass(frozen=True)
class EncoderConfig:
    """What the graph of an encoder depends on.

    Attributes:
        model_type: The family, which the names of the weights depend on.
        kinds: That of each layer.
        max_position_embeddings: Tokens of the longest sequence.
        first_position: The row of the first token in the table of positions; None: no table.
        type_vocab_size: Rows of the table of segments; 0: no table.
        relative_buckets: Rows of the table of biases for distances in attention; 0: no table.
        gated: Whether the activated product is multiplied by another one.
        pre_norm: Whether norms are in front of attention and feed-forward parts, and not behind.
        attention_bias, mlp_bias, norm_bias: Whether such products and norms have a bias.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    kinds: tuple[LayerKind, ...]
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    layer_norm_eps: float
    hidden_act: str
    first_position: int | None = None
    type_vocab_size: int = 0
    relative_buckets: int = 0
    gated: bool = False
    pre_norm: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True

    @staticmethod
    def read(path: Path) -> EncoderConfig:
        """The configuration in the JSON file `path`.

        Raises:
            GraphError: The file is missing or no JSON object, a key is missing or of another type,
                or the model is not one that this graph computes.
        """
        return _config(Values.read(path))

    @staticmethod
    def of(values: Mapping[str, Any]) -> EncoderConfig:
        """The configuration in the keys and values of a `config.json`; errors as `read`."""
        return _config(Values(values))

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        return len(self.kinds)

    @property
    def head_size(self) -> int:
        """Numbers of a query, a key or a value of one head."""
        return self.hidden_size // self.num_attention_heads


def _config(values: Values) -> EncoderConfig:
    config = _FAMILIES[values.choice("model_type", among=_FAMILIES)](values)
    values.refuse(quantization_config=None, compression_config=None)
    heads, size = config.num_attention_heads, config.hidden_size
    for name, count in (("hidden_size", size), ("positions", config.max_position_embeddings)):
        if count > MOST_SIZE:
            raise values.error(name, f"at most {MOST_SIZE}", count)
    if size % heads:
        raise values.error("hidden_size", f"a multiple of {heads} heads", size)
    if config.kinds[0].theta and config.head_size % 2:
        raise values.error("head size", "an even number, which rope turns", config.head_size)
    return config


def _sizes(
    values: Values, epsilon: float | None = None, activation: str | None = None
) -> dict[str, Any]:
    """What all families say, by one of the keys that it has; and the defaults of some."""
    return {
        "vocab_size": values.count("vocab_size"),
        "hidden_size": values.count("hidden_size", "dim", "n_embd"),
        "num_attention_heads": values.count("num_attention_heads", "n_heads", "n_head"),
        "intermediate_size": values.count("intermediate_size", "hidden_dim", "n_inner"),
        "max_position_embeddings": values.count("max_position_embeddings", "n_positions"),
        "layer_norm_eps": values.positive(
            "layer_norm_eps", "norm_eps", "layer_norm_epsilon", default=epsilon
        ),
        "hidden_act": values.choice(
            "hidden_act", "hidden_activation", "activation", among=ACTIVATIONS, default=activation
        ),
    }


def _layers(values: Values) -> int:
    layers = values.count("num_hidden_layers", "n_layers", "n_layer")
    if layers > MOST_LAYERS:
        raise values.error("num_hidden_layers", f"at most {MOST_LAYERS}", layers)
    return layers


def _bert(values: Values) -> EncoderConfig:
    return _learned("bert", values, 0, type_vocab_size=_segments(values))


def _roberta(values: Values) -> EncoderConfig:
    """Its first positions are those of the padding and of what is before it."""
    first = values.count("pad_token_id", least=0, default=1) + 1
    kind = values.text("model_type")
    return _learned(kind, values, first, type_vocab_size=_segments(values))


def _segments(values: Values) -> int:
    return values.count("type_vocab_size", default=2)


def _mpnet(values: Values) -> EncoderConfig:
    values.refuse(relative_attention_num_buckets=BUCKETS)
    return _learned("mpnet", values, 2, relative_buckets=BUCKETS)


def _distilbert(values: Values) -> EncoderConfig:
    return _learned("distilbert", values, 0)


def _learned(kind: str, values: Values, first: int, **more: Any) -> EncoderConfig:
    """A family with a table of positions, of which `first` are before those of tokens.

    What its older files do not say is as in transformers.
    """
    values.refuse(position_embedding_type="absolute", is_decoder=False)
    sizes = _sizes(values, epsilon=1e-12, activation="gelu")
    rows = sizes["max_position_embeddings"]
    if rows <= first:
        raise values.error("max_position_embeddings", f"more than {first}", rows)
    sizes["max_position_embeddings"] = rows - first
    kinds = (LayerKind(),) * _layers(values)
    return EncoderConfig(kind, **sizes, kinds=kinds, first_position=first, **more)


def _modernbert(values: Values) -> EncoderConfig:
    sizes = _sizes(values, epsilon=1e-5, activation="gelu")
    window = values.count("local_attention", least=2, default=128) // 2
    values.refuse(sliding_window=window)
    local = LayerKind(window, _theta(values, "local", 10000.0))
    everywhere = LayerKind(0, _theta(values, "global", 160000.0))
    return EncoderConfig(
        "modernbert",
        **sizes,
        kinds=tuple(local if is_local else everywhere for is_local in _are_local(values)),
        gated=True,
        pre_norm=True,
        attention_bias=values.flag("attention_bias", default=False),
        mlp_bias=values.flag("mlp_bias", default=False),
        norm_bias=values.flag("norm_bias", default=False),
    )


def _are_local(values: Values) -> tuple[bool, ...]:
    """For each layer of ModernBERT whether a token sees only those around it."""
    layers, kinds = _layers(values), values.get("layer_types")
    if kinds is None:
        every = values.count("global_attn_every_n_layers", default=3)
        return tuple(layer % every != 0 for layer in range(layers))
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise values.error("layer_types", f"a list of {layers}", kinds)
    for kind in kinds:
        if kind not in LAYER_TYPES:
            raise values.error("layer_types", " or ".join(LAYER_TYPES), kind)
    return tuple(kind == "sliding_attention" for kind in kinds)


def _theta(values: Values, kind: str, default: float) -> float:
    """The base of ModernBERT's `local` or `global` layers; `rope_parameters` is its newer place."""
    values.refuse(rope_scaling=None)
    name = "sliding_attention" if kind == "local" else "full_attention"
    newer = values.object("rope_parameters").object(name)
    newer.refuse(rope_type="default")
    return newer.positive(
        "rope_theta", default=values.positive(f"{kind}_rope_theta", default=default)
    )


def _nomic(values: Values) -> EncoderConfig:
    values.refuse(
        activation_function="swiglu",
        causal=False,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        moe_every_n_layers=0,
        parallel_block=False,
        prenorm=False,
        qkv_proj_bias=False,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
        rotary_scaling_factor=None,
        use_rms_norm=False,
    )
    sizes = _sizes(values, activation="silu")
    values.refuse(head_dim=sizes["hidden_size"] // sizes["num_attention_heads"])
    newer = values.object("rope_parameters")
    newer.refuse(rope_type="default")
    theta = newer.positive("rope_theta", default=values.positive("rotary_emb_base", default=1000.0))
    return EncoderConfig(
        "nomic_bert",
        **sizes,
        type_vocab_size=values.count("type_vocab_size"),
        kinds=(LayerKind(theta=theta),) * _layers(values),
        gated=True,
        attention_bias=False,
        mlp_bias=False,
    )


_FAMILIES = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "modernbert": _modernbert,
    "nomic_bert": _nomic,
}
