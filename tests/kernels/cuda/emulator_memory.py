"""Memory of the emulator: regions of bytes that know who touched them.

Every access is checked: inside its region, aligned as the instruction claims, no read of bytes that
nobody wrote, no write to inputs, and no race: two threads at one byte, at least one of them
writing, with nothing that orders them (PTX ISA, "Memory Consistency Model": such results are
undefined). Order comes from barriers alone, as our kernels use nothing weaker.
"""

from dataclasses import dataclass

import numpy as np

NOBODY, SEVERAL = -1, -2


class EmulatorError(AssertionError):
    """A kernel did what the machine forbids or leaves undefined; the text names the operation."""


@dataclass
class Region:
    """One buffer, or the shared memory of one block. `input` bytes are valid and read-only."""

    name: str
    data: np.ndarray
    input: bool = False
    initialised: bool = False


class Memory:
    """Regions side by side in one array, so that lanes may access different ones at once."""

    def __init__(self, regions: list[Region]) -> None:
        self.names = [region.name for region in regions]
        self.sizes = np.array([len(region.data) for region in regions], np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.bytes = np.concatenate([region.data for region in regions])
        self.input = np.repeat([region.input for region in regions], self.sizes)
        self.valid = np.repeat([r.input or r.initialised for r in regions], self.sizes)
        self.writer = np.full(len(self.bytes), NOBODY, np.int64)
        self.reader = np.full(len(self.bytes), NOBODY, np.int64)

    def region(self, number: int) -> np.ndarray:
        """The bytes of one region as they are now."""
        start = self.starts[number]
        return self.bytes[start : start + self.sizes[number]]

    def load(self, region, offset, lane, count: int) -> np.ndarray:
        """`count` bytes at `offset` in `region`, for each lane: uint8 [lanes, count]."""
        at = self._bytes_at("reads", region, offset, lane, count)
        if not self.valid[at].all():
            raise EmulatorError(
                f"reads uninitialised bytes of {self._where(region, ~self.valid[at])}"
            )
        foreign = (self.writer[at] != NOBODY) & (self.writer[at] != lane[:, None])
        if foreign.any():
            raise EmulatorError(
                f"race: reads what another thread wrote in {self._where(region, foreign)}"
            )
        before, mine = self.reader[at], np.broadcast_to(lane[:, None], at.shape)
        self.reader[at] = mine
        shared = ((before != NOBODY) & (before != mine)) | (self.reader[at] != mine)
        self.reader[at[shared]] = SEVERAL
        return self.bytes[at]

    def store(self, region, offset, lane, data: np.ndarray) -> None:
        """Writes uint8 [lanes, count] at `offset` in `region`."""
        at = self._bytes_at("writes", region, offset, lane, data.shape[1])
        if self.input[at].any():
            raise EmulatorError(f"writes the input {self._where(region, self.input[at])}")
        mine = np.broadcast_to(lane[:, None], at.shape)
        writer, reader = self.writer[at], self.reader[at]
        self.writer[at] = mine
        foreign = (writer != NOBODY) & (writer != mine) | (self.writer[at] != mine)
        if foreign.any():
            raise EmulatorError(f"race: two threads write {self._where(region, foreign)}")
        foreign = (reader != NOBODY) & (reader != mine)
        if foreign.any():
            raise EmulatorError(
                f"race: writes what another thread reads in {self._where(region, foreign)}"
            )
        self.bytes[at] = data
        self.valid[at] = True

    def compare_exchange(self, region, offset, lane, expected, desired) -> np.ndarray:
        """Atomic compare and swap, lane after lane; returns the old bytes. Atomics never race."""
        at = self._bytes_at("exchanges", region, offset, lane, expected.shape[1])
        old = np.empty_like(expected)
        for i, place in enumerate(at):
            old[i] = self.bytes[place]
            if (old[i] == expected[i]).all():
                self.bytes[place] = desired[i]
        return old

    def order(self, regions: np.ndarray) -> None:
        """A barrier: what was touched before in `regions` races with nothing after it."""
        ordered = np.repeat(np.isin(np.arange(len(self.sizes)), regions), self.sizes)
        self.writer[ordered] = NOBODY
        self.reader[ordered] = NOBODY

    def _bytes_at(self, verb: str, region, offset, lane, count: int) -> np.ndarray:
        inside = (region >= 0) & (region < len(self.sizes))
        inside &= (offset >= 0) & (offset + count <= self.sizes[np.where(inside, region, 0)])
        if not inside.all():
            bad = int(np.argmin(inside))
            name = self.names[region[bad]] if 0 <= region[bad] < len(self.names) else "no buffer"
            size = self.sizes[region[bad]] if 0 <= region[bad] < len(self.names) else 0
            raise EmulatorError(
                f"out of bounds: thread {lane[bad]} {verb} {count} bytes at {offset[bad]} of {name}"
                f" ({size} bytes)"
            )
        return (self.starts[region] + offset)[:, None] + np.arange(count)

    def _where(self, region, bad: np.ndarray) -> str:
        return self.names[region[int(np.argmax(bad.any(axis=1)))]]
