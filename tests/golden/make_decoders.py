"""Records what tiny decoders of each family compute in `decoders.npz`, by transformers.

    pip install torch==2.13.0 transformers numpy
    python tests/golden/make_decoders.py

Each model has the features of its family, and weights that `decoder_weights.py` draws, so that none
are recorded. It runs in float64 from its float32 weights; results are rounded to float32 once. For
each model `NAME` there is `NAME.config`, its configuration as JSON (UTF-8 in uint8); `NAME.tokens`
int64, a random prompt and after it 64 tokens, each the likeliest one; `NAME.logits` float32
[tokens, vocabulary], those of each token's successor; and `NAME.gap` float64, the least difference
between the best and the second best logit of the 64 steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from decoder_weights import weight
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

SIZES = {
    "vocab_size": 80,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}

MODELS = {
    "llama": {
        "model_type": "llama",
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "head_dim": 16,
    },
    "llama_biased": {
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 4,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    "mistral": {
        "model_type": "mistral",
        "sliding_window": 24,
        "head_dim": 32,
        "num_key_value_heads": 1,
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
        "num_key_value_heads": 1,
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
    "mixtral": {
        "model_type": "mixtral",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 4,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 2,
        "norm_topk_prob": False,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "num_hidden_layers": 3,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 6, "num_experts_per_tok": 2},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 24,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "truncate": False,
        },
    },
}

PROMPT, STEPS = 23, 64


def drawn(name: str, shape: tuple[int, ...], config: PretrainedConfig) -> np.ndarray:
    """The weight `name` of a module, which may be several of those that checkpoints have."""
    if config.model_type == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    at, _, last = name.rpartition(".")
    if not at.endswith("experts") or last.endswith("bias"):
        return weight(name, shape)
    parts: tuple[str, ...] = (last,)
    if config.model_type == "mixtral":
        parts = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)}[last]
    elif config.model_type == "gpt_oss":
        return np.swapaxes(weight(f"{name}.weight", (shape[0], shape[2], shape[1])), 1, 2)
    elif last == "gate_up_proj":
        parts = ("gate_proj", "up_proj")
    size = (shape[0], shape[1] // len(parts), shape[2])
    return np.concatenate([weight(f"{at}.{part}.weight", size) for part in parts], axis=1)


def record(name: str, changes: dict[str, object]) -> dict[str, np.ndarray]:
    """The arrays of one model."""
    values = {**SIZES, **changes}
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    config = AutoConfig.for_model(**values, **eager)
    model = AutoModelForCausalLM.from_config(config).eval()
    tied = config.tie_word_embeddings
    state = {
        key: torch.from_numpy(drawn(key, tuple(value.shape), config))
        for key, value in model.state_dict().items()
        if not (tied and key == "lm_head.weight")
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model = model.double()
    tokens = np.random.default_rng(7).integers(0, values["vocab_size"], PROMPT)
    gaps = []
    with torch.no_grad():
        for _ in range(STEPS):
            last = model(torch.from_numpy(tokens)[None]).logits[0, -1].numpy()
            second, best = np.sort(last)[-2:]
            gaps.append(best - second)
            tokens = np.append(tokens, last.argmax())
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    text = json.dumps(values).encode()
    print(name, "least gap", min(gaps), "largest logit", np.abs(logits).max(), tokens[-20:])
    return {
        f"{name}.config": np.frombuffer(text, np.uint8),
        f"{name}.tokens": tokens,
        f"{name}.logits": logits.astype(np.float32),
        f"{name}.gap": np.float64(min(gaps)),
    }


def main() -> None:
    """Computes the references and writes the file next to this script."""
    arrays: dict[str, np.ndarray] = {}
    for name, changes in MODELS.items():
        arrays |= record(name, changes)
    np.savez_compressed(Path(__file__).with_name("decoders.npz"), **arrays)


if __name__ == "__main__":
    main()
