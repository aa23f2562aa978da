"""What one HTTP request gets from a generator: the texts of its choices, as steps bring them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.serving.errors import ApiError

if TYPE_CHECKING:
    from heddle.pipelines.serving.engine import Engine

Receive = Callable[[], Awaitable[Any]]
"""Waits for the client's next message, by ASGI: after its body, that it has gone."""


async def until_gone(receive: Receive) -> None:
    """Waits until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Answer:
    """Iterates over what is new, a list for one or more steps, until all choices have ended.

    All of it belongs to the event loop's thread.

    Args:
        engine: What is asked.
        requests: The id of each choice's request, in their order.
        receive: The client's; once it has gone, the requests are cancelled.
        whole: Whether all comes together at the end, so that nobody is woken before.

    Attributes:
        prompt: The tokens of the last request's prompt.
        whole: As given.
    """

    def __init__(
        self, engine: Engine, requests: Sequence[str], receive: Receive, whole: bool = False
    ) -> None:
        self.prompt: list[int] = []
        self._engine = engine
        self._choices = {name: index for index, name in enumerate(requests)}
        self._left = set(requests)
        self.whole = whole
        self._new: list[TextDelta] = []
        self._failure: ApiError | None = None
        self._ready = asyncio.Event()
        self._last = dict.fromkeys(requests, time.perf_counter())  # when each had news
        self._begun: set[str] = set()
        self._watch = asyncio.create_task(self._close_when_gone(receive))

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> list[tuple[int, TextDelta]]:
        """What is new: the number of a choice, and its delta.

        Raises:
            ApiError: The model was lost.
        """
        if self._left or self._new:
            await self._ready.wait()
        self._ready.clear()
        if self._failure:
            raise self._failure
        new, self._new = self._new, []
        if not new:
            raise StopAsyncIteration
        return [(self._choices[delta.request_id], delta) for delta in new]

    def push(self, deltas: Sequence[TextDelta], now: float) -> None:
        """Hands on what a step brought, and when that was."""
        metrics = self._engine.metrics
        for delta in deltas:
            name, count = delta.request_id, len(delta.tokens)
            if count and name in self._begun:
                for _ in range(count):
                    metrics.each_token.observe((now - self._last[name]) / count)
            elif count:
                self._begun.add(name)
                metrics.first_token.observe(now - self._last[name])
                metrics.prompt_tokens.inc(delta.prompt_tokens)
            if count:
                self._last[name] = now
                metrics.generated_tokens.inc(count)
            if delta.finish_reason:
                metrics.ended(delta.finish_reason)
                self._left.discard(name)
        self._new += deltas
        if not (self.whole and self._left) or any(delta.error for delta in deltas):
            self._ready.set()
        if not self._left:
            self._watch.cancel()

    def fail(self, error: ApiError) -> None:
        """Ends the iteration with an error."""
        self._failure = error
        self._engine.metrics.ended("error", len(self._left))
        self._end()

    def close(self, reason: str = "cancelled") -> None:
        """Cancels what has not ended, and ends the iteration; `reason` is what is counted."""
        if self._left:
            self._engine.cancel(self._left)
            self._engine.metrics.ended(reason, len(self._left))
        self._end()

    def _end(self) -> None:
        self._left = set()
        self._ready.set()
        self._watch.cancel()

    async def _close_when_gone(self, receive: Receive) -> None:
        await until_gone(receive)
        self.close()
