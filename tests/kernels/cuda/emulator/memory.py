"""Memory of the emulator: regions of bytes that know whether they were written.

Every access is checked: inside its region, no read of bytes that nobody wrote, no write to inputs,
and no race, which an order of `emulator.races` tells.
"""

from dataclasses import dataclass

import numpy as np

from emulator.masks import every, some


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
    """Regions side by side in one array, so that lanes may access different ones at once.

    Args:
        regions: What there is.
        order: Made from the number of bytes; says which accesses race.
    """

    def __init__(self, regions: list[Region], order) -> None:
        self.names = [region.name for region in regions]
        self.sizes = np.array([len(region.data) for region in regions], np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.bytes = np.concatenate([region.data for region in regions])
        self.input = np.repeat([region.input for region in regions], self.sizes)
        self.valid = np.repeat([r.input or r.initialised for r in regions], self.sizes)
        self.opaque = np.zeros(len(self.bytes), bool)
        self.guarded = False
        self._read_only = np.array([region.input for region in regions])
        self._slots = (
            np.cumsum(~self.input) - 1
        )  # Inputs never race: the order has no room for them.
        self.order = order(int((~self.input).sum()))

    def region(self, number: int) -> np.ndarray:
        """The bytes of one region as they are now."""
        start = self.starts[number]
        return self.bytes[start : start + self.sizes[number]]

    def load(self, region, offset, lane, count: int) -> np.ndarray:
        """`count` bytes at `offset` in `region`, for each lane: uint8 [lanes, count]."""
        at = self.bytes_at("reads", region, offset, lane, count)
        self.check_ordinary(at)
        self._ask(self.order.read, at, lane, region)
        self.check_valid(at)
        return self.bytes[at]

    def store(self, region, offset, lane, data: np.ndarray) -> None:
        """Writes uint8 [lanes, count] at `offset` in `region`."""
        at = self.bytes_at("writes", region, offset, lane, data.shape[1])
        self.check_ordinary(at)
        self.check_writable(at)
        self._ask(self.order.write, at, lane, region)
        self.put(at, data)

    def compare_exchange(self, region, offset, lane, expected, desired) -> np.ndarray:
        """Atomic compare and swap, lane after lane; returns the old bytes."""
        at = self.bytes_at("exchanges", region, offset, lane, expected.shape[1])
        self._ask(self.order.update, at, lane, region)
        old = np.empty_like(expected)
        for i, place in enumerate(at):
            old[i] = self.bytes[place]
            if (old[i] == expected[i]).all():
                self.bytes[place] = desired[i]
        return old

    def update(self, region, offset, lane, values: np.ndarray, operation) -> np.ndarray:
        """Atomic read, `operation` and write, lane after lane; returns the old values."""
        at = self.bytes_at("updates", region, offset, lane, values.itemsize)
        self.check_ordinary(at)
        self.check_writable(at)
        self._ask(self.order.update, at, lane, region)
        self.check_valid(at)
        old = np.empty_like(values)
        for i, place in enumerate(at):
            old[i : i + 1] = self.bytes[place].view(values.dtype)
            new = operation(old[i : i + 1], values[i : i + 1])
            self.bytes[place] = new.astype(values.dtype).view(np.uint8)
        return old

    def _ask(self, verb, at: np.ndarray, lane: np.ndarray, region) -> None:
        rows = ~self._read_only[region]
        if every(rows):
            self.refuse(verb(self._slots[at], lane), at)
        elif some(rows):
            self.refuse(verb(self._slots[at[rows]], lane[rows]), at[rows])

    def put(self, at: np.ndarray, data: np.ndarray) -> None:
        """Writes without asking the order, which was asked already."""
        self.bytes[at] = data
        self.valid[at] = True

    def guard(self, at: np.ndarray) -> None:
        """The bytes `at` are an mbarrier from now on, for its own instructions alone."""
        self.opaque[at] = self.guarded = True

    def check_ordinary(self, at: np.ndarray) -> None:
        if self.guarded and some(self.opaque[at]):
            raise EmulatorError(f"touches an mbarrier in {self.where(at, self.opaque[at])}")

    def check_valid(self, at: np.ndarray) -> None:
        if not every(self.valid[at]):
            raise EmulatorError(f"reads uninitialised bytes of {self.where(at, ~self.valid[at])}")

    def check_writable(self, at: np.ndarray) -> None:
        if some(self._read_only) and some(self.input[at]):
            raise EmulatorError(f"writes the input {self.where(at, self.input[at])}")

    def refuse(self, race, at: np.ndarray) -> None:
        """Raises what an order found: None, or a text and the bytes that it is about."""
        if race is not None:
            text, bad = race
            raise EmulatorError(f"race: {text} {self.where(at, bad)}")

    def bytes_at(self, verb: str, region, offset, lane, count: int) -> np.ndarray:
        """Where `count` bytes at `offset` lie in `bytes`: [lanes, count]."""
        inside = (region >= 0) & (region < len(self.sizes)) & (offset >= 0)
        inside &= offset + count <= self.sizes.take(region, mode="clip")
        if not every(inside):
            bad = int(np.argmin(inside))
            name = self.names[region[bad]] if 0 <= region[bad] < len(self.names) else "no buffer"
            size = self.sizes[region[bad]] if 0 <= region[bad] < len(self.names) else 0
            raise EmulatorError(
                f"out of bounds: thread {lane[bad]} {verb} {count} bytes at {offset[bad]} of {name}"
                f" ({size} bytes)"
            )
        return (self.starts[region] + offset)[:, None] + np.arange(count)

    def where(self, at: np.ndarray, bad: np.ndarray) -> str:
        """The name of the region that holds the first bad byte."""
        first = at[bad].flat[0]
        return self.names[int(np.searchsorted(self.starts, first, side="right")) - 1]
