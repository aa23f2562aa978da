"""Families of decoders whose layers have a mixture of experts, as in `families`."""

from __future__ import annotations

from dataclasses import replace

from heddle.pipelines.models.decoder import variants
from heddle.pipelines.models.decoder.traits import (
    AttentionNames,
    ExpertNames,
    Family,
    MlpNames,
    Router,
)

_BLOCK = ExpertNames(
    "block_sparse_moe.gate", experts="block_sparse_moe.experts", gate="w1", up="w3", down="w2"
)

_CORRECTED = ExpertNames(
    correction="mlp.gate.e_score_correction_bias", shared=MlpNames("mlp.shared_experts")
)

_DEEPSEEK = Router("sigmoid", best=2)
"""Of DeepSeek-V3 (arXiv:2412.19437)."""

_LATENT = Family(
    {
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
    },
    refused={"moe_layer_freq": 1},
    interleaved=True,
    latent=True,
    experts=_CORRECTED,
    router=_DEEPSEEK,
)

_GRANITE = ExpertNames(
    "block_sparse_moe.router.layer",
    experts="block_sparse_moe",
    joined="input_linear",
    down="output_linear",
)

_QWEN = {"head_dim": 128, "sliding_window": 4096}

MIXTURES: dict[str, Family] = {
    # arXiv:2401.04088
    "mixtral": Family(
        {"rope_theta": 1e6, "norm_topk_prob": True},
        refused={"norm_topk_prob": True},
        windows="all",
        experts=_BLOCK,
    ),
    # arXiv:2407.10671
    "qwen2_moe": Family(
        {"sliding_window": 4096, "max_window_layers": 28, "attention_bias": True},
        {"qkv_bias": "attention_bias"},
        output_bias=False,
        windows="every other",
        asked=True,
        experts=ExpertNames(
            shared=MlpNames("mlp.shared_expert"), shared_gate="mlp.shared_expert_gate"
        ),
    ),
    # arXiv:2505.09388
    "qwen3_moe": Family(_QWEN, qk_norm="head", windows="all", asked=True, experts=ExpertNames()),
    # arXiv:2511.21631
    "qwen3_vl_moe_text": Family(
        {"rope_theta": 500000.0, "norm_topk_prob": True, "tie_word_embeddings": True},
        refused={"norm_topk_prob": True},
        qk_norm="head",
        experts=ExpertNames(joined="gate_up_proj"),
    ),
    # arXiv:2409.02060
    "olmoe": Family(qk_norm="all", experts=ExpertNames()),
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
        experts=ExpertNames("mlp.router", joined="gate_up_proj", in_turns=True),
    ),
    # arXiv:2405.04434
    "deepseek_v2": Family(
        {"n_shared_experts": 2, "topk_method": "greedy"},
        refused={"moe_layer_freq": 1, "norm_topk_prob": False},
        interleaved=True,
        latent=True,
        experts=ExpertNames(shared=MlpNames("mlp.shared_experts")),
    ),
    # arXiv:2412.19437, arXiv:2507.20534
    "deepseek_v3": _LATENT,
    "kimi_k2": _LATENT,
    # https://huggingface.co/zai-org/GLM-4.7-Flash
    "glm4_moe_lite": replace(
        _LATENT,
        defaults={
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.8,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        },
    ),
    # https://huggingface.co/mistralai/Mistral-Small-4-119B-2603
    "mistral4": replace(
        _LATENT,
        defaults={
            "norm_topk_prob": True,
            "n_shared_experts": 1,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 128.0,
                "original_max_position_embeddings": 8192,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
        refused={},
        experts=ExpertNames(joined="gate_up_proj", shared=MlpNames("mlp.shared_experts")),
        router=Router(best=2),
    ),
    # arXiv:2508.06471
    "glm4_moe": Family(
        {
            "partial_rotary_factor": 0.5,
            "use_qk_norm": False,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "n_shared_experts": 1,
        },
        qk_norm="head",
        output_bias=False,
        experts=_CORRECTED,
        router=_DEEPSEEK,
    ),
    # https://ai.meta.com/blog/llama-4-multimodal-intelligence/
    "llama4_text": Family(
        {
            "head_dim": 128,
            "rope_theta": 500000.0,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "attn_temperature_tuning": True,
            "attn_scale": 0.1,
            "floor_scale": 8192,
            "intermediate_size_mlp": 16384,
            "num_experts": 16,
            "num_experts_per_tok": 1,
            "n_shared_experts": 1,
        },
        {"interleave_moe_layer_step": "decoder_sparse_step"},
        mlp=MlpNames("feed_forward"),
        qk_norm="turned",
        turned="listed",
        interleaved=True,
        experts=ExpertNames(
            "feed_forward.router",
            experts="feed_forward.experts",
            joined="gate_up_proj",
            shared=MlpNames("feed_forward.shared_expert"),
        ),
        router=Router("sigmoid", inputs=True),
        variant=variants.llama4,
    ),
    # arXiv:2506.05767
    "dots1": Family(
        {"sliding_window": 4096, "max_window_layers": 62},
        qk_norm="head",
        windows="last",
        experts=_CORRECTED,
        router=_DEEPSEEK,
    ),
    # https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf
    "ernie4_5_moe": Family(
        {
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
            "norm_topk_prob": True,
            "least_share": 1e-12,
        },
        {
            "moe_k": "num_experts_per_tok",
            "moe_num_experts": "num_experts",
            "moe_num_shared_experts": "n_shared_experts",
            "moe_layer_start_index": "first_k_dense_replace",
            "moe_layer_interval": "decoder_sparse_step",
            "moe_norm_min": "least_share",
        },
        refused={"use_bias": False, "norm_topk_prob": True},
        interleaved=True,
        experts=ExpertNames(
            correction="mlp.moe_statics.e_score_correction_bias",
            correction_dims=2,
            shared=MlpNames("mlp.shared_experts"),
        ),
    ),
    # https://huggingface.co/tencent/Hunyuan-A13B-Instruct
    "hunyuan_v1_moe": Family(
        {"n_shared_experts": 1, "norm_topk_prob": True},
        {"moe_topk": "num_experts_per_tok", "num_shared_expert": "n_shared_experts"},
        attention=AttentionNames(query_norm="query_layernorm", key_norm="key_layernorm"),
        qk_norm="head",
        turned_first=True,
        refused={"norm_topk_prob": True, "use_cla": False, "moe_layer_num_skipped": 0},
        experts=ExpertNames("mlp.gate.wg", shared=MlpNames("mlp.shared_mlp")),
    ),
    # https://huggingface.co/ibm-granite/granite-3.0-3b-a800m-instruct
    "granitemoe": Family(
        {"attention_multiplier": 1.0, "norm_topk_prob": True},
        refused={"norm_topk_prob": True},
        experts=_GRANITE,
    ),
    "granitemoeshared": Family(
        {"attention_multiplier": 1.0, "norm_topk_prob": True},
        {"shared_intermediate_size": "shared_expert_intermediate_size"},
        refused={"norm_topk_prob": True},
        experts=replace(
            _GRANITE,
            shared=MlpNames("shared_mlp", down="output_linear", joined="input_linear"),
        ),
    ),
    # https://huggingface.co/MiniMaxAI/MiniMax-M2
    "minimax_m2": Family(
        {"head_dim": 128, "rope_theta": 5e6, "norm_topk_prob": True},
        refused={"norm_topk_prob": True},
        qk_norm="all",
        experts=replace(_BLOCK, correction="block_sparse_moe.e_score_correction_bias"),
        router=Router("sigmoid"),
    ),
}
"""Each family by its `model_type`."""
