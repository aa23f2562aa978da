"""What a GGUF file says of its model, by the keys of a `config.json`.

llama.cpp's converter (conversion/ of the llama.cpp project) says what becomes of a configuration,
and its graphs (src/models) what they take for granted.
"""

from __future__ import annotations

import re

import numpy as np

from heddle.pipelines.gguf.architectures import ARCHITECTURES, Architecture, Values
from heddle.pipelines.gguf.file import GgufFile
from heddle.pipelines.models.config_checks import MORE
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.quantization import bits_of, widened
from heddle.pipelines.stored.gguf import DTYPES, floats_of
from heddle.runtime.errors import GraphError

NEEDED = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
"""Keys that each model has behind the name of its architecture, and what they are called here."""

OTHERS = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.scale": "attention_multiplier",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "embedding_scale": "embedding_multiplier",
    "expert_count": "num_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_used_count": "num_experts_per_tok",
    "final_logit_softcapping": "final_logit_softcapping",
    "logit_scale": "logits_scaling",
    "residual_scale": "residual_multiplier",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
}
"""Keys that some have."""

EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
"""Keys of which each model has one, by its norms: RMS norms or layer norms."""

LATER = "nextn_predict_layers"
"""The key for how many layers there are behind those of the model, which guess later tokens."""

MAGNITUDE = "rope.scaling.yarn_attn_factor"
"""The key of what YaRN multiplies cosines and sines by, if that does not follow from the rest."""

NUMBERS = (
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    MAGNITUDE,
)
"""Keys that say more than one of ours, or that count in some models alone."""

REFUSED = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.group_norm_groups": 0,
    "attention.temperature_scale": 0.0,
    "expert_gating_func": 1,
    "expert_weights_scale": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "use_parallel_residual": False,
}
"""Keys of what these graphs do not compute, and the value that says so; 1 is softmax."""

PLAIN = re.compile(r"blk\.(\d{1,9})\.ffn_down\.weight")
"""The name of a tensor of those layers that have no mixture of experts."""

THETA = 10000.0
"""The base of rotation where the file says none."""

FREQUENCIES = "rope_freqs.weight"
"""The tensor with what the frequency of each pair is divided by."""

SHORT, LONG = "rope_factors_short.weight", "rope_factors_long.weight"
"""Those for texts as long as the model was first trained on, and for longer ones."""


def architecture(file: GgufFile) -> Architecture:
    """What the model of a file is.

    Raises:
        GraphError: It is none of those that are read.
    """
    name = file.value("general.architecture", str)
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise GraphError(f"{file.path}: general.architecture: wanted one of {known}, got {name!r}")
    return ARCHITECTURES[name]


def values_of(file: GgufFile) -> Values:
    """The keys and values of a `config.json` for the model of a file.

    Raises:
        GraphError: It is one that is not read.
        ArtifactError: Something that each model has is missing.
    """
    row, name = architecture(file), file.values["general.architecture"]
    given = {
        key.removeprefix(f"{name}."): _decimal(value) if type(value) is float else value
        for key, value in file.values.items()
        if key.startswith(f"{name}.")
    }
    epsilon = EPSILONS[FAMILIES[row.model_type].centred]
    missing = [key for key in (*NEEDED, epsilon) if key not in given]
    if missing:
        raise file.bad(f"wanted {name}.{missing[0]}, got none")
    for key, value in {**REFUSED, **row.refused}.items():
        if key in row.others or key in row.said_by_tensors:
            continue
        if given.get(key, value) != value:
            raise GraphError(f"{file.path}: {name}.{key}: wanted {value}, got {given[key]!r}")
    keys = {**NEEDED, epsilon: "rms_norm_eps", **OTHERS, **row.others}
    for key in (*keys, *NUMBERS, LATER):
        if type(given.get(key, 0)) not in (int, float, bool):
            raise GraphError(
                f"{file.path}: {name}.{key}: wanted one number for all layers, got "
                f"{given[key]!r:.80}"
            )
    values: Values = {
        ours: given[key]
        for key, ours in keys.items()
        if key in given and (given[key] or not key.startswith("expert"))
    }
    values["num_hidden_layers"] -= given.get(LATER, 0)
    values[MORE] = given.get(LATER, 0)
    values.setdefault("head_dim", values["hidden_size"] // max(1, values["num_attention_heads"]))
    values.setdefault("rope_theta", THETA)
    latent = "attention.kv_lora_rank" in row.others
    if not latent and given.get("attention.value_length", values["head_dim"]) != values["head_dim"]:
        raise GraphError(
            f"{file.path}: {name}.attention.value_length: wanted {values['head_dim']} as for keys, "
            f"got {given['attention.value_length']!r}"
        )
    # A file says how positions are stretched, or that they are not.
    values["rope_parameters"] = {}
    values = {"model_type": row.model_type, **row.constants, **values, **_of_tensors(file)}
    values |= _rotation(file, given, values["head_dim"])
    values |= row.derived(values, given)
    if FAMILIES[values["model_type"]].qk_norm:
        values["use_qk_norm"] = "blk.0.attn_q_norm.weight" in file.tensors
    _check_windows(file, values)
    pattern = given.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        values["layer_types"] = [
            "sliding_attention" if slides else "full_attention" for slides in pattern
        ]
    elif pattern is not None:
        values["sliding_window_pattern"] = pattern
    return values


def _decimal(value: float) -> float:
    """The shortest decimal that is this in float32, as a file has it: what a `config.json` said."""
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    return float(str(narrow)) if narrow == value else value


def _of_tensors(file: GgufFile) -> Values:
    """What the tensors say: how many tokens there are, and what a model has of its own."""
    embeddings = file.tensors.get("token_embd.weight")
    if embeddings is None:
        raise file.bad("wanted the tensor token_embd.weight, got none")

    def biased(*names: str) -> bool:
        return any(f"blk.0.{name}.bias" in file.tensors for name in names)

    return {
        "vocab_size": embeddings.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": biased("attn_q", "attn_qkv", "attn_q_a"),
        "attention_out_bias": biased("attn_output"),
        "mlp_bias": biased("ffn_down"),
        "mlp_only_layers": [int(match[1]) for match in map(PLAIN.fullmatch, file.tensors) if match],
    }


def _check_windows(file: GgufFile, values: Values) -> None:
    """Refuses a window of keys where the family does not say which layers have one."""
    window, family = values.get("sliding_window"), FAMILIES[values["model_type"]]
    if window and (family.asked or not family.windows):
        raise GraphError(
            f"{file.path}: attention.sliding_window: wanted none of a {values['model_type']} "
            f"model, got {window!r}"
        )


def _rotation(file: GgufFile, given: Values, head: float) -> Values:
    """How many elements of a head are turned, and how positions are stretched."""
    turned = given.get("rope.dimension_count", head)
    # The whole part of the product counts; a head of nothing is refused with the others.
    share = 1.0 if turned == head else (turned + 0.5) / max(head, 1)
    found: Values = {"partial_rotary_factor": share}
    original = given.get("rope.scaling.original_context_length")
    if original is not None:
        found["original_max_position_embeddings"] = original
    scaling = _scaling(file, given)
    return found | ({"rope_scaling": scaling} if scaling else {})


def _scaling(file: GgufFile, given: Values) -> Values:
    """`rope_scaling`; empty where there is none."""
    kind = given.get("rope.scaling.type", "none")
    if FREQUENCIES in file.tensors:  # of Llama 3; LongRoPE divides by the same numbers as given
        if kind != "none":
            raise GraphError(f"{file.path}: rope.scaling.type: wanted none beside {FREQUENCIES}")
        return {
            "rope_type": "longrope",
            "short_factor": _numbers(file, FREQUENCIES),
            "long_factor": _numbers(file, FREQUENCIES),
            "attention_factor": 1.0,
        }
    if LONG in file.tensors:
        return {
            "rope_type": "longrope",
            "short_factor": _numbers(file, SHORT),
            "long_factor": _numbers(file, LONG),
            "attention_factor": given.get("rope.scaling.attn_factor", 1.0),
        }
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise GraphError(
            f"{file.path}: rope.scaling.type: wanted none, linear or yarn, got {kind!r}"
        )
    if given.get("rope.scaling.attn_factor", 1.0) != 1.0:
        raise GraphError(
            f"{file.path}: rope.scaling.attn_factor: wanted 1 beside {kind}, got "
            f"{given['rope.scaling.attn_factor']}"
        )
    names = {"rope.scaling.factor": "factor"}
    names |= {f"rope.scaling.yarn_beta_{end}": f"beta_{end}" for end in ("fast", "slow")}
    if given.get(MAGNITUDE, 1.0) != 1.0:
        names[MAGNITUDE] = "attention_factor"
    return {"rope_type": kind, **{ours: given[key] for key, ours in names.items() if key in given}}


def _numbers(file: GgufFile, name: str) -> list[float]:
    """The values of a tensor of floats."""
    tensor = file.tensors.get(name)
    if tensor is None or tensor.kind not in DTYPES:
        raise file.bad(f"wanted {name} in {', '.join(DTYPES)}, got {tensor and tensor.kind}")
    found: list[float] = np.ravel(widened(bits_of(floats_of(tensor.kind, tensor.rows)))).tolist()
    return found
