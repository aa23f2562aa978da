"""The tiny decoders whose results `make_decoders.py` records: each has the features of its family.

Tests compile the `COMPILED` ones. The `EVALUATED`, whose kernels differ from theirs in sizes and in
what is fused with a product, they evaluate by NumPy.
"""

from decoder_sizes import LLAMA_3
from image_models import IMAGES
from latent_models import COMPILED_LATENTS, EVALUATED_LATENTS
from mixture_models import COMPILED_MIXTURES, EVALUATED_MIXTURES

COMPILED = {
    "llama": {
        "model_type": "llama",
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA_3,
        "head_dim": 16,
    },
    "llama_biased": {
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    "mistral": {
        "model_type": "mistral",
        "sliding_window": 24,
    },
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0, "tie_word_embeddings": True},
    "qwen3": {
        "model_type": "qwen3",
        "rope_theta": 1000000.0,
        "head_dim": 32,
        "tie_word_embeddings": True,
    },
    "yarn": {
        "model_type": "qwen3",
        "head_dim": 32,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
    "gemma": {
        "model_type": "gemma",
        "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh",
    },
    "gemma2": {
        "model_type": "gemma2",
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "sliding_window": 24,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window": 24,
        "sliding_window_pattern": 2,
    },
    "phi3": {
        "model_type": "phi3",
        "original_max_position_embeddings": 512,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 3.0],
            "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        },
        "pad_token_id": 0,
        "sliding_window": 24,
    },
    "phi3_long": {
        "model_type": "phi3",
        "original_max_position_embeddings": 16,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 3.0, 4.0, 5.0],
            "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0],
        },
        "pad_token_id": 0,
    },
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 24,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "attention_factor": 1.2,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 0.5,
    },
    "smollm3": {
        "model_type": "smollm3",
        "num_hidden_layers": 4,
        "rope_theta": 50000.0,
        "pad_token_id": 0,
    },
    "seed_oss": {"model_type": "seed_oss", "head_dim": 16},
    "glm": {"model_type": "glm", "head_dim": 32, "pad_token_id": 0},
    "glm4": {"model_type": "glm4", "head_dim": 32, "pad_token_id": 0},
    "cohere": {"model_type": "cohere", "layer_norm_eps": 1e-5, "logit_scale": 0.4},
    "cohere2": {
        "model_type": "cohere2",
        "num_hidden_layers": 4,
        "layer_norm_eps": 1e-5,
        "sliding_window": 24,
        "logit_scale": 0.4,
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rotary_pct": 0.5,
        "num_key_value_heads": 4,
    },
    "apertus": {"model_type": "apertus", "hidden_act": "xielu"},
    **COMPILED_LATENTS,
    **COMPILED_MIXTURES,
}

FALCON = {
    "model_type": "falcon",
    "vocab_size": 80,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}

EVALUATED = {
    "olmo": {"model_type": "olmo", "clip_qkv": 1.0},
    "exaone4": {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 24},
    "exaone4_whole": {
        "model_type": "exaone4",
        "sliding_window": None,
        "layer_types": ["full_attention"] * 2,
    },
    "ernie4_5": {"model_type": "ernie4_5", "head_dim": 32, "tie_word_embeddings": True},
    "hunyuan": {
        "model_type": "hunyuan_v1_dense",
        "head_dim": 32,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    },
    "arcee": {"model_type": "arcee", "hidden_act": "relu2", "mlp_bias": True},
    "helium": {
        "model_type": "helium",
        "head_dim": 16,
        "rms_norm_eps": 1e-8,
        "attention_bias": True,
    },
    "ministral": {"model_type": "ministral", "head_dim": 32, "sliding_window": 24},
    "ministral3": {
        "model_type": "ministral3",
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 8,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.3,
        },
    },
    "nemotron": {"model_type": "nemotron", "hidden_act": "relu2", "norm_eps": 1e-5},
    "starcoder2": {
        "model_type": "starcoder2",
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-5,
        "sliding_window": 24,
        "tie_word_embeddings": True,
    },
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True, "layer_norm_eps": 1e-5},
    "phi": {
        "model_type": "phi",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "num_key_value_heads": None,
    },
    "gpt_neox_in_turn": {
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": False,
        "num_key_value_heads": 4,
    },
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 80,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 512,
    },
    "falcon": FALCON,
    "falcon_grouped": {
        **FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "ffn_hidden_size": 96,
        "bias": True,
    },
    "falcon_one_norm": {
        **FALCON,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "tie_word_embeddings": False,
    },
    "falcon_in_turn": {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True},
    **EVALUATED_LATENTS,
    **EVALUATED_MIXTURES,
    **IMAGES,
}
