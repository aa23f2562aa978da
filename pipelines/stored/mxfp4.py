"""MXFP4, as gpt-oss has its experts: "OCP Microscaling Formats (MX) Specification", version 1.0.

32 elements along k have a scale that is a power of two, stored as its exponent plus 127. An element
is a float of 4 bits: a sign, two bits of exponent and one of mantissa. Twice its value is an
integer, so int8 with half the scale is exact. `blocks` is uint8 [experts, n, k / 32, 16], with the
first of two elements in the lower half of a byte; `scales` is uint8 [experts, n, k / 32].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from heddle.pipelines.stored.parts import Parts, Settings
from heddle.pipelines.stored.product import Product
from heddle.pipelines.stored.scaled import Scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP = 32

BIAS = 127
"""Taken off the exponents of scales."""

NONE = 255
"""The exponent of a scale that is NaN."""

DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the value of each element."""


class Mxfp4:
    """How such a checkpoint stores the weights of products."""

    marks = ("_blocks",)
    parts = ("_blocks", "_scales")

    def __init__(self, settings: Settings) -> None:
        pass

    def product(self, parts: Parts) -> Product:
        """The weight with these parts."""
        blocks = parts.bits("_blocks", ("uint8",), (None, None, None, GROUP // 2))
        exponents = parts.bits("_scales", ("uint8",), blocks.shape[:-1])
        *rows, groups = exponents.shape
        shape = (*rows, groups * GROUP)
        return Scaled(
            shape, "int8", GROUP, lambda: integers(blocks).reshape(shape), lambda: scales(exponents)
        )


def integers(blocks: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Twice the values of the elements in bytes [..., n], int8 [..., 2 n]."""
    pairs = np.stack([DOUBLED[blocks & 15], DOUBLED[blocks >> 4]], axis=-1)
    return pairs.reshape(*blocks.shape[:-1], -1)


def scales(exponents: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Half the scales with these exponents."""
    found = halved(exponents)
    found[exponents == NONE] = np.nan
    return found


def halved(exponents: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Half the powers of two with these exponents, of which none is NaN."""
    found: NDArray[np.float32] = np.ldexp(np.float32(1), exponents.astype(np.int32) - (BIAS + 1))
    return found
