"""Families whose models differ in more than sizes, which keys of their own say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heddle.pipelines.models.config_checks import check_choice, check_flag, refuse
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    from heddle.pipelines.models.decoder.traits import Family

Values = dict[str, Any]

GROUPED, SHARED, PARALLEL = "new_decoder_architecture", "multi_query", "parallel_attn"
"""Falcon's keys for keys in groups, for one key of all heads, and for both parts side by side."""

CHUNKS = ("chunked_attention", "full_attention")
"""What `layer_types` says of Llama 4's layers: those that turn see a chunk of the text alone."""

NORMS = "num_ln_in_parallel_attn"
"""Its key for how many norms these have."""


def _widened(values: Values) -> Values:
    """The values, with four times the columns in the feed-forward part where they do not say."""
    hidden = values.get("hidden_size")
    return {"intermediate_size": 4 * hidden, **values} if isinstance(hidden, int) else values


def gpt2(family: Family, values: Values) -> tuple[Family, Values]:
    """GPT-2, whose feed-forward part may have a size of its own."""
    return family, _widened(values)


def falcon(family: Family, values: Values) -> tuple[Family, Values]:
    """Falcon 7B, 40B and 180B, and Falcon 2.

    Raises:
        GraphError: A value is none that these have.
    """
    flags = {GROUPED: False, SHARED: True, PARALLEL: True, "bias": False, **values}
    for name in (GROUPED, SHARED, PARALLEL, "bias"):
        check_flag(name, flags[name])
    grouped, parallel, bias = flags[GROUPED], flags[PARALLEL], flags["bias"]
    norms = values.get(NORMS, 2 if grouped else 1)
    if grouped:
        refuse(flags, PARALLEL, True)
    if norms not in ((1, 2) if grouped else (1,)):
        wanted = "1 or 2" if grouped else f"1 without {GROUPED}"
        raise GraphError(f"{NORMS}: wanted {wanted}, got {norms!r}")
    names = family.norms
    if norms == 2:
        names = replace(names, before_attention="ln_attn", before_mlp="ln_mlp")
    elif parallel:
        names = replace(names, before_mlp="")
    if not grouped:
        heads = 1 if flags[SHARED] else values.get("num_attention_heads")
        values = {**values, "num_key_value_heads": heads}
    values = {**_widened(values), "attention_bias": bias, "mlp_bias": bias}
    return replace(family, norms=names, parallel=parallel), values


def llama4(family: Family, values: Values) -> tuple[Family, Values]:
    """Llama 4, whose experts and layers without them have sizes by other keys.

    Raises:
        GraphError: A value is none that these have.
    """
    found = dict(values)
    if "intermediate_size" in found:
        found["moe_intermediate_size"] = found["intermediate_size"]
    found["intermediate_size"] = found["intermediate_size_mlp"]
    layers, sparse = found.get("num_hidden_layers"), found.get("moe_layers")
    if sparse is not None and isinstance(layers, int):
        if not isinstance(sparse, list):
            raise GraphError(f"moe_layers: wanted a list, got {sparse!r}")
        found["mlp_layer_types"] = [
            "sparse" if layer in sparse else "dense" for layer in range(layers)
        ]
    kinds = found.pop("layer_types", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        check_choice("layer_types", kind, CHUNKS)
    if not found.get("no_rope_layers"):
        found.pop("no_rope_layers", None)
    return family, found
