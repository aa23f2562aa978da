"""Rows in 8 bits, sorted by group, each by its own weights: as `rounded_matmul_packed`."""

from __future__ import annotations

from heddle.kernels import host
from heddle.kernels.cpu import rounded_matmul_packed
from heddle.kernels.cpu.products import grouped
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    rounded_matmul_packed.emit_blocks(host.frame(spec, machine, checks=True), grouped.Tasks)


KERNEL = Kernel(
    "rounded_grouped_matmul_packed",
    "cpu",
    emit_grouped,
    grouped.launch,
    grouped.supports_groups(rounded_matmul_packed.supports),
    checks=True,
    overwrites="epilogue",
    uses=rounded_matmul_packed.uses,
)
