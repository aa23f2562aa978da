"""CPU kernels: x86-64 code for one machine from vectors of its register width."""

from heddle.kernels.cpu import map as map_
from heddle.kernels.cpu import matmul_packed
from heddle.kernels.registry import Kernel

KERNELS: tuple[Kernel, ...] = (map_.KERNEL, matmul_packed.KERNEL)
"""Every CPU kernel."""
