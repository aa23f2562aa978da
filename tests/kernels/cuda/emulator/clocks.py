"""What each thread knows of the others: vector clocks, for memory that more than barriers order.

PTX ISA 9.0, "Memory Consistency Model: Causality order": an access is ordered before another if a
chain of releases and acquires leads from one to the other; across proxies ("Proxy") the chain also
has a proxy fence. Mattern's vector clocks say it in numbers: thread t knows of agent a up to the
clock `known[t, a]`; `fenced[t, a]` is what it knows through a proxy fence.

An agent is a thread, or something that accesses memory by itself: the copies of one thread, what
completes on one mbarrier, the matrix instructions of one warp; also the atomics of one thread. The
32 threads of a warp share one clock, which goes on whenever one of them releases.
"""

from dataclasses import dataclass

import numpy as np

WARP = 32
IN_FLIGHT = 2**31 - 1
"""The clock of an access that nobody can know of yet."""


@dataclass
class Knowledge:
    """What a release hands over."""

    known: np.ndarray
    fenced: np.ndarray

    def join(self, other: "Knowledge") -> None:
        np.maximum(self.known, other.known, out=self.known)
        np.maximum(self.fenced, other.fenced, out=self.fenced)

    def covers(self, other: "Knowledge") -> bool:
        """Whether who brings this knows all that is in `other`."""
        return bool((self.known >= other.known).all())


class Clocks:
    """The clocks of `threads` threads: of one cluster, or of a launch that orders global memory.

    `shared` is for what rows keep for all of those threads.
    """

    def __init__(self, threads: int) -> None:
        columns = 3 * threads + 256
        self.known = np.zeros((threads, columns), np.int32)
        self.fenced = np.zeros((threads, columns), np.int32)
        self.generic = np.arange(columns) < threads
        """Which agents write through the generic proxy."""
        self.names: dict[object, int] = {}
        self.shared: dict[str, object] = {}
        self.threads = threads
        self._clock = np.ones(-(-threads // WARP), np.int32)
        every = np.arange(threads)
        self.known[every, every] = 1

    def agent(self, kind: str, number: int | str, generic: bool = False) -> int:
        """The column of the asynchronous agent of that name."""
        column = self.names.setdefault((kind, number), self.threads + len(self.names))
        self.generic[column] = generic
        return column

    def atomics(self, thread: int) -> int:
        """The column of the atomics of a thread."""
        return self.agent("an atomic of thread", thread, True)

    def count_atomic(self, thread: int) -> tuple[int, int]:
        """The agent and the number of the next atomic of a thread, of which it knows itself."""
        agent = self.atomics(thread)
        self.known[thread, agent] += 1
        return agent, int(self.known[thread, agent])

    def name(self, column: int) -> str:
        """Who `column` is, to be followed by a verb."""
        if column < self.threads:
            return f"thread {column}"
        kind, number = list(self.names)[column - self.threads]
        return f"{kind} {number}"

    def now(self, lane: np.ndarray) -> np.ndarray:
        """The clocks of threads."""
        return self._clock[lane // WARP]

    def met(self, warp: int) -> int:
        """Up to which clock all threads of a warp know of each other."""
        mine = slice(warp * WARP, (warp + 1) * WARP)
        return int(self.known[mine, mine].min())

    def nothing(self) -> Knowledge:
        """What nobody released."""
        return Knowledge(np.zeros_like(self.known[0]), np.zeros_like(self.known[0]))

    def release(self, lane: np.ndarray) -> Knowledge:
        """All that the threads `lane` know and did up to here."""
        found, part = self.nothing(), self._part(lane)
        self.known[part].max(axis=0, out=found.known[part[1]])
        self.fenced[part].max(axis=0, out=found.fenced[part[1]])
        self._tick(lane)
        return found

    def acquire(self, lane: np.ndarray, released: Knowledge) -> None:
        """The threads `lane` learn what was released."""
        part = self._part(lane)
        self.known[part] = np.maximum(self.known[part], released.known[part[1]])
        self.fenced[part] = np.maximum(self.fenced[part], released.fenced[part[1]])

    def learn(self, lane: np.ndarray, agents, stamps) -> None:
        """The threads `lane` wait for what `agents` did up to `stamps`."""
        self.known[lane, agents] = np.maximum(self.known[lane, agents], stamps)

    def fence(self, lane: np.ndarray) -> None:
        """fence.proxy.async: what the threads know until now, the async proxy may access."""
        part = self._part(lane)
        self.fenced[part] = np.maximum(self.fenced[part], self.known[part])
        self._tick(lane)

    def _part(self, lane: np.ndarray) -> tuple[slice | np.ndarray, slice]:
        """The rows of `lane` and the columns of the agents that there are, without a copy.

        Threads follow each other almost always.
        """
        first, last = int(lane[0]), int(lane[-1])
        rows = slice(first, last + 1) if last - first + 1 == len(lane) else lane
        return rows, slice(self.threads + len(self.names))

    def _tick(self, lane: np.ndarray) -> None:
        for warp in np.unique(lane // WARP):
            self._clock[warp] += 1
            mine = np.arange(warp * WARP, min((warp + 1) * WARP, self.threads))
            self.known[mine, mine] = self._clock[warp]
