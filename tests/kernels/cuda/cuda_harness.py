"""Runs a spec's CUDA kernel on the emulator, on arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from emulator import machine as emulator
from emulator.machine import Buffer, Program, Runnable, launch
from emulator.tensor_map import TensorMap
from emulator.traffic import FRAMES, Traffic
from ptx import machine as ptx_machine
from reference import numpy_dtype, shape, size

from heddle.graph.compiler.codegen.cuda import build, to_ptx
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import AHEAD, MACHINES, Machine, find
from heddle.kernels.spec import Spec

MACHINE = MACHINES["sm_80"]
keeps = True
"""Whether kernels are kept for other launches: not where a test replaces something of them."""
of_ptx = False
"""Whether what runs is the PTX that an artifact holds, not the MLIR that it is made of."""
PROCESSORS = 2
"""Multiprocessors of the GPU that is emulated: so few that grids are cut."""
_traffic: Traffic | None = None


@contextmanager
def counting(machine: Machine) -> Iterator[Traffic]:
    """Counts the accesses of the kernels that run, on `machine` unless they say otherwise."""
    global _traffic, MACHINE
    before, _traffic, MACHINE = (_traffic, MACHINE), Traffic(), machine
    try:
        yield _traffic
    finally:
        _traffic, MACHINE = before


def built(spec: Spec, machine: Machine) -> tuple[ir.Context, Runnable]:
    """The kernel, and the context that it is in."""
    if _traffic is not None:
        emulated = context()
        with emulated, ir.Location.unknown(), ir.loc_tracebacks(max_depth=FRAMES):
            return emulated, Program(build(spec, machine), _traffic.effects())
    space = find(spec.op, "cuda").space
    values = tuple(space.values(spec, machine).items()) if space else ()
    return (_built if keeps else _built.__wrapped__)(spec, machine, values, of_ptx)


@lru_cache(16)
def _built(
    spec: Spec, machine: Machine, values: tuple, of_ptx: bool
) -> tuple[ir.Context, Runnable]:
    emulated = context()
    if of_ptx:
        return emulated, ptx_machine.Program(to_ptx(spec, machine))
    with emulated, ir.Location.unknown():
        return emulated, Program(build(spec, machine))


def run(
    spec: Spec,
    arrays: list[np.ndarray],
    dims: dict[str, int],
    shift: int = 0,
    machine: Machine | None = None,
    prepared: bool = False,
) -> tuple[list[np.ndarray], list[int]]:
    """The outputs and the status word; `shift` moves every buffer off its alignment by elements.

    `prepared`: what is updated is in the outputs already, as at run time.
    """
    machine, kernel = machine or MACHINE, find(spec.op, "cuda")
    launched = kernel.launch_on(spec, machine)
    outputs = [np.empty(shape(o.shape, dims), numpy_dtype(o.dtype)) for o in spec.written]
    ahead = kernel.ahead(spec) if spec.attr(AHEAD) else ()
    buffers = [
        Buffer(x, shift=shift * x.itemsize, settled=number in ahead)
        for number, x in enumerate(arrays)
    ]
    for number, output in enumerate(outputs):
        updated = prepared and number < kernel.updates
        output[...] = arrays[number] if updated else output
        offset = shift * output.itemsize
        buffers.append(Buffer(output, written=True, initialised=updated, shift=offset))
    maps = []
    for described in launched.tensor_maps:
        buffer = buffers[described.buffer]
        maps.append(tensor_map(buffer, buffer.array.itemsize, described, dims))
    launches = kernel.launches(spec)
    scratch = {
        "workspace": np.empty(max(size(one.workspace, dims) for one in launches), np.uint8),
        "counters": np.zeros(max(one.counters for one in launches), np.uint32),
        "status": np.zeros(4, np.int64),
    }
    for name in kernel.extras(spec):
        cleared = name != "workspace"
        # Any kernel writes the status word, whenever it is the first to find something wrong.
        settled = name == "status"
        buffers.append(Buffer(scratch[name], True, cleared, settled=settled))
    blocks = blocks_started(launched, shape(launched.grid, dims))
    emulated, program = built(spec, machine)
    with emulated, ir.Location.unknown():
        values = [size(name, dims) for name in spec.dims]
        launch(program, blocks, launched.block[0], buffers, values, launched.shared, maps)
    assert not scratch["counters"].any(), "counters are left as zeros"
    return outputs, scratch["status"].tolist()


def run_call(
    spec: Spec, arrays: list[np.ndarray], dims: dict[str, int], *others, **options
) -> tuple[list[np.ndarray], list[int]]:
    """`run` of what a call of these sizes starts, of the kernels that share the op's calls.

    That is one kernel, or one for each product, of which one may read what another one writes.
    """
    portions = [s for s in find(spec.op, "cuda").split(spec) if size(s.condition, dims)]
    buffers = dict(enumerate(arrays))
    for portion in portions:
        places = range(len(spec.buffers)) if portion.buffers is None else portion.buffers
        reads = len(portion.spec.inputs)
        found, status = run(
            portion.spec, [buffers[i] for i in places[:reads]], dims, *others, **options
        )
        buffers |= zip(places[reads:], found, strict=True)
    return [buffers[i] for i in range(len(arrays), len(spec.buffers))], status


def turned(monkeypatch) -> None:
    """Blocks begin in the other order from now on, so that another one is the last to end."""
    run_all = emulator.run_all

    def in_turn(strands, clusters):
        run_all(dict(reversed(strands.items())), clusters[::-1])

    monkeypatch.setattr(emulator, "run_all", in_turn)


def blocks_started(launched, grid: tuple[int, ...]) -> int:
    """How many blocks a runtime starts for a `Launch`, of the kernel's or of the artifact's."""
    blocks, *others = grid
    assert others == [1, 1]
    assert blocks % launched.cluster == 0
    if not launched.resident:
        return blocks
    whole = PROCESSORS * launched.resident // launched.cluster * launched.cluster
    return min(blocks, max(whole, launched.cluster))


def tensor_map(buffer: Buffer, item: int, described, values: dict[str, int]) -> TensorMap | int:
    """The map of a `TensorMap`, of the kernel's or of the artifact's; 0 where there can be none."""
    sizes, strides = shape(described.shape, values), shape(described.strides, values)
    if buffer.shift % 16 or any(stride % 16 for stride in strides) or 0 in sizes:
        return 0
    return TensorMap(
        buffer, item, sizes[::-1], strides[::-1], described.box[::-1], described.swizzle
    )
