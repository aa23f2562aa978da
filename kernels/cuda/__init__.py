"""Kernels for CUDA GPUs. `KERNELS` holds a row for each."""

from __future__ import annotations

from heddle.kernels.cuda import map as map_kernel

KERNELS = (map_kernel.KERNEL,)
