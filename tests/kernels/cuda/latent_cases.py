"""Attention of latents as DeepSeek's models have it: one spec for each kernel."""

import ragged_batches as ragged
from score_cases import each

from heddle.kernels.spec import Spec


def of_heads(heads: int) -> Spec:
    """Keys of 576 columns, of which 512 are values: V2-Lite has 16 heads, V3 has 128."""
    return ragged.attention(
        "paged_attention",
        "bfloat16",
        heads=heads,
        key_heads=1,
        size=576,
        values=512,
        block=64,
        latent=True,
    )


ALL: dict[str, Spec] = {
    f"paged_attention of latents, {heads} heads{rows}": kernel
    for heads in (16, 20, 128)
    for rows, kernel in each(of_heads(heads)).items()
}
