"""mbarriers: objects in shared memory that count arrivals and bytes, phase after phase.

PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier": phases and their
completion (no pending arrivals, no pending bytes), "tx-count", init, arrive, expect_tx,
arrive.expect_tx, complete_tx, try_wait.parity, test_wait.parity; fence.mbarrier_init. An arrival
releases what its thread knows, a wait that succeeds acquires it, and with it what was copied in
that phase.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from emulator.clocks import WARP, Clocks, Knowledge
from emulator.grid import SHARED, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.threads import access
from emulator.types import space_of

BYTES = 8
_SPEAKERS = "warps with threads that arrive at mbarriers"
MOST = 2**20 - 1  # "mbarrier: Supported range of counts", of arrivals and of bytes.


@dataclass
class Mbarrier:
    """One object; `phase` is the number of the one that is not complete yet."""

    name: str
    count: int
    clocks: Clocks
    agent: int
    maker: int
    made: int
    fenced: bool = False
    phase: int = 0
    bytes: int = 0
    awaited: dict[int, tuple[int, int]] = field(default_factory=dict)
    gathered: Knowledge = field(init=False)
    released: Knowledge = field(init=False)

    def __post_init__(self) -> None:
        self.pending = self.count
        self.gathered, self.released = self.clocks.nothing(), self.clocks.nothing()

    def expect(self, count: int) -> None:
        self.bytes += count
        if abs(self.bytes) > MOST:
            raise EmulatorError(f"{self.name} waits for {self.bytes} bytes, wanted at most {MOST}")

    def arrive(self, threads: np.ndarray, times: int, brought: Knowledge) -> None:
        """Threads arrive, so many times together, and bring what they know."""
        speakers = self.clocks.shared.setdefault(_SPEAKERS, set())
        speakers.update((threads // WARP * WARP).tolist())
        self.take(times, brought)

    def take(self, times: int, brought: Knowledge) -> None:
        """So many arrivals bring this: also of copies, which say nothing of their threads."""
        if times > self.pending:
            raise EmulatorError(f"more than {self.count} arrivals in a phase of {self.name}")
        self.pending -= times
        self.gathered.join(brought)
        self.complete()

    def copied(self, count: int) -> None:
        """complete_tx: `count` bytes arrived."""
        self.bytes -= count
        self.complete()

    def complete(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self._check_awaited()
            self.phase += 1
            self.pending = self.count
            self.released.join(self.gathered)
            self.gathered = self.clocks.nothing()

    def wait(self, threads: np.ndarray) -> None:
        """Threads have waited for the last phase, and learn what was released."""
        self.clocks.acquire(threads, self.released)
        self.clocks.learn(threads, self.agent, self.phase)
        thread = int(threads[0])  # Of a warp, which has one clock.
        self.awaited[thread // WARP * WARP] = thread, int(self.clocks.now(thread))

    def _check_awaited(self) -> None:
        """Whether who waited for the last phase has certainly done so before this one ends.

        That is asked of warps with threads that arrive at mbarriers: others of them wait as well,
        and lanes for which those speak.
        """
        speakers = self.clocks.shared.get(_SPEAKERS, ())
        for first, (thread, stamp) in self.awaited.items():
            if first in speakers and self.gathered.known[first : first + WARP].max() < stamp:
                raise EmulatorError(
                    f"{self.name}: nothing orders the wait of thread {thread} for a phase before"
                    " the end of the next one, behind which it would wait for another"
                )
        self.awaited = {}

    def passed(self, parity: int) -> bool:
        """Whether the phase of that parity, this one or the last one, is complete."""
        return self.phase % 2 != parity

    def __str__(self) -> str:
        return (
            f"{self.name}: phase {self.phase} lacks {self.pending} of {self.count} arrivals"
            f" and {self.bytes} bytes"
        )


def find(grid: Grid, region: int, offset: int) -> Mbarrier:
    found = grid.cluster.mbarriers.get((int(region), int(offset)))
    if found is None:
        name = grid.shared.names[int(region)]
        raise EmulatorError(f"nobody initialised an mbarrier at byte {offset} of {name}")
    return found


def _space(op) -> int:
    space = space_of(op.operands[0])
    if space != SHARED and "cluster" not in str(op.attributes["scope"]):
        raise EmulatorError("wanted the scope of the cluster at an mbarrier of another block")
    return space


def _each(space: int, run: Callable) -> Callable:
    """Calls `run(grid, mbarrier, threads, values...)` for each mbarrier that lanes name."""
    where = access(space, BYTES, BYTES)
    remote = space != SHARED

    def every(grid: Grid, mask: Mask, address, *values):
        _, region, offset, threads = where(grid, mask, address)
        values = [grid.spread(value)[mask] for value in values]
        for place in dict.fromkeys(zip(region.tolist(), offset.tolist(), strict=True)):
            mine = (region == place[0]) & (offset == place[1])
            found = find(grid, *place)
            check_made(grid, found, threads[mine], remote)
            run(grid, found, threads[mine], *(value[mine] for value in values))
        return np.zeros(len(grid.lane), np.int64)  # The state, for which nobody has a use.

    return every


def check_made(grid: Grid, found: Mbarrier, threads: np.ndarray, outside: bool) -> None:
    """Whether its initialisation is ordered before its use, from `outside` of the block, too."""
    if (grid.cluster.clocks.known[threads, found.maker] < found.made).any():
        raise EmulatorError(f"race: uses {found.name} while thread {found.maker} initialises it")
    if outside and not found.fenced:
        raise EmulatorError(f"no fence.mbarrier_init between the initialisation of {found.name}"
                            " and its use from outside of the block")  # fmt: skip


def init_in(space: int) -> Callable:
    where = access(space, BYTES, BYTES)

    def run(grid: Grid, mask: Mask, address, count):
        memory, region, offset, threads = where(grid, mask, address)
        counts = grid.spread(count)[mask]
        at = memory.bytes_at("initialises", region, offset, threads, BYTES)
        memory.check_ordinary(at)
        memory.refuse(memory.order.write(at, threads), at)
        memory.guard(at)
        clocks = grid.cluster.clocks
        for rank, start, thread, n in zip(region, offset, threads, counts, strict=True):
            if not 0 < n <= MOST:
                raise EmulatorError(f"wanted a count of 1 to {MOST} arrivals, got {n}")
            place = f"at byte {start} of {memory.names[rank]}"
            agent = clocks.agent("a copy in flight to the mbarrier", place)
            grid.cluster.mbarriers[int(rank), int(start)] = Mbarrier(
                f"the mbarrier {place}",
                int(n),
                clocks,
                agent,
                int(thread),
                int(clocks.now(thread)),
            )

    return run


def arrive(op):
    of_cluster = "scope" in op.attributes and "cluster" in str(op.attributes["scope"])
    return arrive_at(space_of(op.operands[0]), of_cluster)


def arrive_at(space: int, of_cluster: bool = False) -> Callable:
    """An arrival; its scope is the block, unless it is `of_cluster`.

    In that of the block, one at another's mbarrier hands over what the thread has waited for, of
    the async proxy, alone: whatever address it is named by.
    """

    def run(grid: Grid, found: Mbarrier, threads, counts=None):
        times = len(threads) if counts is None else int(counts.sum())
        brought = grid.cluster.clocks.release(threads)
        own = found.maker // grid.threads == threads[0] // grid.threads
        if not own and not of_cluster:
            brought.known[grid.cluster.clocks.generic] = 0
            brought.fenced[grid.cluster.clocks.generic] = 0
        found.arrive(threads, times, brought)

    return _each(space, run)


def expect_at(space: int) -> Callable:
    return _each(space, lambda grid, found, threads, counts: found.expect(int(counts.sum())))


def arrive_and_expect_at(space: int) -> Callable:
    def run(grid: Grid, found: Mbarrier, threads, counts):
        found.expect(int(counts.sum()))
        found.arrive(threads, len(threads), grid.cluster.clocks.release(threads))

    return _each(space, run)


def wait_at(space: int) -> Callable:
    each = _awaited_in(space)

    def run(grid: Grid, mask: Mask, address, parity, ticks):
        for found, odd, _, threads in each(grid, mask, address, parity):
            if not found.passed(odd):
                yield (lambda found=found, odd=odd: found.passed(odd)), _Reason(found, odd)
            found.wait(threads)

    return run


def test_at(space: int) -> Callable:
    """Of each lane, whether its phase is complete: then it has waited for it."""
    each = _awaited_in(space)

    def run(grid: Grid, mask: Mask, address, parity) -> np.ndarray:
        complete = np.zeros(len(grid.lane), bool)
        for found, odd, lanes, threads in each(grid, mask, address, parity):
            if found.passed(odd):
                complete[np.flatnonzero(mask)[lanes]] = True
                found.wait(threads)
        return complete

    return run


def _awaited_in(space: int) -> Callable:
    """Each mbarrier that lanes ask for, the parity, which of the lanes ask, and their threads."""
    where = access(space, BYTES, BYTES)

    def run(grid: Grid, mask: Mask, address, parity) -> Iterator:
        if not mask.any():
            return
        _, region, offset, threads = where(grid, mask, address)
        parities = grid.spread(parity)[mask]
        if ((parities != 0) & (parities != 1)).any():
            raise EmulatorError(f"wanted the parity of a phase, 0 or 1, got {parities.max()}")
        for rank, start, odd in dict.fromkeys(zip(region, offset, parities, strict=True)):
            found = find(grid, rank, start)
            lanes = (region == rank) & (offset == start) & (parities == odd)
            check_made(grid, found, threads[lanes], False)
            yield found, odd, lanes, threads[lanes]

    return run


def passed_at(space: int) -> Callable:
    """Whether no lane would have to wait."""
    where = access(space, BYTES, BYTES)

    def run(grid: Grid, mask: Mask, address, parity) -> bool:
        _, region, offset, _ = where(grid, mask, address)
        places = zip(region, offset, grid.spread(parity)[mask], strict=True)
        return all(find(grid, *place).passed(odd) for *place, odd in places)

    return run


class _Reason:
    """What a wait says when it is asked, not when it began."""

    def __init__(self, found: Mbarrier, parity: int) -> None:
        self.found, self.parity = found, parity

    def __str__(self) -> str:
        return f"parity {self.parity} of {self.found}"


def fence_init(grid: Grid, mask: Mask) -> None:
    fence_made_by(grid, grid.cluster.number(grid.lane[mask]))


def fence_made_by(grid: Grid, threads: np.ndarray) -> None:
    """What `threads` initialised may be used from outside of the block, and by copies."""
    for found in grid.cluster.mbarriers.values():
        found.fenced |= found.maker in threads


def _fence_proxy(op):
    if "async" not in str(op.attributes["kind"]):
        raise EmulatorError("the emulator knows the proxy fences of the async proxy alone")
    return fence_proxy


def fence_proxy(grid: Grid, mask: Mask) -> None:
    threads = grid.cluster.number(grid.lane[mask])
    grid.cluster.clocks.fence(threads)
    fence_made_by(grid, threads)


BLOCKING = {"nvvm.mbarrier.try_wait.parity": lambda op: wait_at(space_of(op.operands[0]))}
EFFECTS = {
    "nvvm.mbarrier.init": lambda op: init_in(space_of(op.operands[0])),
    "nvvm.mbarrier.arrive": arrive,
    "nvvm.mbarrier.expect_tx": lambda op: expect_at(_space(op)),
    "nvvm.mbarrier.arrive.expect_tx": lambda op: arrive_and_expect_at(_space(op)),
    "nvvm.mbarrier.test.wait": lambda op: test_at(space_of(op.operands[0])),
    "nvvm.fence.mbarrier.init": lambda op: fence_init,
    # "membar / fence": fence.proxy.async
    "nvvm.fence.proxy": _fence_proxy,
}
