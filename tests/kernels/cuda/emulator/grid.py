"""A running launch as a group of its threads sees it: their values and what they can address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.memory import Memory

if TYPE_CHECKING:
    from emulator.cluster import Cluster
    from emulator.dependence import Dependence
    from emulator.tensor_map import TensorMap

WARP = 32
SHARED, SHARED_CLUSTER = 3, 7  # The numbers of address spaces; pointers of others are global.
BUFFER_BITS = 32  # Address of byte b of buffer i: (i + 1) << BUFFER_BITS, plus b.
RANK_BITS = 24  # Address of byte b in shared memory of rank r: (r + 1) << RANK_BITS, plus b.


@dataclass
class Grid:
    """The lanes that run together: every thread of the launch, or (`cluster`) one warp of it.

    `lane` numbers threads through the whole launch of `blocks` blocks of `threads` threads; `maps`
    are the tensor maps by the upper bits of their addresses.
    """

    blocks: int
    threads: int
    lane: np.ndarray
    shared: Memory
    memory: Memory
    addresses: dict[str, int]
    bases: np.ndarray
    cluster: Cluster | None = None
    dependence: Dependence | None = None
    maps: dict[int, TensorMap] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    yielded: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = self.lane % self.threads
        self.block = self.lane // self.threads

    def spread(self, value: np.ndarray) -> np.ndarray:
        """`value` with a row for each lane."""
        if value.shape[0] == len(self.lane):
            return value
        return value.repeat(len(self.lane), axis=0)

    def place(self, space: int, address: np.ndarray) -> tuple[Memory, np.ndarray, np.ndarray, Any]:
        """The memory, regions, offsets and threads' numbers that addresses of all lanes mean."""
        if space in (SHARED, SHARED_CLUSTER):
            if self.cluster is None:
                return self.shared, self.block, address, self.lane
            region, offset = self.cluster.locate(space, address, self.block)
            return self.shared, region, offset, self.cluster.number(self.lane)
        region = ((address + (1 << (BUFFER_BITS - 1))) >> BUFFER_BITS) - 1
        inside = (region >= 0) & (region < len(self.bases))
        offset = address - self.bases[np.where(inside, region, 0)]
        return self.memory, region, offset, self.lane
