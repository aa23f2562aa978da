"""A model whose answers come whole, for the tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from heddle.pipelines.serving.errors import QueueFullError, refused
from heddle.pipelines.serving.metrics import ModelMetrics

Result = TypeVar("Result")


class CallEngine:
    """Answers requests one after the other, in a thread of its own.

    Args:
        name: The model's.
        most: Most requests at once.
        metrics: Of the model.

    Attributes:
        lost: None: what fails with one request need not with another.
    """

    kind: str
    """What such a model is called, with its article."""

    def __init__(self, name: str, most: int, metrics: ModelMetrics) -> None:
        self.name = name
        self.metrics = metrics
        self.lost: None = None
        self._most = most
        self._here = 0

    def start(self) -> None:
        """Gets the thread."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"heddle-{self.name}")

    async def close(self) -> None:
        """Ends the thread, after what it does."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def call(self, work: Callable[[], tuple[Result, int, int]]) -> tuple[Result, int]:
        """What `work` gives in the thread: a result, and how many texts and tokens it is of.

        Returns:
            The result, and its tokens.

        Raises:
            ApiError: The queue is full, or the texts are refused.
        """
        if self._here >= self._most:
            raise QueueFullError(self._most)
        self._here += 1
        try:
            loop = asyncio.get_running_loop()
            result, texts, tokens = await loop.run_in_executor(self._thread, work)
        except ValueError as error:
            self.metrics.ended("refused")
            raise refused(error) from None
        except Exception:
            self.metrics.ended("error")
            raise
        finally:
            self._here -= 1
        self.metrics.ended("stop", texts)
        self.metrics.prompt_tokens.inc(tokens)
        return result, tokens
