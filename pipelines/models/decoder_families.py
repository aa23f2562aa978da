"""What sets the families of decoders apart, beside the sizes in a checkpoint's `config.json`.

Each row is what the models of one `model_type` compute and how their weights are called, as their
papers and reference code have it; a new family is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


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
class ExpertNames:
    """Where a layer's mixture of experts has its weights.

    Attributes:
        router: The product whose results choose the experts.
        experts: What stands before the names of their products.
        gate: The product that the activation is applied to.
        up: The one that it is multiplied by.
        down: The one behind both.
        joined: The product of gate and up in turns of one row each, where they are one.
        shared: What stands before the products of an expert that all tokens go to.
    """

    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    joined: str = ""
    shared: str = ""


@dataclass(frozen=True)
class Family:
    """What a model does that its sizes do not say.

    Attributes:
        defaults: Values of keys that `config.json` may lack.
        aliases: Other names of keys, and ours for them.
        norms: A layer's norms.
        parallel: Attention and the feed-forward part read the same, and both are added to it.
        centred: Norms are layer norms without a bias, not RMS norms.
        offset: What is added to the weights of norms.
        qk_norm: Queries and keys are normalised: each head by itself, or all heads together.
        output_bias: The product behind attention has a bias where those before it have one.
        fused_qkv: Queries, keys and values are rows of one weight.
        fused_gate: So are the feed-forward part's gate and what it is multiplied by.
        activations: What names of activations stand for, where it is another one.
        refused: Keys of what the models do not compute, and the value that says so.
        windows: Which layers see a window of keys alone: none, all, the last ones from
            `max_window_layers` on, every other one before that, those that do not turn, or all but
            each n-th, n the default of `sliding_window_pattern`.
        asked: They do so only where `use_sliding_window` is true.
        turned: Which layers turn queries and keys by their position: all, those that
            `no_rope_layers` says, or those that see a window.
        plain_in_windows: Layers that see a window turn without scaling, by `rope_local_base_freq`
            where the configuration has it.
        interleaved: Neighbours are turned together, not elements half a head apart.
        scaled_embeddings: Embeddings are multiplied by the square root of their size.
        sinks: Each head has a score that takes its share of the softmax and adds nothing.
        experts: Where the weights of experts are, in a mixture of them.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    norms: NormNames = NormNames()
    parallel: bool = False
    centred: bool = False
    offset: float = 0.0
    qk_norm: Literal["", "head", "all"] = ""
    output_bias: bool = True
    fused_qkv: bool = False
    fused_gate: bool = False
    activations: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Any] = field(default_factory=dict)
    windows: Literal["", "all", "last", "every other", "unturned"] | int = ""
    asked: bool = False
    turned: Literal["all", "listed", "windows"] = "all"
    plain_in_windows: bool = False
    interleaved: bool = False
    scaled_embeddings: bool = False
    sinks: bool = False
    experts: ExpertNames | None = None


_BEHIND = NormNames("", "post_attention_layernorm", "", "post_feedforward_layernorm")

_AROUND = NormNames(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)

_GEMMA = {"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}

_COHERE = {"logit_scale": 0.0625, "tie_word_embeddings": True}

_QWEN = {"sliding_window": 4096, "max_window_layers": 28}

_GLM = {"head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5}

FAMILIES: dict[str, Family] = {
    # arXiv:2307.09288, arXiv:2407.21783
    "llama": Family(),
    # arXiv:2310.06825
    "mistral": Family({"sliding_window": 4096}, windows="all"),
    # arXiv:2401.04088
    "mixtral": Family(
        {"rope_theta": 1e6, "norm_topk_prob": True},
        refused={"norm_topk_prob": True},
        windows="all",
        experts=ExpertNames("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"),
    ),
    # arXiv:2407.10671
    "qwen2": Family(
        {**_QWEN, "attention_bias": True}, output_bias=False, windows="last", asked=True
    ),
    "qwen2_moe": Family(
        {**_QWEN, "attention_bias": True},
        {"qkv_bias": "attention_bias"},
        output_bias=False,
        windows="every other",
        asked=True,
        experts=ExpertNames(shared="mlp.shared_expert"),
    ),
    # arXiv:2505.09388
    "qwen3": Family({**_QWEN, "head_dim": 128}, qk_norm="head", windows="last", asked=True),
    "qwen3_moe": Family(
        {"head_dim": 128, "sliding_window": 4096},
        qk_norm="head",
        windows="all",
        asked=True,
        experts=ExpertNames(),
    ),
    # arXiv:2403.08295
    "gemma": Family(
        _GEMMA,
        {"hidden_activation": "hidden_act"},
        offset=1.0,
        activations={"gelu": "gelu_pytorch_tanh"},
        scaled_embeddings=True,
    ),
    # arXiv:2408.00118
    "gemma2": Family(
        {
            **_GEMMA,
            "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "sliding_window": 4096,
        },
        {"hidden_activation": "hidden_act"},
        norms=_AROUND,
        offset=1.0,
        windows=2,
        scaled_embeddings=True,
    ),
    # arXiv:2503.19786
    "gemma3_text": Family(
        {
            **_GEMMA,
            "query_pre_attn_scalar": 256,
            "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0,
            "sliding_window": 4096,
        },
        {"hidden_activation": "hidden_act"},
        norms=_AROUND,
        offset=1.0,
        qk_norm="head",
        refused={"attn_logit_softcapping": None},
        windows=6,
        plain_in_windows=True,
        scaled_embeddings=True,
    ),
    # arXiv:2404.14219
    "phi3": Family(fused_qkv=True, fused_gate=True, windows="all"),
    # arXiv:2501.00656
    "olmo2": Family(norms=_BEHIND, qk_norm="all"),
    "olmo3": Family(
        {"rope_theta": 500000.0, "sliding_window": 4096},
        norms=_BEHIND,
        qk_norm="all",
        windows=4,
        plain_in_windows=True,
    ),
    # arXiv:2409.02060
    "olmoe": Family(qk_norm="all", experts=ExpertNames()),
    # arXiv:2405.04324
    "granite": Family({"attention_multiplier": 1.0}),
    # https://huggingface.co/blog/smollm3
    "smollm3": Family(
        {"rope_theta": 2e6, "tie_word_embeddings": True, "no_rope_layer_interval": 4},
        windows="unturned",
        asked=True,
        turned="listed",
    ),
    # https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Instruct
    "seed_oss": Family({"head_dim": 128, "attention_bias": True, "attention_out_bias": False}),
    # arXiv:2406.12793
    "glm": Family(_GLM, output_bias=False, fused_gate=True, interleaved=True),
    "glm4": Family(
        _GLM,
        norms=NormNames(
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
        output_bias=False,
        fused_gate=True,
        interleaved=True,
    ),
    # arXiv:2504.00698
    "cohere": Family(
        {**_COHERE, "rope_theta": 500000.0},
        {"layer_norm_eps": "rms_norm_eps"},
        norms=NormNames(before_mlp=""),
        parallel=True,
        centred=True,
        interleaved=True,
    ),
    "cohere2": Family(
        {**_COHERE, "sliding_window": 4096},
        {"layer_norm_eps": "rms_norm_eps"},
        norms=NormNames(before_mlp=""),
        parallel=True,
        centred=True,
        windows=4,
        turned="windows",
        interleaved=True,
    ),
    # arXiv:2508.10925
    "gpt_oss": Family(
        {
            "head_dim": 64,
            "rope_theta": 150000.0,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 32.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
            "attention_bias": True,
            "sliding_window": 128,
            "norm_topk_prob": True,
            "expert_bias": True,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        refused={"norm_topk_prob": True},
        windows=2,
        sinks=True,
        experts=ExpertNames("mlp.router", joined="gate_up_proj"),
    ),
}
"""Each family by its `model_type`."""
