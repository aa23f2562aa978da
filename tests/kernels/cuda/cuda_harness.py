"""Runs a spec's CUDA kernel on the emulator, on arrays."""

import numpy as np
from emulator import Buffer, launch
from reference import numpy_dtype, shape, size

from heddle.graph.compiler.codegen.cuda import build
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec

MACHINE = MACHINES["sm_80"]


def run(
    spec: Spec, arrays: list[np.ndarray], dims: dict[str, int], shift: int = 0
) -> tuple[list[np.ndarray], list[int]]:
    """The outputs and the status word; `shift` moves every buffer off its alignment by elements."""
    kernel = find(spec.op, "cuda")
    launched = kernel.launch(spec)
    outputs = [np.empty(shape(o.shape, dims), numpy_dtype(o.dtype)) for o in spec.outputs]
    buffers = [Buffer(x, shift=shift * x.itemsize) for x in arrays]
    buffers += [Buffer(x, written=True, shift=shift * x.itemsize) for x in outputs]
    status = np.zeros(4, np.int64)
    if kernel.checks:
        buffers.append(Buffer(status, written=True, initialised=True))
    blocks, *others = shape(launched.grid, dims)
    assert others == [1, 1]
    with context(), ir.Location.unknown():
        module = build(spec, MACHINE)
        values = [size(name, dims) for name in spec.dims]
        launch(module, blocks, launched.block[0], buffers, values, launched.shared)
    return outputs, status.tolist()
