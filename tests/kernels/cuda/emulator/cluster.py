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
    not ended; the rest is what the topics' rows keep here.
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

    def check_alive(self, rank: int) -> None:
        """A block that ended has no shared memory any more ("Cluster of Cooperative ...")."""
        if not self.running[rank]:
            raise EmulatorError(f"accesses shared memory of block {self.first + rank}, which ended")
