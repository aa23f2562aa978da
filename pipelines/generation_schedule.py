"""Which sequences take part in the next step, and with how many tokens (continuous batching)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from heddle.contexts import CacheBlocks, TextContext
from heddle.pipelines.generation_tokenizer import HeldText, TextStream


@dataclass(eq=False)
class Running:
    """A request that has not ended."""

    context: TextContext
    text: TextStream
    held: HeldText = field(default_factory=HeldText)


@dataclass(frozen=True)
class Load:
    """How much there is to do.

    Attributes:
        running: Requests that have a row.
        waiting: Those that wait for one, or for blocks.
        blocks_used: Blocks of the cache that running requests hold.
        blocks: All blocks of the cache.
    """

    running: int
    waiting: int
    blocks_used: int
    blocks: int


class Schedule:
    """The requests that wait, in order, and those that have a row and blocks of the cache.

    Args:
        blocks: Those of the cache.
        rows: Most sequences of a step.
        tokens: Most tokens of a step.
    """

    def __init__(self, blocks: CacheBlocks, rows: int, tokens: int) -> None:
        self.blocks = blocks
        self.rows = rows
        self.tokens = tokens
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._known: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def load(self) -> Load:
        """What there is now; one number may be a moment younger than another."""
        blocks = self.blocks
        used = blocks.count - blocks.free
        return Load(len(self._running), len(self._waiting), used, blocks.count)

    def find(self, request_id: str) -> Running | None:
        """The request of that id, or None."""
        return self._known.get(request_id)

    def add(self, running: Running) -> None:
        """Lets a new request wait."""
        self._known[running.context.request_id] = running
        self._waiting.append(running)

    def leave(self, running: Running) -> None:
        """Takes out a request that has ended."""
        del self._known[running.context.request_id]
        if running in self._running:
            self._running.remove(running)
            self.blocks.release(running.context)
        else:
            self._waiting.remove(running)

    def next_step(self) -> list[Running]:
        """The requests of the next step, with their windows cut and their blocks reserved.

        Sequences that decode come first, so that long prompts do not hold them up.
        """
        budget = self.tokens
        chosen: set[Running] = set()
        decoding_first = sorted(self._running, key=lambda r: r.context.tokens.active_length > 1)
        for running in decoding_first:
            if budget and running in self._running:
                budget -= self._take(running, budget, chosen)
        while self._waiting and len(self._running) < self.rows and budget:
            running = self._waiting[0]
            self.blocks.reuse(running.context)
            size = self._fitting(running.context, budget)
            if not size:
                self._give_back(running)
                break
            self._running.append(self._waiting.popleft())
            chosen.add(running)
            budget -= size
        return [running for running in self._running if running in chosen]

    def _take(self, running: Running, budget: int, chosen: set[Running]) -> int:
        """Adds `running` to the step; where blocks are short, the youngest others wait again."""
        while not (size := self._fitting(running.context, budget)):
            youngest = next(r for r in reversed(self._running) if r not in chosen)
            self._running.remove(youngest)
            self._give_back(youngest)
            self._waiting.appendleft(youngest)
            if youngest is running:
                return 0
        chosen.add(running)
        return size

    def _fitting(self, context: TextContext, budget: int) -> int:
        """Cuts the window to `budget` tokens and reserves blocks; how many tokens, or 0."""
        tokens = context.tokens
        size = min(tokens.active_length, budget)
        if not self.blocks.reserve(context, tokens.processed_length + size):
            return 0
        if size < tokens.active_length:
            tokens.chunk(size)
        return size

    def _give_back(self, running: Running) -> None:
        """Takes the blocks of `running`, so that all of it is to be processed again."""
        self.blocks.release(running.context)
        tokens = running.context.tokens
        tokens.rewind_processing(tokens.processed_length)
