"""The part of a model of images and texts that texts go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.runtime.errors import GraphError

TIED = "tie_word_embeddings"
"""The key for embeddings that make logits, too."""

WITH_TEXT = {
    "aya_vision": True,
    "gemma3": True,
    "idefics3": False,
    "internvl": True,
    "llama4": False,
    "llava": False,
    "llava_next": False,
    "llava_onevision": False,
    "mistral3": True,
    "qwen2_vl": False,
    "qwen2_5_vl": False,
    "qwen3_vl": False,
    "qwen3_vl_moe": False,
    "smolvlm": False,
}
"""Models of images, too, that texts alone go through as through the family of `text_config`.

Beside each is what `tie_word_embeddings` is where the configuration does not say.
"""

_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}

LEFT_OUT: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {
        **_LLAMA,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "qwen2": {
        **_LLAMA,
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "max_position_embeddings": 32768,
    },
}
"""What a `text_config` of these types may leave out: what transformers has by default.

The checkpoints of LLaVA, which are older than its version 5, do.
"""


def text_part(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a `config.json` says of the part that texts go through: all, or its `text_config`."""
    text = values.get("text_config")
    kind = values.get("model_type")
    if text is None or not isinstance(kind, str) or kind not in WITH_TEXT:
        return values
    if not isinstance(text, dict):
        raise GraphError(f"text_config: wanted a JSON object, got {text!r}")
    said = (values.get(TIED), text.get(TIED), WITH_TEXT[kind])
    sizes = LEFT_OUT.get(str(text.get("model_type")), {})
    return {**sizes, **text, TIED: next(tied for tied in said if tied is not None)}
