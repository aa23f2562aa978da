"""Kernels for CUDA GPUs. `KERNELS` holds a row for each."""

from __future__ import annotations

from importlib import import_module

from heddle.kernels.registry import Kernel

_STEMS = (
    "attention",
    "concat",
    "gather",
    "layer_norm",
    "map",
    "matmul",
    "reduce",
    "rms_norm",
    "slice",
    "softmax",
    "transpose",
)

KERNELS: tuple[Kernel, ...] = tuple(
    import_module(f"heddle.kernels.cuda.{stem}").KERNEL for stem in _STEMS
)
