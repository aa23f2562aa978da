"""A model that takes texts in batches, for the tasks of an event loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines.embedding import BATCH
from heddle.pipelines.serving.answer import Receive, until_gone
from heddle.pipelines.serving.errors import ApiError, GoneError, QueueFullError, refused
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.waiting import Job, Row, Waiting

BATCH_TOKENS = 16384
"""Most tokens of a batch, with padding."""


class BatchEngine(ABC, Generic[Row]):
    """Answers requests, in a thread of its own, with what texts of several of them give together.

    A batch is what waits when the model has time; nobody waits for others to come.

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
        self._waiting: Waiting[Row] = Waiting(BATCH, BATCH_TOKENS)
        self._answers: dict[Job[Row], Results] = {}

    @abstractmethod
    def length(self, row: Row) -> int:
        """Tokens of a text."""

    @abstractmethod
    def compute(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        """The model's output for each text; called by the thread."""

    def start(self) -> None:
        """Gets the thread, and the task that gives it work."""
        self._ready = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"heddle-{self.name}")
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Ends the thread, after what it does."""
        self._worker.cancel()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def call(
        self, read: Callable[[], Sequence[Row]], receive: Receive
    ) -> tuple[NDArray[np.float32], int]:
        """The model's output for each text that `read` gives, which a thread calls.

        `receive` is the client's; once it has gone, its texts wait no more.

        Returns:
            The output, [texts, ...], and the tokens of all texts.

        Raises:
            ApiError: The queue is full, the texts are refused, or the client has gone.
        """
        if self._here >= self._most:
            raise QueueFullError(self._most)
        self._here += 1
        try:
            rows = await asyncio.to_thread(read)
            lengths = [self.length(row) for row in rows]
            values = await self._values(Job(rows, lengths), receive)
        except ValueError as error:
            self.metrics.ended("refused")
            raise refused(error) from None
        except ApiError as error:
            self.metrics.ended("cancelled" if isinstance(error, GoneError) else "refused")
            raise
        except Exception:
            self.metrics.ended("error")
            raise
        finally:
            self._here -= 1
        self.metrics.ended("stop", len(rows))
        self.metrics.prompt_tokens.inc(sum(lengths))
        return values, sum(lengths)

    async def _values(self, job: Job[Row], receive: Receive) -> NDArray[np.float32]:
        results = self._answers[job] = Results(len(job.rows))
        self._waiting.add(job)
        self._ready.set()
        watch = asyncio.create_task(until_gone(receive))
        watch.add_done_callback(lambda _: results.fail(GoneError()))
        try:
            return np.stack(await results.ready)
        finally:
            watch.cancel()
            self._waiting.drop(job)
            del self._answers[job]

    async def _work(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            while batch := self._waiting.next_batch():
                await self._run(batch)

    async def _run(self, batch: Sequence[tuple[Job[Row], int]]) -> None:
        """Hands out what a batch gives; where it fails, each request's part is tried by itself."""
        rows = [job.rows[number] for job, number in batch]
        loop = asyncio.get_running_loop()
        try:
            values = await loop.run_in_executor(self._thread, self.compute, rows)
        except Exception as error:
            jobs = {job: [each for each in batch if each[0] is job] for job, _ in batch}
            for job, part in jobs.items():
                if len(jobs) > 1:
                    await self._run(part)
                elif results := self._answers.get(job):
                    self._waiting.drop(job)
                    results.fail(error)
            return
        for (job, number), value in zip(batch, values, strict=True):
            if results := self._answers.get(job):  # its client is still there
                results.put(number, value)


class Results:
    """What there is for the texts of one request.

    Args:
        count: How many texts.

    Attributes:
        ready: Done once there is a value for each, or an error.
    """

    def __init__(self, count: int) -> None:
        self.ready: asyncio.Future[list[NDArray[np.float32]]] = asyncio.Future()
        self._values: dict[int, NDArray[np.float32]] = {}
        self._count = count

    def put(self, number: int, value: NDArray[np.float32]) -> None:
        """The value of a text."""
        self._values[number] = value
        if len(self._values) == self._count and not self.ready.done():
            self.ready.set_result([self._values[at] for at in range(self._count)])

    def fail(self, error: Exception) -> None:
        """Ends the request."""
        if not self.ready.done():
            self.ready.set_exception(error)
