"""What products by panels are cut into: rows by their panels, blocks and strips of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Rows:
    """`height` rows of a, at most 64, from `row` on, and the panels that they are multiplied by.

    These begin with number `panel`, among those of all batches. `multiplied` is True, or an i1
    where there may be nothing to multiply by: then the result is zero.
    """

    row: Size
    height: Size
    panel: Size
    multiplied: Any

    def steps(self, steps: Size) -> Size:
        """Steps along k, of which there are so many where something is multiplied."""
        if self.multiplied is True:
            return steps
        return emit.select(self.multiplied, emit.as_index(steps), 0)


@dataclass(frozen=True)
class Block(Rows):
    """The rows by one panel; `column` is its first one in the result."""

    column: Size


@dataclass(frozen=True)
class Strip:
    """The rows of a block from `top` to `bottom - 1`, at most those of a tile, by two vectors.

    `part` is the first column in the panel.
    """

    block: Block
    top: Size
    bottom: Size
    part: int
