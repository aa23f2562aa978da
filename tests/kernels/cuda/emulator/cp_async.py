"""Copies from global to shared memory that a thread starts and waits for later.

PTX ISA 9.0, "Data Movement and Conversion Instructions: Asynchronous copy": cp.async,
cp.async.commit_group, cp.async.wait_group. Until its own thread waited for its group, nobody may
touch what a copy writes; other threads learn of it through that thread.
"""

from collections.abc import Callable

import numpy as np

from emulator.grid import Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.threads import access
from emulator.types import number, space_of

SIZES = (4, 8, 16)


class Groups:
    """How many groups of copies each thread of a cluster has committed."""

    def __init__(self, threads: int) -> None:
        self.committed = np.zeros(threads, np.int32)


def groups_of(grid: Grid) -> Groups:
    cluster = grid.cluster
    return cluster.groups.setdefault("cp.async", Groups(cluster.clocks.threads))


def agents_of(grid: Grid, threads: np.ndarray) -> np.ndarray:
    """The agents that copy for `threads`: through the generic proxy ("Async proxy")."""
    cluster, asked = grid.cluster, ("agents of cp.async", threads.tobytes())
    if asked not in cluster.groups:
        name, clocks = "a cp.async in flight of thread", cluster.clocks
        cluster.groups[asked] = np.array([clocks.agent(name, int(t), True) for t in threads])
    return cluster.groups[asked]


def copy(op):
    return copy_between(space_of(op.operands[0]), space_of(op.operands[1]), number(op, "size"))


def copy_between(target: int, source: int, size: int) -> Callable:
    if size not in SIZES:
        raise EmulatorError(f"wanted 4, 8 or 16 bytes, got {size}")
    to, start = access(target, size, size), access(source, size, size)

    def run(grid: Grid, mask: Mask, target, source, count=None):
        if not mask.any():
            return
        shared, region, offset, threads = to(grid, mask, target)
        data = np.zeros((len(threads), size), np.uint8)
        counts = np.full(len(grid.lane), size) if count is None else grid.spread(count)
        counts = counts[mask]
        if ((counts < 0) | (counts > size)).any():
            raise EmulatorError(f"wanted at most {size} bytes of source, got {counts.max()}")
        for length in np.unique(counts[counts > 0]):
            some = np.zeros_like(mask)
            some[mask] = counts == length
            memory, *place = start(grid, some, source)
            data[counts == length, :length] = memory.load(*place, int(length))
        at = shared.bytes_at("copies to", region, offset, threads, size)
        stamps = groups_of(grid).committed[threads] + 1
        agents = agents_of(grid, threads)
        shared.refuse(shared.order.write_later(at, threads, agents, stamps, generic=True), at)
        shared.put(at, data)

    return run


def commit(grid: Grid, mask: Mask) -> None:
    groups_of(grid).committed[grid.cluster.number(grid.lane[mask])] += 1


def wait_until(left: int) -> Callable:
    """Until at most `left` groups of the thread are in flight."""

    def run(grid: Grid, mask: Mask):
        threads = grid.cluster.number(grid.lane[mask])
        done = groups_of(grid).committed[threads] - left
        grid.cluster.clocks.learn(threads, agents_of(grid, threads), done)

    return run


EFFECTS = {
    "nvvm.cp.async.shared.global": copy,
    "nvvm.cp.async.commit.group": lambda op: commit,
    "nvvm.cp.async.wait.group": lambda op: wait_until(number(op, "n")),
}
