"""A tile of a product on tensor cores: its sizes, and where its operands lie in a stage."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.cuda.products import mma, staging

ROWS = 128
"""Rows of a tile."""

ACROSS = 4
"""Warps along the columns of a tile that eight of them make; two are along its rows."""


@dataclass(frozen=True)
class Tile:
    """What is multiplied, in tiles of so many columns; `transposed`: b is [n, k]."""

    kind: mma.Kind
    columns: int
    transposed: bool

    rows = ROWS

    @property
    def depth(self) -> int:
        """Elements along k of a stage."""
        return staging.LINE // self.kind.item

    @property
    def b_line(self) -> int:
        """Bytes of a line of b."""
        return staging.LINE

    @property
    def panel_columns(self) -> int:
        """Columns of b whose lines are steps of k."""
        return self.b_line // self.kind.item

    @property
    def bytes_across(self) -> bool:
        """Whether b is bytes in lines that are steps of k, which ldmatrix transposes in pairs."""
        return self.kind.item == 1 and not self.transposed

    @property
    def words_across(self) -> bool:
        """Whether b is words of 32 bits in lines that are steps of k: ldmatrix cannot turn them."""
        return self.kind.item == 4 and not self.transposed

    @property
    def width(self) -> int:
        """Bytes of a line of b that are read at a time: a chunk, or eight words."""
        return 2 * mma.CHUNK if self.words_across else mma.CHUNK

    @property
    def warp_columns(self) -> int:
        """Columns of a warp."""
        return self.columns // ACROSS

    @property
    def b_place(self) -> int:
        """Where b begins in a stage."""
        return self.rows * staging.LINE

    @property
    def panels(self) -> int:
        """Panels of lines that are steps of k, of which the last one may have more columns."""
        return -(-self.columns // self.panel_columns)

    @property
    def b_lines(self) -> int:
        """Lines of b in a stage."""
        return self.columns if self.transposed else self.panels * self.depth

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.b_place + self.b_lines * self.b_line

    @property
    def pitch(self) -> int:
        """Elements between two rows of sums in shared memory.

        More than columns: two rows of a store of 16 bytes, or four of 8, meet no bank twice.
        """
        return self.columns + (16 if self.bytes_across else 8)
