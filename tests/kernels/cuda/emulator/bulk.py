"""Bulk copies: through the async proxy, between global and shared memory, by one thread.

PTX ISA 9.0, "Data Movement and Conversion Instructions: Asynchronous copy": cp.async.bulk,
cp.async.bulk.commit_group, cp.async.bulk.wait_group; "Async proxy".

Loads arrive as late as they may and count their bytes at an mbarrier; stores read shared memory
until their thread waits for their group.
"""

import itertools
from collections.abc import Callable

import numpy as np

from emulator.clocks import IN_FLIGHT
from emulator.grid import Grid
from emulator.masks import Mask
from emulator.mbarrier import Mbarrier, check_made, find
from emulator.memory import EmulatorError, Memory
from emulator.threads import access
from emulator.types import number, space_of

UNIT = 16  # Bytes: what addresses and sizes of a copy without a tensor map are multiples of.


def split(op) -> list[slice]:
    """Where each kind of operand lies among an operation's operands."""
    ends = list(itertools.accumulate(op.attributes["operandSegmentSizes"], initial=0))
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def blocks_of(grid: Grid, mask: int) -> list[int]:
    """The ranks that a multicast names."""
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    if not ranks or ranks[-1] >= grid.cluster.blocks:
        raise EmulatorError(
            f"wanted blocks of a cluster of {grid.cluster.blocks}, got mask {mask:#x}"
        )
    return ranks


def start_load(
    grid: Grid,
    memory: Memory,
    rank: int,
    places: np.ndarray,
    thread: np.ndarray,
    barrier: Mbarrier,
    fetch: Callable[[], np.ndarray],
) -> None:
    """`thread` starts to fill the bytes `places` of block `rank` with what `fetch` finds later."""
    check_made(grid, barrier, thread, True)
    grid.cluster.check_alive(rank)
    at = _bytes_of(memory, "copies to", rank, places, thread)
    memory.refuse(memory.order.write_later(at, thread, [barrier.agent], [IN_FLIGHT]), at)

    def arrive() -> None:
        memory.put(at, fetch()[None])
        memory.order.stamp[at] = barrier.phase + 1
        barrier.copied(len(places))

    grid.cluster.late.append(arrive)


def start_store(
    grid: Grid, memory: Memory, rank: int, places: np.ndarray, thread: np.ndarray
) -> np.ndarray:
    """`thread` starts to read the bytes `places` of block `rank`; returns them."""
    bulk, agent = _bulk(grid, int(thread[0])), _agent(grid, int(thread[0]))
    at = _bytes_of(memory, "copies from", rank, places, thread)
    memory.refuse(memory.order.read_later(at, thread, agent, bulk.committed + 1), at)
    memory.check_valid(at)
    bulk.open = True
    return memory.bytes[at][0]


def _bytes_of(memory: Memory, verb: str, rank: int, places: np.ndarray, thread) -> np.ndarray:
    first, count = places.min(keepdims=True), len(places)
    memory.bytes_at(verb, np.array([rank]), first, thread, count)
    at = (memory.starts[rank] + places)[None]
    memory.check_ordinary(at)
    return at


def load(op):
    into, source, barrier, size, multicast, _ = split(op)
    to = access(space_of(op.operands[into][0]), UNIT, UNIT)
    out = access(space_of(op.operands[source][0]), UNIT, UNIT)
    meet = access(space_of(op.operands[barrier][0]), 8, 8)

    def run(grid: Grid, mask: Mask, *values):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane
            count = _count(grid, values[size][0], lane)
            memory, rank, offset, thread = to(grid, one, values[into][0])
            _, barrier_rank, barrier_offset, _ = meet(grid, one, values[barrier][0])
            whole, *place = out(grid, one, values[source][0])
            whole.bytes_at("reads", *place, count)
            ranks = [(int(rank[0]), int(barrier_rank[0]))]
            if values[multicast]:
                chosen = int(grid.spread(values[multicast][0])[lane]) & 0xFFFF
                ranks = [(r, r) for r in blocks_of(grid, chosen)]
            for target, meeting in ranks:
                start_load(
                    grid,
                    memory,
                    target,
                    int(offset[0]) + np.arange(count),
                    thread,
                    find(grid, meeting, barrier_offset[0]),
                    lambda place=place, count=count, whole=whole: whole.load(*place, count)[0],
                )

    return run


def store(op):
    into, source, size, _, byte_mask = split(op)
    if op.operands[byte_mask]:
        raise EmulatorError("the emulator knows bulk stores of all bytes alone")
    to = access(space_of(op.operands[into][0]), UNIT, UNIT)
    out = access(space_of(op.operands[source][0]), UNIT, UNIT)

    def run(grid: Grid, mask: Mask, *values):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane
            count = _count(grid, values[size][0], lane)
            memory, rank, offset, thread = out(grid, one, values[source][0])
            places = int(offset[0]) + np.arange(count)
            data = start_store(grid, memory, int(rank[0]), places, thread)
            whole, *place = to(grid, one, values[into][0])
            whole.store(*place, data[None])

    return run


def _count(grid: Grid, size: np.ndarray, lane: int) -> int:
    count = int(grid.spread(size)[lane])
    if count <= 0 or count % UNIT:
        raise EmulatorError(f"wanted a multiple of {UNIT} bytes, got {count}")
    return count


class Bulk:
    """How many groups of stores one thread has committed, and how many it waited for."""

    def __init__(self) -> None:
        self.committed = self.waited = 0
        self.open = False


def _bulk(grid: Grid, thread: int) -> Bulk:
    return grid.cluster.groups.setdefault(("bulk", thread), Bulk())


def _agent(grid: Grid, thread: int) -> int:
    return grid.cluster.clocks.agent("a bulk store of thread", thread)


def commit(grid: Grid, mask: Mask) -> None:
    for thread in grid.cluster.number(grid.lane[mask]):
        bulk = _bulk(grid, int(thread))
        bulk.committed, bulk.open = bulk.committed + 1, False


def wait_until(left: int) -> Callable:
    """Until at most `left` groups of the thread still read shared memory."""

    def run(grid: Grid, mask: Mask):
        threads = grid.cluster.number(grid.lane[mask])
        for thread in threads:
            bulk = _bulk(grid, int(thread))
            bulk.waited = max(bulk.waited, bulk.committed - left)
            if bulk.committed:
                clocks = grid.cluster.clocks
                clocks.learn(np.array([thread]), _agent(grid, int(thread)), bulk.waited)

    return run


def check_finished(cluster) -> None:
    """At the end: shared memory is gone, so that no store may still read it."""
    for key, bulk in cluster.groups.items():
        if key[0] == "bulk" and (bulk.open or bulk.waited < bulk.committed):
            raise EmulatorError(f"thread {key[1]} ends while its bulk stores read shared memory")


EFFECTS = {
    "nvvm.cp.async.bulk.shared.cluster.global": load,
    "nvvm.cp.async.bulk.global.shared.cta": store,
    "nvvm.cp.async.bulk.commit.group": lambda op: commit,
    "nvvm.cp.async.bulk.wait_group": lambda op: wait_until(number(op, "group")),
}
