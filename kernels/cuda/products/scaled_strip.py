"""What a block multiplies at once of few rows by weights of 8 and 4 bits, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heddle.kernels.cuda.products import group_scales, mma, outputs, skinny
from heddle.kernels.cuda.products.weight_words import WeightWords

RUN = 32
"""Elements of k that the lanes of a warp hold at once: four times eight."""

FEW = 16
"""Rows of small strips."""

LEAST = 8
"""Rows of the smallest strips."""

SHARED = 104 * 1024
"""Bytes of a block's stages at most: two blocks fit a multiprocessor of sm_90a."""


@dataclass(frozen=True)
class Strip:
    """A block's `rows` and `columns` of x by weights of `bits`, `group` of them to a scale.

    `held` is the dtype that holds weights; `products` as `skinny.Strip` has it; `minimums`: whether
    groups have them.
    """

    kind: mma.Kind
    rows: int
    columns: int
    bits: int
    group: int
    held: str
    products: int = 1
    minimums: bool = False

    @property
    def each(self) -> int:
        """Columns of each product."""
        return self.columns // self.products

    @property
    def warps_along_k(self) -> int:
        """Warps that share the steps along k of one column."""
        return skinny.WARPS * outputs.WARP_COLUMNS // self.columns

    @property
    def depth(self) -> int:
        """Elements along k of a stage; fewer for many rows, as x takes most of a stage then."""
        return 256 if self.rows <= FEW else 128

    @property
    def slice(self) -> int:
        """Elements along k of a stage that one warp multiplies."""
        return self.depth // self.warps_along_k

    @property
    def x_line(self) -> int:
        """Bytes of a line of x."""
        return self.depth * self.kind.item

    @property
    def line(self) -> int:
        """Bytes of a line of weights."""
        return self.depth * self.bits // 8

    @property
    def width(self) -> int:
        """Bytes of weights that a warp reads from a line at once."""
        return RUN * self.bits // 8

    @property
    def place(self) -> int:
        """Where weights begin in a stage."""
        return self.rows * self.x_line

    @property
    def groups(self) -> int:
        """Groups of each column that a stage has scales of; 0 where it has none."""
        return group_scales.together(self.depth, self.group)

    @property
    def scales(self) -> int:
        """Where scales begin in a stage, behind the weights."""
        return self.place + self.columns * self.line

    @property
    def behind(self) -> int:
        """Where minimums begin in a stage, behind the scales."""
        return self.scales + self.columns * self.groups * self.kind.item

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.behind + (self.behind - self.scales if self.minimums else 0)

    @property
    def stages(self) -> int:
        """As many as there is room for; of the smallest strips no more, to be cut alike."""
        return replace(self, rows=FEW).stages if self.turned else SHARED // self.stage

    @property
    def shared(self) -> int:
        """Bytes of all stages: three blocks of the smallest strips fit a multiprocessor."""
        return self.stages * self.stage if self.turned else SHARED

    @property
    def turned(self) -> bool:
        """Whether weights are the side of 16 lines of mma.sync."""
        return self.rows == LEAST

    @property
    def tiles(self) -> int:
        """So many times as many rows as one mma.sync multiplies."""
        return 1 if self.turned else self.rows // 16

    @property
    def sums(self) -> int:
        """A lane's sums of a tile and the columns of its warp."""
        return outputs.WARP_COLUMNS // 8 * (2 if self.turned else 4)

    @property
    def weights(self) -> WeightWords:
        """What the weights become."""
        return WeightWords(self.kind, self.bits, self.held, self.minimums)

    @property
    def span(self) -> int:
        """Elements along k whose sums a warp scales at once: they are of one group."""
        return RUN if self.group % self.slice else self.slice
