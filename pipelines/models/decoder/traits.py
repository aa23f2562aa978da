"""What a family of decoders computes beside its sizes, and what it calls its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ModelNames:
    """Where a checkpoint has the weights that are in no layer.

    Attributes:
        prefix: What stands before all but the head's, where a checkpoint holds nothing but texts.
        embeddings: The vectors of tokens.
        positions: Those of places in a text, which are added to them; `""` where there are none.
        layers: What stands before a layer's number.
        norm: The last one.
        head: The product that makes logits, where it is not one with the embeddings.
    """

    prefix: str = "model."
    embeddings: str = "embed_tokens"
    layers: str = "layers"
    norm: str = "norm"
    head: str = "lm_head"
    positions: str = ""


@dataclass(frozen=True)
class NormNames:
    """The names of a layer's norms; `""` where there is none.

    Attributes:
        before_attention: Of what attention reads.
        after_attention: Of what it adds to the residual stream.
        before_mlp: Of what the feed-forward part reads.
        after_mlp: Of what it adds.
    """

    before_attention: str = "input_layernorm"
    after_attention: str = ""
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str = ""


@dataclass(frozen=True)
class AttentionNames:
    """Where a layer's attention has its weights.

    Attributes:
        at: What stands before the names of the others.
        query: The product for queries.
        key: The one for keys.
        value: The one for values.
        joined: The product of all three, where they are one.
        grouped: Its rows are, for each head of keys, those of the queries that see it, of the keys
            and of the values; else all queries come first, then keys, then values.
        out: The product behind attention.
        query_norm: The norm of queries.
        key_norm: The one of keys.
    """

    at: str = "self_attn"
    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    joined: str = ""
    grouped: bool = False
    out: str = "o_proj"
    query_norm: str = "q_norm"
    key_norm: str = "k_norm"


@dataclass(frozen=True)
class MlpNames:
    """Where a feed-forward part has its weights.

    Attributes:
        at: What stands before the names of the others.
        gate: The product that the activation is applied to, `""` where that is `up`.
        up: The product that the gate is multiplied by.
        down: The one behind both.
        joined: The product of gate and up, in this order, where they are one.
    """

    at: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    joined: str = ""


@dataclass(frozen=True)
class ExpertNames:
    """Where a layer's mixture of experts has its weights.

    Attributes:
        router: The product whose results choose the experts.
        correction: What is added to their scores where these choose, `""` where nothing is.
        correction_dims: How many dims that has, all of size 1 but the last.
        experts: What stands before the names of their products.
        gate: The product that the activation is applied to.
        up: The one that it is multiplied by.
        down: The one behind both.
        joined: The product of gate and up, where they are one.
        in_turns: Its rows are one of the gate and one of up in turns; else all of the gate first.
        shared: An expert that all tokens go to.
        shared_gate: The product whose sigmoid its results are multiplied by, `""` where none is.
    """

    router: str = "mlp.gate"
    correction: str = ""
    correction_dims: int = 1
    experts: str = "mlp.experts"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    joined: str = ""
    in_turns: bool = False
    shared: MlpNames | None = None
    shared_gate: str = ""


@dataclass(frozen=True)
class Router:
    """How experts are chosen by the router's results.

    Attributes:
        scores: What makes scores of them.
        best: A group of experts has the sum of so many of its best scores as its own.
        inputs: What an expert reads is multiplied by its share, not what it gives.
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    best: int = 1
    inputs: bool = False


@dataclass(frozen=True)
class Family:
    """What a model does that its sizes do not say.

    Attributes:
        defaults: Values of keys that `config.json` may lack.
        aliases: Other names of keys, and ours for them.
        names: What weights outside of layers are called.
        norms: A layer's norms.
        attention: The weights of its attention.
        mlp: Those of its feed-forward part.
        parallel: Both read the residual stream as it is before the layer, and both are added to
            it; without a norm of its own the feed-forward part reads what attention does. The key
            `use_parallel_residual` says otherwise.
        centred: Norms are layer norms, not RMS norms.
        norm_bias: They have biases.
        norm_weight: They have weights.
        offset: What is added to the weights of norms.
        qk_norm: Queries and keys are normalised, unless `use_qk_norm` is false: each head by
            itself, or all heads together; or each head without weights, where layers turn them.
        turned_first: They are turned before they are normalised.
        output_bias: The product behind attention has a bias where those before it have one.
        head_bias: The product that makes logits has a bias.
        activations: What names of activations stand for, where it is another one.
        refused: Keys of what the models do not compute, and the value that says so.
        windows: Which layers see a window of keys alone: none, all, the last ones from
            `max_window_layers` on, every other one before that, those that do not turn, or all but
            each n-th, n the default of `sliding_window_pattern`.
        asked: They do so only where `use_sliding_window` is true.
        turned: Which layers turn queries and keys by their position: all, those that
            `no_rope_layers` says, those that see a window, or all where no layer does; or none.
        plain_in_windows: Layers that see a window turn without scaling, by `rope_local_base_freq`
            where the configuration has it.
        interleaved: Neighbours are turned together, not elements half a head apart.
        scaled_embeddings: Embeddings are multiplied by the square root of their size.
        sinks: Each head has a score that takes its share of the softmax and adds nothing.
        latent: Keys and values of all heads are made of one latent for each token.
        experts: Where the weights of experts are, in a mixture of them.
        router: How experts are chosen.
        variant: Gives the family and the values of a configuration by what its own keys say.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    names: ModelNames = ModelNames()
    norms: NormNames = NormNames()
    attention: AttentionNames = AttentionNames()
    mlp: MlpNames = MlpNames()
    parallel: bool = False
    centred: bool = False
    norm_bias: bool = False
    norm_weight: bool = True
    offset: float = 0.0
    qk_norm: Literal["", "head", "all", "turned"] = ""
    turned_first: bool = False
    output_bias: bool = True
    head_bias: bool = False
    activations: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Any] = field(default_factory=dict)
    windows: Literal["", "all", "last", "every other", "unturned"] | int = ""
    asked: bool = False
    turned: Literal["all", "listed", "windows", "windows or all", ""] = "all"
    plain_in_windows: bool = False
    interleaved: bool = False
    scaled_embeddings: bool = False
    sinks: bool = False
    latent: bool = False
    experts: ExpertNames | None = None
    router: Router = Router()
    variant: Callable[[Family, dict[str, Any]], tuple[Family, dict[str, Any]]] | None = None
