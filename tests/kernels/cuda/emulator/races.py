"""Which accesses race: two at one byte, at least one a write, with nothing that orders them.

PTX ISA 9.0, "Memory Consistency Model": what a race leaves behind is undefined. Atomics race with
ordinary accesses, not with each other ("Morally strong operations"). An order answers `read`,
`write` and `update`, an atomic, with None, or with a text and the bytes at fault. `BarrierOrder` is
for kernels that run in lockstep and have no order but whole barriers; `ClockOrder` is for the
others.
"""

import numpy as np

from emulator.clocks import Clocks
from emulator.grid import WARP
from emulator.masks import some

NOBODY, SEVERAL = -1, -2

Race = tuple[str, np.ndarray] | None


class BarrierOrder:
    """Remembers who touched a byte since the last barrier: a thread, several, or nobody.

    `atomic`: all of its writes are atomics.
    """

    def __init__(self, size: int) -> None:
        self.writer = np.full(size, NOBODY, np.int64)
        self.reader = np.full(size, NOBODY, np.int64)
        self.atomic = np.zeros(size, bool)

    def read(self, at: np.ndarray, lane: np.ndarray) -> Race:
        foreign = (self.writer[at] != NOBODY) & (self.writer[at] != lane[:, None])
        if some(foreign):
            return "reads what another thread wrote in", foreign
        before, mine = self.reader[at], np.broadcast_to(lane[:, None], at.shape)
        self.reader[at] = mine
        shared = ((before != NOBODY) & (before != mine)) | (self.reader[at] != mine)
        self.reader[at[shared]] = SEVERAL
        return None

    def write(self, at: np.ndarray, lane: np.ndarray) -> Race:
        mine = np.broadcast_to(lane[:, None], at.shape)
        writer, reader = self.writer[at], self.reader[at]
        self.writer[at], self.atomic[at] = mine, False
        foreign = (writer != NOBODY) & (writer != mine) | (self.writer[at] != mine)
        if some(foreign):
            return "two threads write", foreign
        foreign = (reader != NOBODY) & (reader != mine)
        if some(foreign):
            return "writes what another thread reads in", foreign
        return None

    def update(self, at: np.ndarray, lane: np.ndarray) -> Race:
        mine = np.broadcast_to(lane[:, None], at.shape)
        writer, reader, atomic = self.writer[at], self.reader[at], self.atomic[at]
        foreign = (writer != NOBODY) & (writer != mine) & ~atomic
        if some(foreign):
            return "updates what another thread wrote in", foreign
        foreign = (reader != NOBODY) & (reader != mine)
        if some(foreign):
            return "updates what another thread reads in", foreign
        self.writer[at], self.atomic[at] = mine, atomic | (writer == NOBODY)
        several = ((writer != NOBODY) & (writer != mine)) | (self.writer[at] != mine)
        self.writer[at[several]] = SEVERAL
        return None

    def barrier(self, at: np.ndarray) -> None:
        """What was touched before at the bytes `at` races with nothing after it."""
        self.writer[at] = NOBODY
        self.reader[at] = NOBODY
        self.atomic[at] = False


class _Known:
    """What each of `threads` knows of agents: a row for each. `fenced`: the async proxy asks."""

    def __init__(self, clocks: Clocks, threads: np.ndarray, fenced: bool = False) -> None:
        self._clocks, self._row, self.fenced = clocks, threads[:, None], fenced

    def of(self, agent: np.ndarray) -> np.ndarray:
        return self._clocks.known[self._row, agent]

    def through_fence(self, agent: np.ndarray) -> np.ndarray:
        return self._clocks.fenced[self._row, agent]

    def of_warp(self, warp: int) -> np.ndarray:
        first = warp * WARP
        return self.of(np.arange(first, min(first + WARP, self._clocks.threads)))


class _KnownByAll:
    """What all of `threads` know of agents, for which the async proxy asks."""

    fenced = True

    def __init__(self, clocks: Clocks, threads: np.ndarray) -> None:
        self._clocks, self._threads = clocks, threads

    def of(self, agent: np.ndarray) -> np.ndarray:
        return self._least(self._clocks.known, agent)

    def through_fence(self, agent: np.ndarray) -> np.ndarray:
        return self._least(self._clocks.fenced, agent)

    def _least(self, clocks: np.ndarray, agent: np.ndarray) -> np.ndarray:
        agents, place = np.unique(agent, return_inverse=True)
        least = clocks[self._threads[:, None], agents].min(axis=0)
        return least[place].reshape(agent.shape)


class ClockOrder:
    """Remembers, of each byte, the last write and the reads since then, with their clocks.

    An earlier access is ordered before one of a thread that knows of it (`Clocks`). Threads of one
    warp share a clock, so that a byte's readers are, for each warp, a clock and a mask of lanes;
    asynchronous readers have a column of their own.
    """

    def __init__(self, size: int, clocks: Clocks) -> None:
        self.clocks = clocks
        self.writer = np.full(size, NOBODY, np.int32)
        self.stamp = np.zeros(size, np.int32)
        self.readers: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
        self.updated = np.zeros(size, bool)
        self.updates: dict[int, dict[int, int]] = {}

    def read(self, at: np.ndarray, lane: np.ndarray) -> Race:
        """An ordinary read by threads of one warp."""
        race = self._read_of(at, _Known(self.clocks, lane))
        if race is not None:
            return race
        warp = int(lane[0]) // WARP
        stamps, masks = self._column(("warp", warp))
        masks[at[stamps[at] <= self.clocks.met(warp)]] = 0  # Ordered before whatever comes now.
        np.bitwise_or.at(masks, at, (1 << (lane % WARP)[:, None]).astype(np.uint32))
        stamps[at] = self.clocks.now(lane)[:, None]
        return None

    def write(self, at: np.ndarray, lane: np.ndarray) -> Race:
        """An ordinary write by threads of one warp."""
        race = self._write(at, _Known(self.clocks, lane))
        if race is None:
            self._set_writer(at, lane[:, None], self.clocks.now(lane)[:, None])
            twice = self.writer[at] != lane[:, None]
            if some(twice):
                return "two threads write", twice
        return race

    def update(self, at: np.ndarray, lane: np.ndarray) -> Race:
        """An atomic of threads of one warp."""
        known = _Known(self.clocks, lane)
        race = self._after_write(at, known, "updates") or self._after_reads(at, known, "updates")
        if race is None:
            for places, thread in zip(at.tolist(), lane.tolist(), strict=True):
                agent, stamp = self.clocks.count_atomic(thread)
                for place in places:
                    self.updates.setdefault(place, {})[agent] = stamp
            self.updated[at] = True
        return race

    def read_later(self, at: np.ndarray, threads: np.ndarray, agent: int, stamp: int) -> Race:
        """The async proxy reads for `threads`, until `agent` is known at `stamp`."""
        race = self._read_of(at, _KnownByAll(self.clocks, threads))
        if race is None:
            self._column(("agent", agent))[0][at] = stamp
        return race

    def write_later(self, at, threads, agents, stamps, generic: bool = False) -> Race:
        """Asynchronous writes, a row of `at` for each of `threads`, `agents` and `stamps`.

        Through the async proxy unless `generic`. They are in flight until known at their stamps.
        """
        race = self._write(at, _Known(self.clocks, threads, fenced=not generic))
        if race is None:
            agents = np.reshape(agents, (-1, 1))
            self._set_writer(at, agents, np.reshape(stamps, (-1, 1)))
            twice = self.writer[at] != agents
            if some(twice):
                return "two copies write", twice
        return race

    def _read_of(self, at: np.ndarray, known: "_Known | _KnownByAll") -> Race:
        return self._after_write(at, known, "reads") or self._after_updates(at, known, "reads")

    def _write(self, at: np.ndarray, known: "_Known") -> Race:
        return (
            self._after_write(at, known, "writes over")
            or self._after_updates(at, known, "writes over")
            or self._after_reads(at, known, "writes")
        )

    def _after_reads(self, at: np.ndarray, known: "_Known", verb: str) -> Race:
        """Whether all reads of each byte are known."""
        for (kind, number), (stamps, masks) in self.readers.items():
            foreign = self._unknown_read(at, known, kind, number, stamps[at], masks)
            if some(foreign):
                who = f"warp {number}" if kind == "warp" else self.clocks.name(number)
                return f"{verb} what {who} reads in", foreign
        return None

    def _after_updates(self, at: np.ndarray, known: "_Known | _KnownByAll", verb: str) -> Race:
        """Whether all atomics on each byte are known."""
        foreign = self.updated[at]
        for row, column in np.argwhere(foreign):
            atomics = self.updates[int(at[row, column])]
            knows = known.of(np.array(list(atomics))[None])
            late = knows[min(row, len(knows) - 1)] < list(atomics.values())
            if some(late):
                foreign[...] = False
                foreign[row, column] = True
                return f"{verb} what {self.clocks.name(list(atomics)[late.argmax()])} in", foreign
        return None

    def _after_write(self, at: np.ndarray, known: "_Known | _KnownByAll", verb: str) -> Race:
        """Whether the last write of each byte is known, also to the proxy that accesses it."""
        writer, stamp = self.writer[at], self.stamp[at]
        written, agent = writer != NOBODY, np.maximum(writer, 0)
        if not some(written):
            return None
        foreign = written & (known.of(agent) < stamp)
        if some(foreign):
            return f"{verb} what {self._culprit(at, foreign)} in", foreign
        if known.fenced:
            foreign = written & self.clocks.generic[agent] & (known.through_fence(agent) < stamp)
            if some(foreign):
                culprit = self._culprit(at, foreign)
                return f"no fence.proxy.async before it {verb} what {culprit} in", foreign
        return None

    def _unknown_read(self, at, known, kind: str, number: int, stamps, masks) -> np.ndarray:
        if kind == "agent":
            return known.of(np.full((1, 1), number)) < stamps
        if not some(stamps):  # Nobody of that warp has read any of them.
            return np.zeros(stamps.shape, bool)
        lanes = known.of_warp(number)
        foreign = stamps > lanes.min(axis=1)[:, None]
        row, column = np.nonzero(foreign)
        if len(row):
            readers = (masks[at[row, column]][:, None] >> np.arange(WARP)) & 1 == 1
            late = lanes[row] < stamps[row, column][:, None]
            foreign[row, column] = (readers[:, : lanes.shape[1]] & late).any(axis=1)
        return foreign

    def _set_writer(self, at: np.ndarray, agents: np.ndarray, stamps: np.ndarray) -> None:
        self.writer[at], self.stamp[at] = agents, stamps
        for clocks, _ in self.readers.values():
            clocks[at] = 0
        if self.updates:
            for place in at[self.updated[at]].tolist():
                self.updates.pop(place, None)
            self.updated[at] = False

    def _column(self, key: tuple[str, int]) -> tuple[np.ndarray, np.ndarray]:
        if key not in self.readers:
            size = len(self.writer)
            self.readers[key] = np.zeros(size, np.int32), np.zeros(size, np.uint32)
        return self.readers[key]

    def _culprit(self, at: np.ndarray, foreign: np.ndarray) -> str:
        return f"{self.clocks.name(int(self.writer[at[foreign]].flat[0]))} wrote"
