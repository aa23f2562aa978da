"""Those of the tiny decoders of `decoder_models.py` that are a part of a model of images, too."""

from decoder_sizes import SIZES
from latent_models import MISTRAL_4

VISION = {
    "depth": 1,
    "hidden_size": 16,
    "embed_dim": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [],
    "image_size": 28,
    "patch_size": 14,
}
"""Of a part for images, which texts do not go through."""

MROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 1000000.0}

IMAGES = {
    "qwen2_vl": {
        "model_type": "qwen2_vl",
        "text_config": {"model_type": "qwen2_vl_text", **SIZES, "rope_parameters": MROPE},
        "vision_config": VISION,
        "tie_word_embeddings": True,
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "text_config": {"model_type": "qwen2_5_vl_text", **SIZES, "rope_parameters": MROPE},
        "vision_config": VISION,
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl",
        "text_config": {
            "model_type": "qwen3_vl_text",
            **SIZES,
            "head_dim": 16,
            "rope_parameters": MROPE,
        },
        "vision_config": VISION,
    },
    "qwen3_vl_moe": {
        "model_type": "qwen3_vl_moe",
        "text_config": {
            "model_type": "qwen3_vl_moe_text",
            **SIZES,
            "head_dim": 16,
            "moe_intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "rope_parameters": MROPE,
        },
        "vision_config": VISION,
    },
    "gemma3_vl": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "vocab_size": 80,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "rms_norm_eps": 1e-5,
            "sliding_window": 24,
            "sliding_window_pattern": 2,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        "vision_config": VISION,
        "image_token_index": 79,
        "boi_token_index": 78,
        "eoi_token_index": 77,
    },
    "mistral3": {
        "model_type": "mistral3",
        "text_config": {"model_type": "mistral", **SIZES, "head_dim": 16, "sliding_window": None},
        "vision_config": {**VISION, "model_type": "pixtral", "head_dim": 8},
        "tie_word_embeddings": False,
    },
    "mistral4": {
        "model_type": "mistral3",
        "text_config": MISTRAL_4,
        "vision_config": {**VISION, "model_type": "pixtral", "head_dim": 8},
        "tie_word_embeddings": False,
    },
}
