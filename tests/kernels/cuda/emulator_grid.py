"""A running launch: its threads as lanes, their values and what they can address."""

from dataclasses import dataclass, field

import numpy as np
from emulator_memory import Memory

from heddle.kernels.mlir import ir

WARP = 32
SHARED = 3  # The number of the address space; pointers of the others are global.
BUFFER_BITS = 32  # Address of byte b of buffer i: (i + 1) << BUFFER_BITS, plus b.

Mask = np.ndarray


@dataclass
class Grid:
    """A running launch: `blocks` blocks of `threads` threads, and everything they see."""

    blocks: int
    threads: int
    shared: Memory
    memory: Memory
    addresses: dict[str, int]
    bases: np.ndarray
    values: dict[ir.Value, np.ndarray] = field(default_factory=dict)
    yielded: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lane = np.arange(self.blocks * self.threads)
        self.thread = self.lane % self.threads
        self.block = self.lane // self.threads

    def spread(self, value: np.ndarray) -> np.ndarray:
        """`value` with a row for each lane."""
        return np.broadcast_to(value, (len(self.lane), *value.shape[1:]))

    def place(self, space: int, address: np.ndarray) -> tuple[Memory, np.ndarray, np.ndarray]:
        """The memory, regions and offsets that addresses of all lanes mean."""
        if space == SHARED:
            return self.shared, self.block, address
        region = ((address + (1 << (BUFFER_BITS - 1))) >> BUFFER_BITS) - 1
        inside = (region >= 0) & (region < len(self.bases))
        return self.memory, region, address - self.bases[np.where(inside, region, 0)]
