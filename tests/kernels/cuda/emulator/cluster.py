"""The blocks that share clocks and shared memory: a cluster, or one block where there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from emulator.clocks import Clocks
from emulator.grid import RANK_BITS, SHARED_CLUSTER
from emulator.memory import EmulatorError

Wait = tuple[Callable[[], bool], object]
"""What a strand yields when it cannot go on: whether it can by now, and what it waits for (str)."""


@dataclass
class Cluster:
    """`blocks` blocks from number `first` on, of `threads` threads with `registers` each at launch.

    `clocks` number threads from thread `base` of the launch on. `late` are asynchronous operations
    that were issued and have not happened yet; `running` counts the warps of each rank that have
    not ended, `visits` has the clocks at which others last accessed its shared memory; the rest is
    what the topics' rows keep here.
    """

    first: int
    blocks: int
    threads: int
    base: int
    registers: int
    clocks: Clocks
    late: deque[Callable[[], None]] = field(default_factory=deque)
    barriers: dict = field(default_factory=dict)
    mbarriers: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    visits: dict[int, np.ndarray] = field(default_factory=dict)

    def number(self, lane: np.ndarray) -> np.ndarray:
        """The numbers that the clocks have for threads, from those in the launch."""
        return lane - self.base

    def locate(self, space: int, address: np.ndarray, block: np.ndarray):
        """The rank in the cluster, and the offset, of shared addresses of threads of `block`.

        An address of shared::cluster without a rank is the block's own ("State Spaces").
        """
        rank = block - self.first
        if space == SHARED_CLUSTER:
            named = address >> RANK_BITS
            rank = np.where(named > 0, named - 1, rank)
            address = address & ((1 << RANK_BITS) - 1)
            for one in np.unique(rank):
                self.check_alive(int(one))
        return rank, address

    def visit(self, rank: np.ndarray, thread: np.ndarray) -> None:
        """The threads of those numbers access shared memory of blocks of those ranks."""
        away = rank != (thread + self.base) // self.threads - self.first
        for one in np.unique(rank[away]):
            stamps = self.visits.setdefault(int(one), np.zeros(self.clocks.threads, np.int32))
            visitors = thread[away & (rank == one)]
            stamps[visitors] = self.clocks.now(visitors)

    def end_warp(self, block: int) -> None:
        """A warp ends. Who accessed shared memory of its block did so before the last one does."""
        rank = block - self.first
        self.running[rank] -= 1
        if self.running[rank] or rank not in self.visits:
            return
        start = block * self.threads - self.base
        known = self.clocks.known[start : start + self.threads, : self.clocks.threads].max(axis=0)
        if (late := np.flatnonzero(self.visits[rank] > known)).size:
            raise EmulatorError(
                f"block {block} ends, and nothing says that {self.clocks.name(int(late[0]))} has"
                " accessed its shared memory before"
            )

    def check_alive(self, rank: int) -> None:
        """A block that ended has no shared memory any more ("Cluster of Cooperative ...")."""
        if not self.running[rank]:
            raise EmulatorError(f"accesses shared memory of block {self.first + rank}, which ended")
