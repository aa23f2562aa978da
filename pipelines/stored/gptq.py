"""GPTQ (Frantar et al., arXiv:2210.17323), as AutoGPTQ and GPTQModel write it.

Words hold integers that follow each other along k in `qweight` [k * bits / 32, n], and along n in
`qzeros` [groups, n * bits / 32]; `scales` is [groups, n]. Zeros are stored less one, but for the
format gptq_v2. Where activations were put in order (`desc_act`), `g_idx` [k] has the group of each
element, and groups are side by side only in that order. Some products may have other bits and
groups (`dynamic`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle.pipelines.stored.integers import WORD, affine, places_of, unpacked, unpacked_rows
from heddle.pipelines.stored.parts import Parts, Settings, choice, group_size, of_each, variant
from heddle.pipelines.stored.product import Product


@dataclass(frozen=True)
class Form:
    """How a product is stored.

    Attributes:
        bits: Those of an integer.
        group: Elements along k in a group; 0: all.
        lag: What zeros are stored less.
    """

    bits: int
    group: int
    lag: int

    @staticmethod
    def read(settings: Settings) -> Form:
        """That of the products with these settings."""
        bits, group = choice(settings, "bits", (4, 8)), group_size(settings)
        version = variant(settings, "checkpoint_format", ("gptq", "gptq_v2"))
        return Form(bits, group, 0 if version == "gptq_v2" else 1)


class Gptq:
    """How such a checkpoint stores the weights of products."""

    marks = (".qweight",)
    parts = (".qweight", ".qzeros", ".scales", ".g_idx")

    def __init__(self, settings: Settings) -> None:
        self.form = of_each(settings, Form.read)

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        form = self.form(parts)
        count = WORD // form.bits
        words = parts.bits(".qweight", ("int32",), (None, None))
        k, n = words.shape[0] * count, words.shape[1]
        group = form.group or k
        groups = -(-k // group)
        zeros = parts.bits(".qzeros", ("int32",), (groups, n // count))
        places = places_of(parts, ".g_idx", k, groups)
        return affine(
            form.bits,
            (n, k),
            lambda: unpacked(words.T, form.bits),
            lambda: unpacked_rows(zeros, form.bits) + np.int16(form.lag),
            lambda: parts.floats(".scales", (groups, n)).T,
            group,
            parts.dtype(".scales"),
            places,
        )
