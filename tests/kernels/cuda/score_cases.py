"""Attention with capped scores and with sinks, as models have them, one spec for each kernel."""

import cuda_cases as cases
import ragged_batches as ragged

from heddle.kernels.registry import find
from heddle.kernels.spec import Spec


def capped(size: int, heads: int, key_heads: int) -> dict[str, Spec]:
    shape = {"heads": heads, "key_heads": key_heads, "size": size, "block": 16}
    paged = ragged.attention("paged_attention", "bfloat16", window=4096, softcap=50.0, **shape)
    dense = cases.attention("bfloat16", head=size, causal=True, softcap=50.0)
    return {f"attention {size} capped": dense, f"paged_attention {size} capped": paged}


def sunk(cache: str) -> dict[str, Spec]:
    shape = {"heads": 64, "key_heads": 8, "size": 64, "block": 16}
    spec = ragged.attention("paged_attention", "bfloat16", cache, window=128, sinks=True, **shape)
    return {f"paged_attention 64 with sinks, {cache}": spec}


def each(spec: Spec) -> dict[str, Spec]:
    """The kernels of a spec: one, or one of calls with few rows and one of others."""
    specs = [portion.spec for portion in find(spec.op, "cuda").split(spec)]
    return dict(zip((", few rows", ", many rows") if specs[1:] else ("",), specs, strict=True))


# Gemma 2 of 9B and of 27B, and gpt-oss.
ALL: dict[str, Spec] = {
    name + rows: kernel
    for specs in (
        capped(256, 16, 8),
        capped(128, 32, 16),
        sunk("bfloat16"),
        sunk("float8_e4m3fn"),
    )
    for name, spec in specs.items()
    for rows, kernel in each(spec).items()
}
