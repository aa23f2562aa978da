"""Which sequences take part in the next step, and with how many tokens (continuous batching)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from heddle.contexts import CacheBlocks, TextContext
from heddle.pipelines.generation.drafts import DraftCounts, Drafts
from heddle.pipelines.generation.tokenizer import HeldText, TextStream


@dataclass(eq=False)
class Running:
    """A request that has not ended.

    Attributes:
        context: Its tokens.
        text: What they say.
        held: The end of that, which is not shown yet.
        drafts: Guesses at what comes next,
        draft: and those that the next step is to check.
    """

    context: TextContext
    text: TextStream
    held: HeldText = field(default_factory=HeldText)
    drafts: Drafts = field(default_factory=Drafts)
    draft: list[int] = field(default_factory=list)

    def push(self, ends: Collection[int]) -> str:
        """What can be shown with the last token; a stop string in it ends the request.

        Args:
            ends: Tokens that end a text, and are none of it.
        """
        context, token = self.context, self.context.tokens[-1]
        text = self.text.push([] if token in ends else [token], final=context.is_done)
        stop, tracker = context.end_at_stop_string(text), context.eos_tracker
        if stop is not None:
            return self.held.push(text, len(stop) + len(tracker.tail))
        return self.held.push(text, 0 if context.is_done else tracker.begun())


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
        speculate: Most draft tokens of a sequence.

    Attributes:
        drafts: How they have fared so far.
    """

    def __init__(self, blocks: CacheBlocks, rows: int, tokens: int, speculate: int = 0) -> None:
        self.blocks = blocks
        self.rows = rows
        self.tokens = tokens
        self.speculate = speculate
        self.drafts = DraftCounts(0, 0)
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

        Sequences that decode come first, so that long prompts do not hold them up. Drafts get what
        all of these leave.
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
        step = [running for running in self._running if running in chosen]
        for running in step:
            running.draft = []
            if self.speculate and not running.context.tokens.actively_chunked:
                budget -= self._speculate(running, budget)
        return step

    def settle(self, running: Running, checked: int, right: int) -> None:
        """Takes note of a step: full blocks become known, and a request that has ended leaves.

        Blocks of drafts that were wrong are free for others.

        Args:
            running: One of the step, with its new tokens.
            checked: How many tokens of its draft the step has checked,
            right: and how many of these were right.
        """
        context = running.context
        if checked:
            context.spec_decoding_state.propose(running.draft[:checked])
            context.spec_decoding_state.verify(right)
            running.drafts.verify(checked, right)
            self.drafts = DraftCounts(self.drafts.checked + checked, self.drafts.right + right)
        self.blocks.remember(context)
        self.blocks.shorten(context, context.tokens.processed_length)
        if context.is_done:
            self.leave(running)

    def _speculate(self, running: Running, budget: int) -> int:
        """Drafts up to `budget` tokens, for which there are free blocks; returns how many."""
        context = running.context
        length = len(context.tokens)
        most = min(self.speculate, budget, context.max_length - length - 1)
        draft = running.drafts.propose(context, most, self.tokens - budget)
        while draft and not self.blocks.reserve(context, length + len(draft)):
            draft.pop()
        running.draft = draft
        return len(draft)

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
