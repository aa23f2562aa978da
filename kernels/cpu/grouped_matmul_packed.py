"""Rows sorted by group, each group by its own b: the products of `matmul_packed`."""

from __future__ import annotations

from heddle.kernels import host
from heddle.kernels.cpu import matmul_packed
from heddle.kernels.cpu.products import grouped, panels
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    matmul_packed.emit_blocks(host.frame(spec, machine, checks=True), grouped.Tasks)


KERNEL = Kernel(
    "grouped_matmul_packed",
    "cpu",
    emit_grouped,
    grouped.launch,
    grouped.supports_groups(matmul_packed.supports),
    checks=True,
    overwrites="epilogue",
    uses=matmul_packed.uses,
    space=panels.SPACE,
)
