"""Those of the tiny decoders of `decoder_models.py` that have a mixture of experts."""

GROUPED = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 48,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 3,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
}

COMPILED_MIXTURES = {
    "mixtral": {
        "model_type": "mixtral",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 4,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 2,
        "norm_topk_prob": False,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "num_hidden_layers": 3,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 6, "num_experts_per_tok": 2},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "head_dim": 16,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "sliding_window": 24,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "truncate": False,
        },
    },
    "glm4_moe": {"model_type": "glm4_moe", "head_dim": 32, "use_qk_norm": True, **GROUPED},
}

EVALUATED_MIXTURES = {
    "dots1": {
        "model_type": "dots1",
        "head_dim": 32,
        "sliding_window": None,
        **GROUPED,
        "n_group": 1,
        "topk_group": 1,
    },
    "ernie4_5_moe": {
        "model_type": "ernie4_5_moe",
        "num_hidden_layers": 3,
        "moe_intermediate_size": 48,
        "moe_num_experts": 8,
        "moe_k": 3,
        "moe_layer_end_index": 1,
        "tie_word_embeddings": True,
    },
    "hunyuan_moe": {
        "model_type": "hunyuan_v1_moe",
        "head_dim": 32,
        "num_experts": 6,
        "moe_topk": [2, 2],
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    },
    "granitemoe": {
        "model_type": "granitemoe",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
    },
    "granitemoeshared": {
        "model_type": "granitemoeshared",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 96,
        "attention_multiplier": 0.2,
    },
    "minimax_m2": {
        "model_type": "minimax_m2",
        "head_dim": 32,
        "rotary_dim": 16,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
    },
}
