"""What sets the families of decoders apart, beside the sizes in a checkpoint's `config.json`.

Each row is what the models of one `model_type` compute and how their weights are called, as their
papers and reference code have it; a new family is a new row. Those with a mixture of experts in
their layers are in `heddle.pipelines.models.decoder.mixtures`, those whose norms are layer norms
with biases in `heddle.pipelines.models.decoder.layer_norms`.
"""

from __future__ import annotations

from heddle.pipelines.models.decoder.layer_norms import LAYER_NORM, WITH_LAYER_NORMS
from heddle.pipelines.models.decoder.mixtures import MIXTURES
from heddle.pipelines.models.decoder.traits import (
    AttentionNames,
    Family,
    MlpNames,
    NormNames,
)

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

_QWEN2_VL = Family(
    {"sliding_window": 4096, "max_window_layers": 80, "rope_theta": 1e6, "attention_bias": True},
    output_bias=False,
    windows="last",
    asked=True,
)

_MINISTRAL_3 = {
    "rope_type": "yarn",
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}

_DENSE: dict[str, Family] = {
    # arXiv:2307.09288, arXiv:2407.21783
    "llama": Family(),
    # arXiv:2310.06825
    "mistral": Family({"sliding_window": 4096}, windows="all"),
    # arXiv:2407.10671
    "qwen2": Family(
        {**_QWEN, "attention_bias": True}, output_bias=False, windows="last", asked=True
    ),
    # arXiv:2409.12191, arXiv:2502.13923
    "qwen2_vl": _QWEN2_VL,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    # arXiv:2505.09388
    "qwen3": Family({**_QWEN, "head_dim": 128}, qk_norm="head", windows="last", asked=True),
    # arXiv:2511.21631
    "qwen3_vl_text": Family({"rope_theta": 500000.0, "head_dim": 128}, qk_norm="head"),
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
            # Checkpoints with images leave these out.
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
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
    "phi3": Family(
        attention=AttentionNames(joined="qkv_proj"),
        mlp=MlpNames(joined="gate_up_proj"),
        windows="all",
    ),
    # arXiv:2501.00656
    "olmo2": Family(norms=_BEHIND, qk_norm="all"),
    "olmo3": Family(
        {"rope_theta": 500000.0, "sliding_window": 4096},
        norms=_BEHIND,
        qk_norm="all",
        windows=4,
        plain_in_windows=True,
    ),
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
    "glm": Family(_GLM, mlp=MlpNames(joined="gate_up_proj"), output_bias=False, interleaved=True),
    "glm4": Family(
        _GLM,
        norms=NormNames(
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
        mlp=MlpNames(joined="gate_up_proj"),
        output_bias=False,
        interleaved=True,
    ),
    # arXiv:2504.00698
    "cohere": Family(
        {**_COHERE, "rope_theta": 500000.0},
        LAYER_NORM,
        norms=NormNames(before_mlp=""),
        parallel=True,
        centred=True,
        interleaved=True,
    ),
    "cohere2": Family(
        {**_COHERE, "sliding_window": 4096},
        LAYER_NORM,
        norms=NormNames(before_mlp=""),
        parallel=True,
        centred=True,
        windows=4,
        turned="windows",
        interleaved=True,
    ),
    # arXiv:2402.00838
    "olmo": Family({"rms_norm_eps": 1e-5}, centred=True, norm_weight=False),
    # arXiv:2507.11407
    "exaone4": Family(
        {"sliding_window": 4096},
        norms=_BEHIND,
        qk_norm="head",
        windows=4,
        turned="windows or all",
    ),
    # https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf
    "ernie4_5": Family(
        {"head_dim": 128, "rope_theta": 500000.0, "tie_word_embeddings": True},
        refused={"use_bias": False},
        interleaved=True,
    ),
    # https://huggingface.co/tencent/Hunyuan-7B-Instruct
    "hunyuan_v1_dense": Family(
        attention=AttentionNames(query_norm="query_layernorm", key_norm="key_layernorm"),
        qk_norm="head",
        turned_first=True,
        refused={"use_cla": False},
    ),
    # arXiv:2509.14233
    "apertus": Family(
        {
            "hidden_act": "xielu",
            "rope_theta": 12e6,
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
        },
        norms=NormNames("attention_layernorm", before_mlp="feedforward_layernorm"),
        mlp=MlpNames(gate=""),
        qk_norm="head",
    ),
    # https://huggingface.co/arcee-ai/AFM-4.5B
    "arcee": Family({"hidden_act": "relu2"}, mlp=MlpNames(gate="")),
    # https://huggingface.co/kyutai/helium-1-2b
    "helium": Family(
        {"head_dim": 128, "rope_theta": 100000.0}, output_bias=False, interleaved=True
    ),
    # https://huggingface.co/mistralai/Ministral-8B-Instruct-2410
    "ministral": Family({"sliding_window": 4096}, windows="all"),
    # https://huggingface.co/mistralai/Ministral-3-8B-Instruct-2512
    "ministral3": Family(
        {"head_dim": 128, "rope_theta": 1e6, "rope_parameters": _MINISTRAL_3}, windows="all"
    ),
}

FAMILIES = {**_DENSE, **WITH_LAYER_NORMS, **MIXTURES}
"""Each family by its `model_type`."""
