"""The weights of a GGUF file by the names that a graph has for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from heddle.pipelines.gguf.config import FREQUENCIES, LONG, SHORT, architecture, values_of
from heddle.pipelines.gguf.file import GgufFile, Tensor
from heddle.pipelines.models.decoder.families import FAMILIES
from heddle.pipelines.models.decoder.traits import Family
from heddle.pipelines.quantization import array_of, bits_of, narrowed, widened
from heddle.pipelines.stored.gguf import DTYPES, Gguf, floats_of, in_halves
from heddle.pipelines.stored.selection import Stored
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    from heddle.pipelines.weights import Array

OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
"""The names of tensors outside of layers, and ours."""

LEFT = (FREQUENCIES, LONG, SHORT)
"""Tensors that the configuration is made of."""

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
    inside = inside_of(family)
    arrays: dict[str, Array] = {}
    kinds: dict[str, None] = {}
    for name, tensor in file.tensors.items():
        match = NAME.fullmatch(name)
        if name in LEFT:
            continue
        layer, what, end = match.groups() if match else ("", "", "")
        ours = (inside if layer else OUTSIDE).get(what)
        if ours is None:
            raise GraphError(
                f"{file.path}: wanted the tensors of a {values['model_type']} model, got {name}"
            )
        stem = f"model.layers.{int(layer)}.{ours}" if layer else ours
        count = paired.get(ours.rpartition(".")[2], 0)
        if count and tensor.shape[0] % (2 * count):
            raise file.bad(f"{name}: wanted rows in pairs of {count} heads, got {tensor.shape[0]}")
        if tensor.kind in DTYPES and len(tensor.shape) < 3 and not (count and end == "weight"):
            arrays[f"{stem}.{end}"] = _floats(tensor, what, family, count)
        elif len(tensor.shape) not in (2, 3) or end == "bias":
            raise file.bad(
                f"{name}: wanted it in {', '.join(DTYPES)}, got {tensor.kind} {list(tensor.shape)}"
            )
        else:
            arrays[f"{stem}.{tensor.kind}"] = tensor.rows
            kinds[tensor.kind] = None
    return Stored(file.path, arrays, Gguf(tuple(kinds), paired))


def inside_of(family: Family) -> dict[str, str]:
    """The names of the tensors of a layer, and a family's for them."""
    norms, experts = family.norms, family.experts
    found = {
        "attn_norm": norms.before_attention,
        "post_attention_norm": norms.after_attention,
        "ffn_norm": norms.before_mlp,
        "post_ffw_norm": norms.after_mlp,
        "attn_output": "self_attn.o_proj",
        "ffn_down": "mlp.down_proj",
    }
    if family.attention.joined:
        found["attn_qkv"] = "self_attn.qkv_proj"
    else:
        found |= {f"attn_{name}": f"self_attn.{name}_proj" for name in "qkv"}
    if family.qk_norm:
        found |= {f"attn_{name}_norm": f"self_attn.{name}_norm" for name in "qk"}
    if family.mlp.joined:
        found["ffn_up"] = "mlp.gate_up_proj"
    else:
        found |= {f"ffn_{name}": f"mlp.{name}_proj" for name in ("gate", "up")}
    if experts is not None:
        found["ffn_gate_inp"] = experts.router
        for name, ours in (("gate", experts.gate), ("up", experts.up), ("down", experts.down)):
            found[f"ffn_{name}_exps"] = f"{experts.experts}.{ours}"
    if experts is not None and experts.shared:
        found["ffn_gate_inp_shexp"] = experts.shared_gate
        for name in ("gate", "up", "down"):
            found[f"ffn_{name}_shexp"] = f"{experts.shared.at}.{name}_proj"
    return {name: ours for name, ours in found.items() if ours}


def _floats(tensor: Tensor, what: str, family: Family, heads: int) -> Array:
    """A tensor of floats as a graph has it; `heads` whose rows are in pairs, 0: none are."""
    found, dtype = floats_of(tensor.kind, tensor.rows), DTYPES[tensor.kind]
    if what == "ffn_gate_inp_shexp":
        return array_of(bits_of(found).reshape(1, -1), dtype)
    if what.endswith("norm") and family.offset:
        return array_of(narrowed(widened(bits_of(found)) - np.float32(family.offset), dtype), dtype)
    return array_of(in_halves(bits_of(found), heads), dtype) if heads else found
