"""Rows sorted by group, each group by its own b: products by panels, as in `matmul_packed`.

A block of rows is in one group, so that few rows of a group read its weights once. Which rows a
block has is looked up once for all of its panels.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host
from heddle.kernels.cpu import matmul_packed
from heddle.kernels.cpu.flash.ragged import report
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.emit import compare
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_groups import RowGroups, most
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product


class _Tasks(panels.Tasks):
    """Tasks whose rows are in one group each.

    They have `panels.BLOCK` rows at most, as `launch` counts them, also where other products are
    given larger blocks.
    """

    even = False

    def __init__(
        self, frame: host.Frame, lanes: int, dtype: str, _larger: int = panels.BLOCK
    ) -> None:
        super().__init__(frame, lanes, dtype)
        self.heights = range(1, self.most + 1)
        self._groups = RowGroups(frame, report)

    def rows(self, number: Size) -> Rows:
        group, row, height = self._groups.find(number, panels.BLOCK)
        first = emit.maximum(group, 0) * self.panels
        return Rows(row, height, first, compare("greater_equal", group, 0))


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    matmul_packed.emit_blocks(host.frame(spec, machine, checks=True), _Tasks)


def launch(spec: Spec) -> Launch:
    """One task for each block that there may be, by each panel."""
    rows, k = spec.operands[0].shape
    n = spec.result.shape[-1]
    tasks = product((most(spec, panels.BLOCK), fold("ceildiv", n, PANEL)))
    # Few rows are bound by reading the weights of their groups, at most all of them.
    groups, *panel = spec.operands[1].shape
    item: Any = emit.ITEM_SIZE[spec.operands[1].dtype]
    read = product((fold("min", rows, groups), *panel, item))
    return Launch((tasks, 1, 1), fold("max", product((rows, n, k, 2)), read))


def supports(spec: Spec) -> str | None:
    """As `matmul_packed`, by integer offsets."""
    offsets = spec.operands[2].dtype
    if offsets not in ("int32", "int64"):
        return f"offsets: wanted int32 or int64, got {offsets}"
    return matmul_packed.supports(spec)


KERNEL = Kernel(
    "grouped_matmul_packed",
    "cpu",
    emit_grouped,
    launch,
    supports,
    checks=True,
    overwrites="epilogue",
    uses=matmul_packed.uses,
    space=panels.SPACE,
)
