"""What a block multiplies at once of many rows by weights of 8 and 4 bits, and where it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heddle.kernels.cuda.products import minimums, mma, staging
from heddle.kernels.cuda.products.tile import ROWS
from heddle.kernels.cuda.products.weight_words import WeightWords


@dataclass(frozen=True)
class ScaledTile:
    """`rows` of x by 128 of `weights`, of which `group` along k have one scale.

    A stage has x in panels of lines of 128 bytes, and behind them the weights as they came. Where
    groups have minimums, it has room for the sums of x's groups then, for each of `sharers`.
    """

    weights: WeightWords
    group: int
    rows: int = ROWS

    columns = 128
    sharers = 2
    """Warpgroups that multiply."""
    transposed = True
    depth = 128
    """Elements along k of a stage."""

    @property
    def kind(self) -> mma.Kind:
        """What tensor cores multiply."""
        return self.weights.kind

    @property
    def panel_depth(self) -> int:
        """Elements along k of a panel of x."""
        return staging.LINE // self.kind.item

    @property
    def panel(self) -> int:
        """Bytes of a panel of x."""
        return self.rows * staging.LINE

    @property
    def panels(self) -> int:
        """Panels of x in a stage."""
        return self.depth // self.panel_depth

    @property
    def each(self) -> int:
        """Weights of a byte."""
        return 8 // self.weights.bits

    @property
    def b_line(self) -> int:
        """Bytes of a line of weights, which is their swizzle, too."""
        return self.depth // self.each

    @property
    def b_place(self) -> int:
        """Where the weights begin in a stage."""
        return self.panels * self.panel

    @property
    def brought(self) -> int:
        """Bytes of x and the weights in a stage."""
        return self.b_place + self.columns * self.b_line

    @property
    def sums(self) -> int:
        """Bytes of the sums of x's groups for a warpgroup."""
        return self.rows * minimums.GROUPS * 4

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.brought + (self.sharers * self.sums if self.weights.minimums else 0)

    @property
    def span(self) -> int:
        """Elements along k whose sums are scaled at once: they are of one group."""
        return math.gcd(self.group, self.depth)
