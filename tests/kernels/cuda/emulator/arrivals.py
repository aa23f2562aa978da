"""Arrivals at an mbarrier by copies that a thread started: cp.async.mbarrier.arrive.noinc.

PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: cp.async.mbarrier.arrive":
the mbarrier tracks all prior cp.async of the thread, and an arrival follows when they are complete,
here as late as it may; with .noinc it is one of those that the mbarrier was made for. It brings the
copies, which are of the generic proxy, and nothing else of what the thread did.

Copies that an mbarrier tracks are here no more those of a group.
"""

from collections.abc import Callable

import numpy as np

from emulator.clocks import IN_FLIGHT
from emulator.cp_async import agents_of
from emulator.grid import Grid
from emulator.masks import Mask
from emulator.mbarrier import BYTES, Mbarrier, check_made, find
from emulator.memory import EmulatorError
from emulator.threads import access
from emulator.types import space_of
from heddle.kernels.mlir import ir


def arrive(op):
    if "noinc" not in op.attributes or not ir.BoolAttr(op.attributes["noinc"]).value:
        raise EmulatorError("the emulator knows cp.async.mbarrier.arrive with noinc alone")
    return arrive_at(space_of(op.operands[0]))


def arrive_at(space: int) -> Callable:
    where = access(space, BYTES, BYTES)

    def run(grid: Grid, mask: Mask, address):
        if not mask.any():
            return
        _, region, offset, threads = where(grid, mask, address)
        for place in dict.fromkeys(zip(region.tolist(), offset.tolist(), strict=True)):
            mine = threads[(region == place[0]) & (offset == place[1])]
            found = find(grid, *place)
            check_made(grid, found, mine, False)
            track(grid, found, mine)

    return run


def track(grid: Grid, found: Mbarrier, threads: np.ndarray) -> None:
    """`found` takes over the copies in flight of `threads`, each of which arrives later."""
    clocks, order = grid.cluster.clocks, grid.shared.order
    agents = agents_of(grid, threads)
    waited = np.full(clocks.known.shape[1], IN_FLIGHT)  # The others' copies, and nobody's.
    waited[agents] = clocks.known[threads, agents]
    copied = np.flatnonzero(order.stamp > waited[order.writer])
    agent = clocks.agent("a cp.async in flight to", found.name, True)
    order.writer[copied], order.stamp[copied] = agent, IN_FLIGHT

    def complete() -> None:
        brought = clocks.nothing()
        brought.known[agent] = order.stamp[copied] = found.phase + 1
        found.take(len(threads), brought)

    grid.cluster.late.append(complete)


EFFECTS = {"nvvm.cp.async.mbarrier.arrive": arrive}
