"""Those of the tiny decoders of `decoder_models.py` whose keys and values are latents."""

from decoder_sizes import SIZES
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

MISTRAL_4 = {
    **SIZES,
    "model_type": "mistral4",
    **_LATENT,
    **GROUPED,
    "first_k_dense_replace": 0,
    "q_lora_rank": 24,
    "rope_parameters": {
        "type": "yarn",
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 8,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3,
        "partial_rotary_factor": 0.4,
    },
}
"""The part for texts of one that is a part of a model of images, too."""
