"""Records what tiny decoders of each family compute in `decoders.npz`, by transformers.

    pip install torch==2.13.0 transformers numpy
    python tests/golden/make_decoders.py

Those of `decoder_models.py`, with weights that `decoder_weights.py` draws, so that none are
recorded. A model runs in float64 from its float32 weights; results are rounded to float32 once. For
each model `NAME` there is `NAME.config`, its configuration as JSON (UTF-8 in uint8); `NAME.tokens`
int64, a random prompt and after it 64 tokens, or 16 where it is only evaluated, each the likeliest
one; `NAME.logits` float32 [tokens, vocabulary], those of each token's successor; and `NAME.gap`
float64, the least difference between the best and the second best logit of these steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from decoder_models import COMPILED, EVALUATED
from decoder_sizes import SIZES
from decoder_weights import weight
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
)

PROMPT, STEPS, FEW_STEPS = 23, 64, 16

_GRANITE = {
    "block_sparse_moe.router.": "block_sparse_moe.router.layer.",
    "block_sparse_moe.experts.gate_up_proj": "block_sparse_moe.input_linear.weight",
    "block_sparse_moe.experts.down_proj": "block_sparse_moe.output_linear.weight",
}

NAMES = {
    "mixtral": {".mlp.": ".block_sparse_moe."},
    "minimax_m2": {".mlp.": ".block_sparse_moe."},
    "ernie4_5_moe": {"mlp.gate.moe_statics": "mlp.moe_statics"},
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "gpt_neox": {"lm_head": "embed_out"},
}
"""Parts of a module's names, and of a checkpoint's for them, by `model_type`."""


def drawn(name: str, shape: tuple[int, ...], config: PretrainedConfig) -> np.ndarray:
    """The weight `name` of a module, which may be several of those that checkpoints have."""
    kind = config.get_text_config().model_type
    name = name.replace("language_model.", "")
    for part, other in NAMES.get(kind, {}).items():
        name = name.replace(part, other)
    if kind == "gpt2" and ".c_" in name and len(shape) == 2:
        return weight(name, shape[::-1]).T
    at, _, last = name.rpartition(".")
    if not at.endswith("experts") or last.endswith("bias"):
        return weight(name, shape)
    parts: tuple[str, ...] = (last,)
    if kind in ("mixtral", "minimax_m2"):
        parts = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)}[last]
    elif kind in ("gpt_oss", "llama4_text"):
        return np.swapaxes(weight(f"{name}.weight", (shape[0], shape[2], shape[1])), 1, 2)
    elif last == "gate_up_proj" and kind not in ("qwen3_vl_moe_text", "mistral4"):
        parts = ("gate_proj", "up_proj")
    size = (shape[0], shape[1] // len(parts), shape[2])
    return np.concatenate([weight(f"{at}.{part}.weight", size) for part in parts], axis=1)


def record(name: str, changes: dict[str, object], steps: int) -> dict[str, np.ndarray]:
    """The arrays of one model."""
    texts_alone = "text_config" not in changes
    own_sizes = not texts_alone or "vocab_size" in changes
    values = changes if own_sizes else {**SIZES, "hidden_act": "silu", **changes}
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    text = json.dumps(values)
    config = AutoConfig.for_model(**json.loads(text), **eager)
    auto = AutoModelForCausalLM if texts_alone else AutoModelForImageTextToText
    model = auto.from_config(config, **eager).eval()
    left = ("visual.", "vision_tower.", "multi_modal_projector.")
    left += ("lm_head.",) if config.tie_word_embeddings else ()
    state = {
        key: torch.from_numpy(np.asarray(drawn(key, tuple(value.shape), config)))
        for key, value in model.state_dict().items()
        if not any(part in key for part in left)
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(any(part in key for part in left) for key in missing)
    model = model.double()
    sizes = config.get_text_config()
    tokens = np.random.default_rng(7).integers(0, sizes.vocab_size, PROMPT)
    gaps = []
    with torch.no_grad():
        for _ in range(steps):
            last = model(torch.from_numpy(tokens)[None]).logits[0, -1].numpy()
            second, best = np.sort(last)[-2:]
            gaps.append(best - second)
            tokens = np.append(tokens, last.argmax())
        logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    print(name, "least gap", min(gaps), "largest logit", np.abs(logits).max(), tokens[-20:])
    return {
        f"{name}.config": np.frombuffer(text.encode(), np.uint8),
        f"{name}.tokens": tokens,
        f"{name}.logits": logits.astype(np.float32),
        f"{name}.gap": np.float64(min(gaps)),
    }


def main() -> None:
    """Computes the references and writes the file next to this script."""
    arrays: dict[str, np.ndarray] = {}
    for name, changes in COMPILED.items():
        arrays |= record(name, changes, STEPS)
    for name, changes in EVALUATED.items():
        arrays |= record(name, changes, FEW_STEPS)
    np.savez_compressed(Path(__file__).with_name("decoders.npz"), **arrays)


if __name__ == "__main__":
    main()
