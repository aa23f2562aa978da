"""Barriers of blocks and warps.

PTX ISA 9.0, "Parallel Synchronization and Communication Instructions": bar.sync and bar.arrive
(barrier.cta), bar.warp.sync.
"""

from collections.abc import Callable

import numpy as np

from emulator.clocks import Knowledge
from emulator.grid import WARP, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError

BARRIERS = 16  # "bar": barriers are numbered 0 to 15.


def check_members(mask: Mask, members: np.ndarray) -> None:
    """Each active lane names itself, and every lane that is named takes part."""
    active = mask.reshape(-1, WARP)
    named = (members.reshape(-1, WARP, 1) >> np.arange(WARP)) & 1 == 1
    expected = active[:, None, :] & active[:, :, None]
    if (named[active] != expected[active]).any():
        raise EmulatorError("divergent: the lanes named by the member mask are not the active ones")


def warp_barrier(grid: Grid, mask: Mask, members) -> None:
    check_members(mask, grid.spread(members))
    if grid.cluster is not None:
        lanes = grid.cluster.number(grid.lane[mask])
        clocks = grid.cluster.clocks
        clocks.acquire(lanes, clocks.release(lanes))


class NamedBarrier:
    """One of a block's 16 barriers: it opens when `count` threads arrived, and starts anew.

    Who arrives then has to know of those, or it could have been one of them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = self.arrived = self.generation = 0
        self.gathered: Knowledge | None = None
        self.released: Knowledge | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.arrived} of {self.count})"

    def arrive(self, count: int, threads: int, brought: Knowledge) -> int:
        """`threads` threads arrive; returns the generation that they belong to."""
        if self.arrived and count != self.count:
            raise EmulatorError(f"{self.name} is used for {count} and for {self.count} threads")
        if self.released is not None and not brought.covers(self.released):
            raise EmulatorError(f"{self.name}: nothing orders an arrival behind the last ones")
        self.count, self.arrived = count, self.arrived + threads
        if self.gathered is None:
            self.gathered = brought
        else:
            self.gathered.join(brought)
        mine = self.generation
        if self.arrived == count:
            self.released, self.gathered = self.gathered, None
            self.arrived, self.generation = 0, mine + 1
        return mine


def arrive(grid: Grid, mask: Mask, number, count) -> tuple[NamedBarrier, int]:
    """`number` and `count` (None: all threads of the block) are those of the barrier."""
    if not mask.all():
        raise EmulatorError(
            f"divergent barrier: {int(mask.sum())} of {WARP} threads of a warp arrive"
        )
    cluster, block = grid.cluster, int(grid.block[0])
    which = int(number[0])
    wanted = grid.threads if count is None else int(count[0])
    if not 0 <= which < BARRIERS or (number != which).any():
        raise EmulatorError(f"wanted the number of a barrier, 0 to {BARRIERS - 1}, got {which}")
    if wanted % WARP or not 0 < wanted <= grid.threads:
        raise EmulatorError(f"wanted whole warps of {grid.threads} threads, got {wanted} threads")
    name = f"barrier {which} of block {block}"
    barrier = cluster.barriers.setdefault((block, which), NamedBarrier(name))
    brought = cluster.clocks.release(cluster.number(grid.lane))
    return barrier, barrier.arrive(wanted, WARP, brought)


def _operands(op) -> Callable:
    """Finds the number (0 if there is none) and the count (or None) among the operands."""
    if op.name == "nvvm.barrier":
        has_number, has_count = op.attributes["operandSegmentSizes"]
    else:
        has_number, has_count = len(op.operands) - 1, 1

    def find(values):
        number = values[0] if has_number else np.zeros(1, np.int32)
        return number, values[-1] if has_count else None

    return find


def barrier(op):
    find = _operands(op)

    def run(grid: Grid, mask: Mask, *values):
        if grid.cluster is None:
            barrier_of_all(grid, mask)
            return
        yield from sync(grid, mask, *find(values))

    return run


def sync(grid: Grid, mask: Mask, number, count):
    """bar.sync of a warp that runs on its own."""
    gate, mine = arrive(grid, mask, number, count)
    if gate.generation == mine:
        yield lambda: gate.generation > mine, gate
    grid.cluster.clocks.acquire(grid.cluster.number(grid.lane), gate.released)


def barrier_arrive(op):
    find = _operands(op)

    def run(grid: Grid, mask: Mask, *values):
        arrive(grid, mask, *find(values))

    return run


def barrier_of_all(grid: Grid, mask: Mask) -> None:
    waiting = mask.reshape(grid.blocks, grid.threads)
    partial = waiting.any(axis=1) & ~waiting.all(axis=1)
    if partial.any():
        raise EmulatorError(
            f"divergent barrier: {int(waiting[partial][0].sum())} of {grid.threads} threads"
            f" of block {int(np.argmax(partial))} arrive"
        )
    memory = grid.shared
    ordered = np.repeat(waiting.all(axis=1), memory.sizes)
    memory.order.barrier(np.flatnonzero(ordered))
    if grid.dependence is not None:
        grid.dependence.barrier(np.flatnonzero(waiting.all(axis=1)))


BLOCKING = {"nvvm.barrier": barrier}
EFFECTS = {
    "nvvm.barrier.arrive": barrier_arrive,
    "nvvm.bar.warp.sync": lambda op: warp_barrier,
}
