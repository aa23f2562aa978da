"""The architectures of GGUF files, and what sets their keys and tensors apart (see `config`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heddle.runtime.errors import GraphError

Values = dict[str, Any]

SOFTMAX, SIGMOID = 1, 2
"""What `expert_gating_func` says that makes scores of experts."""

GATING, SPREAD = "expert_gating_func", "rope.scaling.yarn_log_multiplier"
"""The keys for that, and for how much YaRN sharpens attention."""

SECTIONS = "rope.dimension_sections"
"""The key for how many pairs turn by the position along each axis of a picture."""

GROWTH = "attention.temperature_scale"
"""The key for how queries grow behind the positions of the first training."""

FLASH_LAYERS, FLASH_TOKENS = (47, 48), 154880
"""Of GLM-4.7-Flash, whose files do not say what makes scores: llama.cpp knows it by these."""

_EXPERTS = {
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_norm": "norm_topk_prob",
    "expert_weights_scale": "routed_scaling_factor",
}
"""Keys for experts beside those that all mixtures have."""

_UNSAID = {
    "norm_topk_prob": False,
    "first_k_dense_replace": 0,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}
"""What a mixture does where the file says nothing, as in llama.cpp; which layers have one, tensors
say."""

_LATENT = {
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    GATING: GATING,
    SPREAD: SPREAD,
    **_EXPERTS,
}


def _of_largest(layers: int) -> Callable[[Values, Values], Values]:
    """Gemma's scale of scores, which only the model of so many layers has not from its heads."""

    def found(values: Values, given: Values) -> Values:
        size = values["head_dim"]
        if values["num_hidden_layers"] == layers:
            size = values["hidden_size"] / max(values["num_attention_heads"], 1)
        return {"query_pre_attn_scalar": size}

    return found


def _of_llama(values: Values, given: Values) -> Values:
    """Mistral and Mixtral have the same name as Llama."""
    if values.get("num_experts"):
        return {"model_type": "mixtral"}
    return {"model_type": "mistral"} if values.get("sliding_window") else {}


def _of_olmo(values: Values, given: Values) -> Values:
    """OLMo 3 is OLMo 2 with windows."""
    return {"model_type": "olmo3"} if values.get("sliding_window") else {}


def _of_deepseek(values: Values, given: Values) -> Values:
    """DeepSeek-V2 and V3, and those that are like V3 but for their sizes."""
    gating = given.get(GATING, 0)
    flash = values["num_hidden_layers"] in FLASH_LAYERS and values["vocab_size"] == FLASH_TOKENS
    v3 = gating == SIGMOID or (not gating and flash)
    if not v3 and gating not in (0, SOFTMAX):
        raise GraphError(f"{GATING}: wanted {SOFTMAX} or {SIGMOID}, got {gating}")
    found = {"model_type": "deepseek_v3" if v3 else "deepseek_v2", **_of_latents(values, given)}
    if not v3 and values.get("n_group", 1) > 1:
        found["topk_method"] = "group_limited_greedy"
    return found


def _of_glm(values: Values, given: Values) -> Values:
    """GLM-4V, whose positions have sections: its files have the pairs that turn in halves."""
    return {"rope_interleave": False} if any(given.get(SECTIONS, ())) else {}


def _of_latents(values: Values, given: Values) -> Values:
    """The sizes of heads, and YaRN.

    A cache of latents has one head of `attention.key_length`; those of queries have other keys, but
    not in older files, whose cache had none of latents.
    """
    turned = given.get("rope.dimension_count", 0)
    head, columns = (
        given.get(f"attention.{name}_length_mla", given.get(f"attention.{name}_length", 0))
        for name in ("key", "value")
    )
    spread = round(10 * given.get(SPREAD, 0.0), 9)  # The file has a tenth of it.
    return {
        "qk_nope_head_dim": head - turned,
        "qk_rope_head_dim": turned,
        "v_head_dim": columns,
        "partial_rotary_factor": None,
        **_yarn(values, spread, spread),
    }


def _yarn(values: Values, magnitude: float, spread: float) -> Values:
    """YaRN with this `mscale` and `mscale_all_dim`; files have the second alone."""
    scaling = values.get("rope_scaling", {})
    if scaling.get("rope_type") != "yarn":
        return {}
    if not spread:
        raise GraphError(f"{SPREAD}: wanted that of a model with YaRN, got none")
    return {"rope_scaling": {**scaling, "mscale": magnitude, "mscale_all_dim": spread}}


def _grown(given: Values, found: Values) -> Values:
    """What was found, and how queries grow, which depends on YaRN's first positions."""
    gain, scaling = given.get(GROWTH, 0.0), found.get("rope_scaling")
    if not gain:
        return found
    if scaling is None:
        raise GraphError(f"{GROWTH}: wanted YaRN beside it, got none")
    return {**found, "rope_scaling": {**scaling, "llama_4_scaling_beta": gain}}


def _of_ministral(values: Values, given: Values) -> Values:
    """Ministral 3, and Mistral Small 3, which has no YaRN."""
    return _grown(given, _yarn(values, 1.0, given.get(SPREAD, 0.0)))


def _of_mistral_4(values: Values, given: Values) -> Values:
    """Mistral Small 4."""
    return _grown(given, _of_latents(values, given))


def _of_ernie(values: Values, given: Values) -> Values:
    """A shared expert is as large as so many others; files have another size for it."""
    return {"shared_expert_intermediate_size": None}


def _of_oss(values: Values, given: Values) -> Values:
    """The ends of its ramp are no whole numbers, which files do not say."""
    scaling = values.get("rope_scaling")
    return {"rope_scaling": {**scaling, "truncate": False}} if scaling else {}


@dataclass(frozen=True)
class Architecture:
    """What a model is that has this name in a file.

    Attributes:
        model_type: Its family's name.
        paired: Rows of queries and keys are put in pairs that turn together.
        constants: What is so unless the file says otherwise.
        derived: What follows from the rest, and from the file's own keys.
        others: Further keys that count, and what they are called here.
        refused: Keys of what is computed in one way alone, and the value that says so.
        said_by_tensors: Such keys that do not count: what is missing is a tensor then.
        before_mlp: What the norm before the feed-forward part is called.
    """

    model_type: str
    paired: bool = False
    constants: Mapping[str, Any] = field(default_factory=dict)
    derived: Callable[[Values, Values], Values] = lambda values, given: {}
    others: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Any] = field(default_factory=dict)
    said_by_tensors: Sequence[str] = ()
    before_mlp: str = "ffn_norm"


_POST = "post_attention_norm"

ARCHITECTURES = {
    "llama": Architecture("llama", paired=True, derived=_of_llama),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture("qwen2_moe", constants={"norm_topk_prob": False}),
    "qwen2vl": Architecture("qwen2_vl_text"),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe", constants={"norm_topk_prob": True}),
    "qwen3vl": Architecture("qwen3_vl_text"),
    "qwen3vlmoe": Architecture("qwen3_vl_moe_text"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", derived=_of_largest(46)),
    "gemma3": Architecture("gemma3_text", derived=_of_largest(62)),
    "phi3": Architecture("phi3"),
    "olmo2": Architecture("olmo2", derived=_of_olmo),
    "olmoe": Architecture("olmoe", constants={"norm_topk_prob": False}),
    "granite": Architecture("granite", paired=True),
    "deepseek2": Architecture(
        "deepseek_v3", constants=_UNSAID, derived=_of_deepseek, others=_LATENT
    ),
    "mistral3": Architecture(
        "ministral3", paired=True, derived=_of_ministral, others={GROWTH: GROWTH, SPREAD: SPREAD}
    ),
    "mistral4": Architecture(
        "mistral4",
        constants=_UNSAID,
        derived=_of_mistral_4,
        others={GROWTH: GROWTH, **{key: name for key, name in _LATENT.items() if key != GATING}},
    ),
    "gpt-oss": Architecture("gpt_oss", derived=_of_oss, before_mlp=_POST),
    "glm4moe": Architecture(
        "glm4_moe",
        constants=_UNSAID,
        others=_EXPERTS,
        refused={GATING: SIGMOID},
        before_mlp=_POST,
    ),
    "dots1": Architecture("dots1", constants=_UNSAID, others=_EXPERTS, refused={GATING: SIGMOID}),
    "minimax-m2": Architecture("minimax_m2", refused={GATING: SIGMOID}),
    "smollm3": Architecture("smollm3", paired=True),
    "seed_oss": Architecture("seed_oss", before_mlp=_POST),
    "arcee": Architecture("arcee", paired=True),
    "glm4": Architecture("glm4", derived=_of_glm),
    "ernie4_5": Architecture("ernie4_5"),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "command-r": Architecture("cohere", others={"logit_scale": "logit_scale"}),
    "cohere2": Architecture("cohere2", others={"logit_scale": "logit_scale"}),
    "exaone4": Architecture("exaone4"),
    "ernie4_5-moe": Architecture(
        "ernie4_5_moe",
        constants={"first_k_dense_replace": 0, "n_shared_experts": 0},
        derived=_of_ernie,
        others={"expert_shared_count": "n_shared_experts"},
    ),
    # The size of its shared expert is what the file says.
    "hunyuan-moe": Architecture("hunyuan_v1_moe", constants={"n_shared_experts": 0}),
    "granitemoe": Architecture("granitemoe", paired=True),
    "starcoder2": Architecture("starcoder2"),
    "stablelm": Architecture("stablelm", said_by_tensors=("use_parallel_residual",)),
    "nemotron": Architecture("nemotron"),
    "phi2": Architecture("phi"),
    "olmo": Architecture("olmo", paired=True, others={"attention.clamp_kqv": "clip_qkv"}),
}
"""What is read, by `general.architecture`."""
