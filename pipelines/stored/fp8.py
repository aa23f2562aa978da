"""Weights in float8 with a scale for each block, as DeepSeek-V3 (arXiv:2412.19437) and Qwen3 have.

The value of `weight` is to be multiplied by `weight_scale_inv`, whatever its name says.
"""

from __future__ import annotations

from heddle.pipelines.stored.blocks import scales_of
from heddle.pipelines.stored.parts import Parts, Settings, block_size
from heddle.pipelines.stored.product import FLOATS_OF_8_BITS, Product
from heddle.pipelines.stored.scaled import Scaled


class Fp8:
    """How such a checkpoint stores the weights of products."""

    marks = (".weight_scale_inv",)
    parts = (".weight", ".weight_scale_inv", ".activation_scale", ".input_scale")

    def __init__(self, settings: Settings) -> None:
        self.block = block_size(settings, "weight_block_size")

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        values = parts.bits(".weight", FLOATS_OF_8_BITS, (None, None))
        n, k = values.shape
        scales, group = scales_of(parts, ".weight_scale_inv", (n, k), self.block)
        return Scaled((n, k), parts.dtype(".weight"), group, lambda: values, scales)
