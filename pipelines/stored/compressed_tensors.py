"""The formats of compressed-tensors, which LLM Compressor writes.

`pack-quantized`: integers of 4 or 8 bits, plus 8 or 128, in words along k: `weight_packed` [n, k *
bits / 32], with `weight_shape` beside it. The others have a `weight` of int8 or float8 [n, k].
`weight_scale` is one for all, for each row, for groups or for blocks. Zero points are stored as
weights are, in words along n. What activations are rounded to is left out: products here are those
of floats. The library's own documentation says what is where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.stored.blocks import Block, scales_of, spread
from heddle.pipelines.stored.integers import WORD, affine, places_of, unpacked, unpacked_rows
from heddle.pipelines.stored.parts import (
    METHOD,
    Parts,
    Settings,
    block_size,
    choice,
    group_size,
    section,
    wrong,
)
from heddle.pipelines.stored.product import FLOATS_OF_8_BITS, Product
from heddle.pipelines.stored.scaled import Scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
    "dense",
)


SCALE, ZERO = ".weight_scale", ".weight_zero_point"


class CompressedTensors:
    """How such a checkpoint stores the weights of products."""

    marks = (".weight_packed", ".weight_scale")
    parts = (
        *(".weight", ".weight_packed", ".weight_scale", ".weight_shape"),
        *(".weight_zero_point", ".weight_g_idx"),
        *(".input_scale", ".input_zero_point", ".output_scale"),
    )

    def __init__(self, settings: Settings) -> None:
        own = choice(settings, "format", FORMATS)
        choice(section(settings, "sparsity_config"), "format", ("dense",), "dense")
        if settings.get("transform_config"):
            raise wrong(settings, "transform_config", "none", settings["transform_config"])
        self.block: Block | None = None
        self.sizes: set[int] = set()
        groups = section(settings, "config_groups")
        for name in groups.keys() - {METHOD}:
            group = section(groups, name)
            choice(group, "format", FORMATS, own)
            weights = section(group, "weights")
            self.block = block_size(weights, "block_structure") or self.block
            if weights.get("group_size") is not None:
                self.sizes |= {group_size(weights)} - {0}

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        if ".weight_packed" in parts:
            n, k = map(int, parts.bits(".weight_shape", ("int64", "int32"), (2,)))
            words = parts.bits(".weight_packed", ("int32",), (n, None))
            bits = 8 if words.shape[1] == -(-k // 4) else 4
            parts.bits(".weight_packed", ("int32",), (n, -(-k * bits // WORD)))
            return self._integers(parts, bits, (n, k), lambda: unpacked(words, bits)[:, :k])
        values = parts.bits(".weight", ("int8", *FLOATS_OF_8_BITS), (None, None))
        n, k = values.shape
        if parts.dtype(".weight") == "int8":
            sign = np.uint8(128)
            return self._integers(parts, 8, (n, k), lambda: values.view(np.uint8) ^ sign)
        scales, group = self._scales(parts, (n, k))
        return Scaled(
            (n, k),
            parts.dtype(".weight"),
            group,
            lambda: values,
            scales,
            scales_in=parts.dtype(SCALE),
        )

    def _scales(
        self, parts: Parts, shape: tuple[int, int]
    ) -> tuple[Callable[[], NDArray[np.float32]], int]:
        """What makes the scales, [n, groups], and the elements of a group.

        Raises:
            ArtifactError: Groups are not of a size that the configuration says, if it says some.
        """
        scales, group = scales_of(parts, SCALE, shape, self.block)
        wide = group in (shape[1], self.block and self.block[1])
        if self.sizes and group not in self.sizes and not wide:
            sizes = " or ".join(map(str, sorted(self.sizes)))
            raise parts.error(SCALE, f"scales of {sizes} of {shape[1]} elements", f"of {group}")
        return scales, group

    def _integers(
        self,
        parts: Parts,
        bits: int,
        shape: tuple[int, int],
        integers: Callable[[], NDArray[np.uint8]],
    ) -> Product:
        """The weight of integers without a sign, which its middle was added to."""
        (n, k), middle = shape, np.int16(2 ** (bits - 1))
        scales, group = self._scales(parts, shape)
        groups = -(-k // group)

        def zeros() -> NDArray[Any]:
            if ZERO not in parts:
                return np.full((1, 1), middle)
            if parts.dtype(ZERO) == "int32":
                words = parts.bits(ZERO, ("int32",), (-(-n * bits // WORD), groups))
                return unpacked_rows(words.T, bits)[:n]
            given = parts.bits(ZERO, ("int8",), parts.found[SCALE].shape)
            own, _ = spread(parts, ZERO, given, shape, self.block)
            raised: NDArray[Any] = own + middle
            return raised

        places = places_of(parts, ".weight_g_idx", k, groups)
        return affine(bits, shape, integers, zeros, scales, group, parts.dtype(SCALE), places)
