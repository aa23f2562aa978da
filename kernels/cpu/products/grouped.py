"""Rows that are sorted by group, each group by panels of its own: the tasks of such products.

A block of rows is in one group, so that few rows of a group read its weights once, and those of
groups without rows are not read. Which rows a block has is looked up once for all of its panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from heddle.kernels import emit, host, row_groups, sizes
from heddle.kernels.cpu.flash.ragged import report
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product


class Tasks(panels.Tasks):
    """Tasks whose rows are in one group each; rows of no group become zeros.

    They have `panels.BLOCK` rows at most, as `launch` counts them, also where other products are
    given larger blocks.
    """

    even = False

    def __init__(
        self, frame: host.Frame, lanes: int, dtype: str, _larger: int = panels.BLOCK
    ) -> None:
        super().__init__(frame, lanes, dtype)
        self.heights = range(1, self.most + 1)
        self._groups = row_groups.RowGroups(frame, report)

    def runs(self) -> Iterator[tuple[Rows, Size, Size]]:
        """As `panels.Tasks` has it, of the rows that are in a group."""
        for rows, first, last in super().runs():
            some = emit.compare("greater", emit.as_index(rows.height), 0)
            is_grouped = emit.compare("greater_equal", emit.as_index(rows.panel), 0)
            with emit.when(some & (is_grouped ^ True)):
                self._clear(rows, first, last)
            with emit.when(some & is_grouped):
                yield rows, first, last

    def rows(self, number: Size) -> Rows:
        """The rows of number `number`; those of no group have panels below 0."""
        group, row, height = self._groups.find(number, panels.BLOCK)
        return Rows(row, height, group * self.panels)

    def _clear(self, rows: Rows, first: Size, last: Size) -> None:
        """Writes zeros through the epilogue, in place of products."""
        zero = emit.constant(emit.register_type(self.dtype), 0, self.lanes)
        stop = sizes.least(last * PANEL, self.n)
        for r in emit.loop(0, rows.height):
            at = self.finish.row(rows.row + r)
            for column, mask in host.vectors(first * PANEL, stop, self.lanes):
                at(column, mask, zero)


def launch(spec: Spec) -> Launch:
    """One task for each block that there may be, by each panel."""
    rows, k = spec.operands[0].shape
    n = spec.result.shape[-1]
    tasks = product((row_groups.most(spec, panels.BLOCK), fold("ceildiv", n, PANEL)))
    # Few rows are bound by reading the weights of their groups, at most all of them.
    groups, *panel = spec.operands[1].shape
    item: Any = emit.ITEM_SIZE[spec.operands[1].dtype]
    read = product((fold("min", rows, groups), *panel, item))
    return Launch((tasks, 1, 1), fold("max", product((rows, n, k, 2)), read))


def supports_groups(supports: Callable[[Spec], str | None]) -> Callable[[Spec], str | None]:
    """A kernel's `supports` for groups of rows, from that for one product by panels."""
    return lambda spec: row_groups.unsupported(spec) or supports(spec)
