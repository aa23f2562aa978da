"""What products of float32 in AMX tiles are cut into (see `float32`).

A run is some panels by a block of rows. It goes along k in chunks, each of which is multiplied by
all panels of the run; a panel of a chunk goes in stretches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cpu.amx.tiles import PAIR
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Run:
    """`count` panels of the rows from `first` on, by `steps` along k in chunks of `depth`.

    `single` says that the rows are one pair of tiles.
    """

    rows: Rows
    first: Size
    count: Size
    steps: Size
    depth: Size
    single: Any

    @property
    def multiplied(self) -> Any:
        """Whether there are steps."""
        return emit.compare("greater", self.steps, 0)

    @property
    def skipped(self) -> Any:
        """Whether there are none."""
        return emit.compare("equal", self.steps, 0)

    @property
    def pairs(self) -> Any:
        """Pairs of tiles of rows."""
        return emit.as_index(sizes.ceildiv(self.rows.height, PAIR))

    def panel(self, number: Size) -> Size:
        """The number of one of the panels among those of all batches."""
        return self.rows.panel + self.first + number


@dataclass(frozen=True)
class Step:
    """A step of panel number `number` of a run, in the chunk from `start` to `stop - 1`."""

    number: Size
    step: Size
    start: Size
    stop: Size

    def behind(self, run: Run) -> Step:
        """The step that is multiplied next; of the last one itself.

        Of the same panel, else of the next one of the run, else of its first in the next chunk.
        """
        inside = emit.compare("less", self.step + 1, self.stop)
        more = emit.compare("less", self.number + 1, run.count)
        further = emit.compare("less", self.stop, emit.as_index(run.steps))

        def either(here: Size, next_panel: Size, next_chunk: Size, last: Size) -> Size:
            last = emit.select(further, emit.as_index(next_chunk), emit.as_index(last))
            last = emit.select(more, emit.as_index(next_panel), last)
            return emit.select(inside, emit.as_index(here), last)

        end = sizes.least(self.stop + run.depth, run.steps)
        return Step(
            either(self.number, self.number + 1, 0, self.number),
            either(self.step + 1, self.start, self.stop, self.step),
            either(self.start, self.start, self.stop, self.start),
            either(self.stop, self.stop, end, self.stop),
        )


@dataclass(frozen=True)
class Panel:
    """Panel number `number` of a run, by the steps from `start` to `stop - 1`.

    Of its sums so many rows are `wanted` with them, and of those of the panel before it so many are
    `due` to be written: all or none, `each` rows beside a step of a pair of tiles of rows.
    """

    run: Run
    number: Size
    start: Size
    stop: Size
    each: Size
    wanted: Size
    due: Size


@dataclass(frozen=True)
class Stretch:
    """The steps from `start` to `stop - 1` of a panel; number `begin` of those that were split."""

    panel: Panel
    start: Size
    stop: Size
    begin: Size
