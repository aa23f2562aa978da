"""AWQ (Lin et al., arXiv:2306.00978), as AutoAWQ writes its version `gemm`.

Words hold integers that follow each other along n, in an order of their own, both in `qweight`
[k, n / 8] and in `qzeros` [groups, n / 8]; `scales` is [groups, n]. GPTQModel writes it, too, where
some products may have other groups (`dynamic`).
"""

from __future__ import annotations

from heddle.pipelines.stored.integers import WORD, affine, unpacked_rows
from heddle.pipelines.stored.parts import Parts, Settings, choice, group_size, of_each, variant
from heddle.pipelines.stored.product import Product

BITS = 4

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The columns that a word's integers belong to, from the lowest bits on."""


class Awq:
    """How such a checkpoint stores the weights of products."""

    marks = (".qweight",)
    parts = (".qweight", ".qzeros", ".scales")

    def __init__(self, settings: Settings) -> None:
        self.group = of_each(settings, _group)

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        words = parts.bits(".qweight", ("int32",), (None, None))
        k, n = words.shape[0], words.shape[1] * (WORD // BITS)
        group = self.group(parts) or k
        groups = -(-k // group)
        zeros = parts.bits(".qzeros", ("int32",), (groups, words.shape[1]))
        return affine(
            BITS,
            (n, k),
            lambda: unpacked_rows(words, BITS, ORDER),
            lambda: unpacked_rows(zeros, BITS, ORDER),
            lambda: parts.floats(".scales", (groups, n)).T,
            group,
            parts.dtype(".scales"),
        )


def _group(settings: Settings) -> int:
    """The elements along k in a group of the products with these settings; 0: all."""
    choice(settings, "bits", (BITS,))
    variant(settings, "version", ("gemm", "GEMM"))
    return group_size(settings)
