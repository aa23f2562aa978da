"""Where the keys of a row that decodes are: of the steps that are worked on and asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.decode.parts import STEP
from heddle.kernels.row_spans import Keys
from heddle.kernels.sizes import Size

RING = 16 * STEP
"""Keys whose places are known."""


@dataclass(frozen=True)
class Places:
    """Elements at which keys start under the first head, `row` from one to the next."""

    keys: Keys
    row: int
    ring: Any

    @staticmethod
    def make(keys: Keys, row: int) -> Places:
        """At the start of the kernel's function."""
        return Places(keys, row, host.byte_buffer(8 * RING))

    def find(self, row: Any, first: Any, stop: Any, place: Size) -> None:
        """Notes where the keys of a step are; one that there is not is the last there is."""
        for number in emit.loop(0, STEP):
            found, _ = self.keys.place(row, sizes.least(first + number, stop - 1))
            memory.store(found * self.row, self.ring, (place + number) % RING, "int64")

    def start(self, place: Any) -> Any:
        """Where the key at a place starts."""
        return memory.load(self.ring, place % RING, "int64")
