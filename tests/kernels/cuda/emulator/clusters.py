"""Blocks that run together: their ranks, addresses in each other's shared memory, their barrier.

PTX ISA 9.0, "Special Registers": %cluster_ctarank, %cluster_ctaid, %cluster_nctaid, %clusterid,
%nclusterid; "mapa"; "barrier.cluster"; "setmaxnreg"; "elect.sync".
"""

from collections.abc import Callable

import numpy as np

from emulator.barriers import NamedBarrier
from emulator.grid import RANK_BITS, WARP, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.tma import map_of
from emulator.types import number

REGISTERS = 65536  # Of a multiprocessor (compute capability 8.0 and 9.0).


def special(read):
    return lambda op: lambda grid, mask: np.full(1, read(grid), np.int32)


def map_address(grid: Grid, mask: Mask, address, rank) -> np.ndarray:
    ranks = grid.spread(rank)[mask]
    if ((ranks < 0) | (ranks >= grid.cluster.blocks)).any():
        raise EmulatorError(
            f"wanted the rank of one of {grid.cluster.blocks} blocks, got {ranks.max()}"
        )
    return address + ((rank.astype(np.int64) + 1) << RANK_BITS)


def _barrier_of(grid: Grid) -> NamedBarrier:
    return grid.cluster.barriers.setdefault("cluster", NamedBarrier("the barrier of the cluster"))


def arrive(releases: bool) -> Callable:
    def run(grid: Grid, mask: Mask):
        cluster, threads = grid.cluster, grid.cluster.number(grid.lane)
        if not mask.all():
            raise EmulatorError("divergent: the barrier of the cluster wants whole warps")
        clocks = cluster.clocks
        brought = clocks.release(threads) if releases else clocks.nothing()
        warp = int(threads[0]) // WARP
        if ("arrived", warp) in cluster.groups:
            raise EmulatorError("arrives twice at the barrier of the cluster without a wait")
        total = cluster.blocks * cluster.threads
        cluster.groups["arrived", warp] = _barrier_of(grid).arrive(total, WARP, brought)

    return run


def wait(grid: Grid, mask: Mask):
    threads = grid.cluster.number(grid.lane)
    gate, warp = _barrier_of(grid), int(threads[0]) // WARP
    if ("arrived", warp) not in grid.cluster.groups:
        raise EmulatorError("waits at the barrier of the cluster without an arrival")
    mine = grid.cluster.groups.pop(("arrived", warp))
    if gate.generation == mine:
        yield lambda: gate.generation > mine, gate
    grid.cluster.clocks.acquire(threads, gate.released)


def elect(op):
    """One of the active lanes, the same whenever they are; which one is open, so it is the last."""

    def run(grid: Grid, mask: Mask):
        warps = mask.reshape(-1, WARP)
        last = WARP - 1 - np.argmax(warps[:, ::-1], axis=1)
        return ((np.arange(WARP) == last[:, None]) & warps).reshape(-1)

    return run


class Pool:
    """The registers of a block: what the threads of each warp have, and how many are free."""

    def __init__(self, threads: int, registers: int) -> None:
        self.each = dict.fromkeys(range(threads // WARP), registers)
        self.free = 0


def check_registers(registers: int, threads: int) -> None:
    """Whether a block of `threads` has `registers` of each, 0 where the kernel does not say."""
    if registers * threads > REGISTERS:
        raise EmulatorError(f"{threads} threads of {registers} registers, there are {REGISTERS}")


def set_registers(wanted: int, more: bool) -> Callable:

    def run(grid: Grid, mask: Mask):
        if not grid.cluster.registers:
            raise EmulatorError("no nvvm.maxnreg: without it the assembler ignores setmaxnreg")
        if not mask.all():
            raise EmulatorError("divergent: setmaxnreg wants all threads of a warp")
        key = "registers", int(grid.block[0])
        pool = grid.cluster.groups.setdefault(key, Pool(grid.threads, grid.cluster.registers))
        warp = int(grid.thread[0]) // WARP
        need = (wanted - pool.each[warp]) * WARP
        if need < 0 if more else need > 0:
            name = "increase" if more else "decrease"
            raise EmulatorError(f"setmaxnreg from {pool.each[warp]} to {wanted} is no {name}")
        if need > pool.free:
            yield (
                lambda: need <= pool.free,
                f"{need} registers to have {wanted} in each thread, {pool.free} are free",
            )
        pool.free -= need
        pool.each[warp] = wanted

    return run


def prefetch(grid: Grid, mask: Mask, address) -> None:
    """Of a tensor map that is there: what the machine does with others the manual leaves open."""
    for lane in np.flatnonzero(mask):
        map_of(grid, grid.spread(address)[lane])


BLOCKING = {
    "nvvm.cluster.wait": lambda op: wait,
    "nvvm.setmaxregister": lambda op: set_registers(
        number(op, "regCount"), "increase" in str(op.attributes["action"])
    ),
}
ANYWHERE = {
    "nvvm.elect.sync": elect,
    "nvvm.prefetch": lambda op: prefetch,
}
EFFECTS = {
    "nvvm.cluster.arrive": lambda op: arrive(True),
    "nvvm.cluster.arrive.relaxed": lambda op: arrive(False),
    "nvvm.mapa": lambda op: map_address,
    "nvvm.read.ptx.sreg.cluster.ctarank": special(lambda g: g.block[0] - g.cluster.first),
    "nvvm.read.ptx.sreg.cluster.ctaid.x": special(lambda g: g.block[0] - g.cluster.first),
    "nvvm.read.ptx.sreg.cluster.nctarank": special(lambda g: g.cluster.blocks),
    "nvvm.read.ptx.sreg.cluster.nctaid.x": special(lambda g: g.cluster.blocks),
    "nvvm.read.ptx.sreg.clusterid.x": special(lambda g: g.block[0] // g.cluster.blocks),
    "nvvm.read.ptx.sreg.nclusterid.x": special(lambda g: g.blocks // g.cluster.blocks),
}
