"""The weights of a GGUF file by the names that a graph has for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from heddle.pipelines.gguf.architectures import Architecture
from heddle.pipelines.gguf.config import (
    FREQUENCIES,
    LONG,
    SHORT,
    architecture,
    values_of,
)
from heddle.pipelines.gguf.file import GgufFile, Tensor
from heddle.pipelines.models.config_checks import MORE
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.models.decoder.traits import ExpertNames, Family
from heddle.pipelines.quantization import array_of, bits_of, narrowed, widened
from heddle.pipelines.stored.gguf import DTYPES, KEYS, VALUES, Gguf, floats_of, in_halves
from heddle.pipelines.stored.selection import Stored
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    from heddle.pipelines.weights import Array

LEFT = (FREQUENCIES, LONG, SHORT)
"""Tensors that the configuration is made of."""

LATENT = {
    "attn_q_a": "q_a_proj",
    "attn_q_a_norm": "q_a_layernorm",
    "attn_q_b": "q_b_proj",
    "attn_kv_a_mqa": "kv_a_proj_with_mqa",
    "attn_kv_a_norm": "kv_a_layernorm",
    "attn_kv_b": "kv_b_proj",
    "attn_k_b": f"kv_b_proj{KEYS}",
    "attn_v_b": f"kv_b_proj{VALUES}",
}
"""Tensors of attention with latents, and their names in its checkpoints."""

CORRECTION, SINKS = "exp_probs_b", "attn_sinks"
"""What is added to the scores of experts, and sinks: of which ours have no end."""

OF_A_LAYER = re.compile(r"blk\.(\d{1,9})\..*")
"""The name of a tensor of a layer."""

NAME = re.compile(r"(?:blk\.(\d{1,9})\.)?(\w+)\.(weight|bias)")
"""The name of a tensor: its layer, what it is, and whether it is a bias."""


def stored(file: GgufFile) -> Stored:
    """The weights of a file.

    Raises:
        GraphError: Its model is one that is not read, or has other tensors than this.
        ArtifactError: A tensor has another type or shape.
    """
    values = values_of(file)
    row, family = architecture(file), FAMILIES[values["model_type"]]
    heads = values["num_attention_heads"]
    paired = {"q_proj": heads, "k_proj": values.get("num_key_value_heads", heads)}
    paired = paired if row.paired else {}
    outside, inside = outside_of(family), inside_of(family, row)
    arrays: dict[str, Array] = {}
    kinds: dict[str, None] = {}
    for name, tensor in file.tensors.items():
        match = NAME.fullmatch(name)
        if name in LEFT or _is_later(name, values["num_hidden_layers"], values.get(MORE, 0)):
            continue
        layer, what, end = match.groups() if match else ("", "", "")
        ours = (inside if layer else outside).get(what)
        if ours is None:
            raise GraphError(
                f"{file.path}: wanted the tensors of a {values['model_type']} model, got {name}"
            )
        stem = f"{family.names.prefix}{family.names.layers}.{int(layer)}.{ours}" if layer else ours
        count = paired.get(ours.rpartition(".")[2], 0)
        if count and tensor.shape[0] % (2 * count):
            raise file.bad(f"{name}: wanted rows in pairs of {count} heads, got {tensor.shape[0]}")
        if tensor.kind in DTYPES and len(tensor.shape) < 3 and not (count and end == "weight"):
            own = f"{stem}{_end(what, end, len(tensor.shape))}"
            arrays[own] = _floats(tensor, what, end, family, count)
        elif len(tensor.shape) not in (2, 3) or end == "bias":
            raise file.bad(
                f"{name}: wanted it in {', '.join(DTYPES)}, got {tensor.kind} {list(tensor.shape)}"
            )
        else:
            arrays[f"{stem}.{tensor.kind}"] = tensor.rows
            kinds[tensor.kind] = None
    return Stored(file.path, arrays, Gguf(tuple(kinds), paired))


def _is_later(name: str, layers: int, more: int) -> bool:
    """Whether a tensor is of one of so many `more` layers behind those of the model."""
    match = OF_A_LAYER.fullmatch(name)
    return match is not None and layers <= int(match[1]) < layers + more


def _end(what: str, end: str, dims: int) -> str:
    """How the name of a weight ends that is a tensor of floats."""
    if what in (CORRECTION, SINKS):
        return ""
    return "_bias" if end == "bias" and dims == 2 else f".{end}"


def outside_of(family: Family) -> dict[str, str]:
    """The names of the tensors outside of layers, and a family's for them."""
    names = family.names
    return {
        "token_embd": f"{names.prefix}{names.embeddings}",
        "output_norm": f"{names.prefix}{names.norm}",
        "output": names.head,
    }


def inside_of(family: Family, row: Architecture) -> dict[str, str]:
    """The names of the tensors of a layer, and a family's for them."""
    norms, attention, mlp = family.norms, family.attention, family.mlp
    inner = {"attn_output": attention.out, "attn_sinks": "sinks" if family.sinks else ""}
    if attention.joined:
        inner["attn_qkv"] = attention.joined
    else:
        parts = (attention.query, attention.key, attention.value)
        inner |= zip(("attn_q", "attn_k", "attn_v"), parts, strict=True)
    if family.qk_norm:
        inner |= {"attn_q_norm": attention.query_norm, "attn_k_norm": attention.key_norm}
    if family.latent:
        inner |= LATENT
    outer = {"ffn_up": mlp.joined or mlp.up, "ffn_down": mlp.down}
    outer["ffn_gate"] = "" if mlp.joined else mlp.gate
    return {
        name: ours
        for name, ours in {
            "attn_norm": norms.before_attention,
            "post_attention_norm": norms.after_attention,
            "post_ffw_norm": norms.after_mlp,
            row.before_mlp: norms.before_mlp,
            **{name: ours and f"{attention.at}.{ours}" for name, ours in inner.items()},
            **{name: ours and f"{mlp.at}.{ours}" for name, ours in outer.items()},
            **(_experts(family.experts) if family.experts else {}),
        }.items()
        if ours
    }


def _experts(names: ExpertNames) -> dict[str, str]:
    """The names of the tensors of a mixture of experts."""
    found = {"ffn_gate_inp": names.router, CORRECTION: names.correction}
    for name, ours in (("gate", names.gate), ("up", names.up), ("down", names.down)):
        found[f"ffn_{name}_exps"] = f"{names.experts}.{ours}"
    if names.joined and not names.in_turns:
        found["ffn_gate_up_exps"] = f"{names.experts}.{names.joined}"
    if names.shared:
        found["ffn_gate_inp_shexp"] = names.shared_gate
        for name in ("gate", "up", "down"):
            found[f"ffn_{name}_shexp"] = f"{names.shared.at}.{name}_proj"
    return found


def _floats(tensor: Tensor, what: str, end: str, family: Family, heads: int) -> Array:
    """A tensor of floats as a graph has it; `heads` whose rows are in pairs, 0: none are."""
    found, dtype = floats_of(tensor.kind, tensor.rows), DTYPES[tensor.kind]
    if what == "ffn_gate_inp_shexp":
        return array_of(bits_of(found).reshape(1, -1), dtype)
    if what == CORRECTION and family.experts:
        ones = (1,) * (family.experts.correction_dims - 1)
        return array_of(bits_of(found).reshape(*ones, -1), dtype)
    if what.endswith("norm") and end == "weight" and family.offset:
        return array_of(narrowed(widened(bits_of(found)) - np.float32(family.offset), dtype), dtype)
    return array_of(in_halves(bits_of(found), heads), dtype) if heads else found
