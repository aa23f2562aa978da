"""Those of the tiny decoders of `decoder_models.py` whose keys and values are latents."""

from mixture_models import GROUPED

_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
}

COMPILED_LATENTS = {
    "deepseek_v2": {
        "model_type": "deepseek_v2",
        **_LATENT,
        **GROUPED,
        "q_lora_rank": None,
        "topk_method": "greedy",
        "norm_topk_prob": False,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "mscale": 0.7,
            "mscale_all_dim": 1.2,
            "original_max_position_embeddings": 64,
        },
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        **_LATENT,
        **GROUPED,
        "q_lora_rank": 24,
        "attention_bias": True,
    },
}

EVALUATED_LATENTS = {
    "deepseek_v2_groups": {
        "model_type": "deepseek_v2",
        **_LATENT,
        **GROUPED,
        "q_lora_rank": 24,
        "topk_method": "group_limited_greedy",
        "norm_topk_prob": False,
    },
    "glm4_moe_lite": {
        "model_type": "glm4_moe_lite",
        **_LATENT,
        **GROUPED,
        "q_lora_rank": 24,
        "mlp_layer_types": ["sparse", "dense"],
    },
    "deepseek_v3_halves": {
        "model_type": "deepseek_v3",
        **_LATENT,
        **GROUPED,
        "q_lora_rank": None,
        "rope_interleave": False,
    },
}
