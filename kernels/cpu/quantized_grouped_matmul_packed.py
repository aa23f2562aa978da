"""Rows sorted by group, each by its own weights in 8 or 4 bits: as `quantized_matmul_packed`."""

from __future__ import annotations

from heddle.kernels import host
from heddle.kernels.cpu import quantized_matmul_packed
from heddle.kernels.cpu.products import grouped, panels
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    quantized_matmul_packed.emit_blocks(host.frame(spec, machine, checks=True), grouped.Tasks)


KERNEL = Kernel(
    "quantized_grouped_matmul_packed",
    "cpu",
    emit_grouped,
    grouped.launch,
    grouped.supports_groups(quantized_matmul_packed.supports),
    checks=True,
    overwrites="epilogue",
    uses=panels.uses_of_bfloat16,
)
