"""Weights in float8 with a scale for each block, as DeepSeek-V3 (arXiv:2412.19437) and Qwen3 have.

The value of `weight` is to be multiplied by `weight_scale_inv`, whatever its name says. Experts may
be one tensor [experts, n, k] without an end, beside `_scale_inv` [experts, ...] or one for all, as
transformers writes those that it has side by side.
"""

from __future__ import annotations

from heddle.pipelines.quantization import array_of
from heddle.pipelines.stored.blocks import scales_of
from heddle.pipelines.stored.parts import Parts, Settings, block_size
from heddle.pipelines.stored.product import FLOATS, FLOATS_OF_8_BITS, Product, Stack
from heddle.pipelines.stored.scaled import Scaled

VALUES, SCALES = ".weight", ".weight_scale_inv"
"""The ends of a product's tensors."""

ALL_SCALES = "_scale_inv"
"""The end of the scales of all experts, whose values have none."""


class Fp8:
    """How such a checkpoint stores the weights of products."""

    marks = (SCALES, ALL_SCALES)
    parts = (
        *(VALUES, SCALES, ".activation_scale", ".input_scale"),
        *("", ALL_SCALES, "_activation_scale"),
    )

    def __init__(self, settings: Settings) -> None:
        self.block = block_size(settings, "weight_block_size")

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        if ALL_SCALES in parts:
            return Stack([self.product(each) for each in _experts(parts)])
        values = parts.bits(VALUES, FLOATS_OF_8_BITS, (None, None))
        n, k = values.shape
        scales, group = scales_of(parts, SCALES, (n, k), self.block)
        return Scaled((n, k), parts.dtype(VALUES), group, lambda: values, scales)


def _experts(parts: Parts) -> list[Parts]:
    """The tensors of each expert."""
    values = parts.bits("", FLOATS_OF_8_BITS, (None, None, None))
    count, given = len(values), parts.found[ALL_SCALES].shape
    one = given in ((), (1,))
    scales = parts.bits(ALL_SCALES, FLOATS, given if one else (count, *(None,) * len(given[1:])))
    kinds = parts.dtype(""), parts.dtype(ALL_SCALES)
    return [
        Parts(
            parts.path,
            f"{parts.name}, expert {number}",
            {
                VALUES: array_of(values[number], kinds[0]),
                SCALES: array_of(scales if one else scales[number], kinds[1]),
            },
        )
        for number in range(count)
    ]
