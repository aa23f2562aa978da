"""Kernels for CUDA GPUs. `KERNELS` holds a row for each."""

from __future__ import annotations

from importlib import import_module

from heddle.kernels.registry import Kernel

_STEMS = (
    "map",
    "reduce",
    "softmax",
    "layer_norm",
    "rms_norm",
    "transpose",
    "concat",
    "slice",
    "gather",
)

KERNELS: tuple[Kernel, ...] = tuple(
    import_module(f"heddle.kernels.cuda.{stem}").KERNEL for stem in _STEMS
)
