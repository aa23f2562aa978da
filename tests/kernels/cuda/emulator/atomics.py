"""Atomics and the fence that orders global memory between blocks.

PTX ISA 9.0, "Parallel Synchronization and Communication Instructions": atom (relaxed),
fence.acq_rel.gpu; "Memory Consistency Model: Release and Acquire Patterns": a fence, then an atomic
of the same thread releases; an atomic, then a fence of the same thread acquires what the fences
before the atomics that it follows released.
"""

from collections.abc import Callable

import numpy as np

from emulator.clocks import Knowledge
from emulator.grid import Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.threads import access
from emulator.types import dtype_of, number, space_of
from emulator.values import unsigned
from heddle.kernels.mlir import ir

MONOTONIC, ACQ_REL = 2, 6  # Of LLVM's enumeration AtomicOrdering.
OPERATIONS = {
    # As LLVM's enumeration AtomicBinOp numbers them.
    0: lambda old, new: new,
    1: np.add,
    3: np.bitwise_and,
    5: np.bitwise_or,
    7: np.maximum,
    8: np.minimum,
    9: lambda old, new: np.maximum(unsigned(old), unsigned(new)).view(old.dtype),
    10: lambda old, new: np.minimum(unsigned(old), unsigned(new)).view(old.dtype),
    11: np.add,
}


class Fences:
    """What fences handed over, of a whole launch.

    `released` by the last fence of a thread, `met` by its atomics since then, `at` an address.
    """

    def __init__(self) -> None:
        self.released: dict[int, Knowledge] = {}
        self.met: dict[int, Knowledge] = {}
        self.at: dict[tuple[int, int], Knowledge] = {}


def fences_of(grid: Grid) -> Fences:
    clocks = grid.cluster.clocks
    return clocks.shared.setdefault("fences", Fences())


def atomic(op):
    operation = OPERATIONS.get(number(op, "bin_op"))
    if operation is None:
        raise EmulatorError("the emulator does not know this atomic operation")
    if number(op, "ordering") != MONOTONIC:
        raise EmulatorError("wanted a monotonic atomic: the code generator drops other orders")
    return update_in(space_of(op.operands[0]), dtype_of(op.operands[1].type), operation)


def update_in(space: int, dtype: np.dtype, operation: Callable) -> Callable:
    """A relaxed atomic, whose `operation` takes the old value and the thread's."""
    where = access(space, dtype.itemsize, dtype.itemsize)

    def run(grid: Grid, mask: Mask, address, value):
        old = np.zeros(len(grid.lane), dtype)
        if mask.any():
            memory, region, offset, lane = where(grid, mask, address)
            values = grid.spread(value)[mask]
            old[mask] = memory.update(region, offset, lane, values, operation)
            if grid.cluster is not None:
                for place in zip(region.tolist(), offset.tolist(), lane.tolist(), strict=True):
                    _meet(grid, place[:2], place[2])
        return old

    return run


def _meet(grid: Grid, place: tuple[int, int], thread: int) -> None:
    fences, clocks = fences_of(grid), grid.cluster.clocks
    here = fences.at.setdefault(place, clocks.nothing())
    fences.met.setdefault(thread, clocks.nothing()).join(here)
    if thread in fences.released:  # What it releases by is part of the pattern.
        here.join(fences.released[thread])
        here.known[clocks.atomics(thread)] = clocks.known[thread, clocks.atomics(thread)]


def fence(op):
    scope = ir.StringAttr(op.attributes["syncscope"]).value if "syncscope" in op.attributes else ""
    if (number(op, "ordering"), scope) != (ACQ_REL, "device"):
        raise EmulatorError("the emulator knows fences that acquire and release, of the GPU, alone")
    return fence_of_gpu


def fence_of_gpu(grid: Grid, mask: Mask) -> None:
    fences, clocks = fences_of(grid), grid.cluster.clocks
    for thread in grid.cluster.number(grid.lane[mask]).tolist():
        one = np.array([thread])
        if thread in fences.met:
            clocks.acquire(one, fences.met.pop(thread))
        fences.released[thread] = clocks.release(one)


ANYWHERE = {"llvm.atomicrmw": atomic}
EFFECTS = {"llvm.fence": fence}
