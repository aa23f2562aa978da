"""GPTQ (Frantar et al., arXiv:2210.17323), as AutoGPTQ and GPTQModel write it.

Words hold integers that follow each other along k in `qweight` [k * bits / 32, n], and along n in
`qzeros` [groups, n * bits / 32]; `scales` is [groups, n]. Zeros are stored less one, but for the
format gptq_v2. Where activations were put in order (`desc_act`), `g_idx` [k] has the group of each
element, and groups are side by side only in that order.
"""

from __future__ import annotations

import numpy as np

from heddle.pipelines.stored.integers import WORD, affine, places_of, unpacked, unpacked_rows
from heddle.pipelines.stored.parts import Parts, Settings, choice, group_size, variant
from heddle.pipelines.stored.product import Product


class Gptq:
    """How such a checkpoint stores the weights of products."""

    marks = (".qweight",)
    parts = (".qweight", ".qzeros", ".scales", ".g_idx")

    def __init__(self, settings: Settings) -> None:
        self.bits: int = choice(settings, "bits", (4, 8))
        self.group = group_size(settings)
        form = variant(settings, "checkpoint_format", ("gptq", "gptq_v2"))
        self.lag = 0 if form == "gptq_v2" else 1

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        count = WORD // self.bits
        words = parts.bits(".qweight", ("int32",), (None, None))
        k, n = words.shape[0] * count, words.shape[1]
        group = self.group or k
        groups = -(-k // group)
        zeros = parts.bits(".qzeros", ("int32",), (groups, n // count))
        places = places_of(parts, ".g_idx", k, groups)
        return affine(
            self.bits,
            (n, k),
            lambda: unpacked(words.T, self.bits),
            lambda: unpacked_rows(zeros, self.bits) + np.int16(self.lag),
            lambda: parts.floats(".scales", (groups, n)).T,
            group,
            parts.dtype(".scales"),
            places,
        )
