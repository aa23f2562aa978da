"""Records what tiny decoders of the Llama family compute in `decoders.npz`, by transformers.

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
from transformers import AutoConfig, AutoModelForCausalLM

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
}

PROMPT, STEPS = 23, 64


def record(name: str, changes: dict[str, object]) -> dict[str, np.ndarray]:
    """The arrays of one model."""
    values = {**SIZES, **changes}
    config = AutoConfig.for_model(**values, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config).eval()
    tied = config.tie_word_embeddings
    state = {
        key: torch.from_numpy(weight(key, tuple(value.shape)))
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
