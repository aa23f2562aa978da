"""Texts of several requests that wait for a model, and which of them make the next batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")

SHORT = 16
"""Tokens below which texts go together, however their lengths differ."""


class Job(Generic[Row]):
    """The texts of one request.

    Args:
        rows: Each text, as the model takes it.
        lengths: Tokens of each.
    """

    def __init__(self, rows: Sequence[Row], lengths: Sequence[int]) -> None:
        self.rows = rows
        self._left = sorted(range(len(rows)), key=lengths.__getitem__)
        self._lengths = sorted(lengths)

    def __len__(self) -> int:
        """How many texts wait."""
        return len(self._left)

    @property
    def longest(self) -> int:
        """Tokens of the longest text that waits."""
        return self._lengths[-1]

    def take(self, least: int, most: int) -> int | None:
        """The number of the longest text of `least` to `most` tokens, which waits no more."""
        at = bisect_right(self._lengths, most) - 1
        if at < 0 or self._lengths[at] < least:
            return None
        del self._lengths[at]
        return self._left.pop(at)


class Waiting(Generic[Row]):
    """The requests whose texts wait, each of which begins a batch in its turn.

    Texts of one batch are of similar length, so that little is spent on padding.

    Args:
        batch: Most texts of a batch.
        tokens: Most tokens of one, padding included; a longer text is a batch by itself.
    """

    def __init__(self, batch: int, tokens: int) -> None:
        self._batch = batch
        self._tokens = tokens
        self._jobs: deque[Job[Row]] = deque()

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._jobs)

    def add(self, job: Job[Row]) -> None:
        """Lets a request wait."""
        self._jobs.append(job)

    def drop(self, job: Job[Row]) -> None:
        """Forgets a request."""
        if job in self._jobs:
            self._jobs.remove(job)

    def next_batch(self) -> list[tuple[Job[Row], int]]:
        """Requests and the numbers of their texts, a text of each in turn; empty: none waits."""
        if not self._jobs:
            return []
        most = self._jobs[0].longest
        least = 0 if most <= SHORT else most // 2
        room = min(self._batch, max(1, self._tokens // max(1, most)))
        found: list[tuple[Job[Row], int]] = []
        takers = deque(self._jobs)
        while takers and len(found) < room:
            job = takers.popleft()
            if (number := job.take(least, most)) is not None:
                found.append((job, number))
                takers.append(job)
        self._jobs.rotate(-1)
        self._jobs = deque(job for job in self._jobs if len(job))
        return found
