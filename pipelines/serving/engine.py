"""One thread that steps a text generator, and hands what is new to tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from heddle.contexts import TextGenerationRequest
from heddle.pipelines.generation import TextDelta, TextGenerator
from heddle.pipelines.serving.answer import Answer, Receive
from heddle.pipelines.serving.errors import ApiError, LostError, QueueFullError, refused
from heddle.pipelines.serving.metrics import ModelMetrics


class Engine:
    """A generator for the tasks of one event loop.

    The thread sleeps where nothing is to do. What a step brings crosses to the loop in one call.
    Prompts are read and grammars compiled in threads of the loop's executor, while steps go on.

    Args:
        name: The model's.
        generator: What it steps; nobody else does.
        most: Most requests of the generator at once, of all answers together.
        metrics: Of the model.

    Attributes:
        lost: The error of a step that failed; then nothing is answered any more.
    """

    kind = "a text generator"

    def __init__(
        self, name: str, generator: TextGenerator, most: int, metrics: ModelMetrics
    ) -> None:
        self.name = name
        self.generator = generator
        self.metrics = metrics
        self.lost: Exception | None = None
        self._most = most
        self._answers: dict[str, Answer] = {}
        self._cancelled: deque[str] = deque()
        self._wake = threading.Event()
        self._open = True
        self._thread = threading.Thread(target=self._run, name=f"heddle-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread; what is new comes to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Ends the thread, after the step that it is in."""
        self._open = False
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def check_room(self, count: int) -> None:
        """Refuses an answer of so many requests, which need not be made before that is known.

        Raises:
            ApiError: The model is lost, or the queue is full.
        """
        if self.lost:
            raise LostError(self.name, self.lost)
        if count > self._most:
            raise ApiError(400, f"n: wanted at most {self._most} texts, got {count}", "n")
        if len(self._answers) + count > self._most:
            raise QueueFullError(self._most)

    async def ask(
        self, requests: Sequence[TextGenerationRequest], regex: str | None, receive: Receive
    ) -> Answer:
        """Submits the requests of one answer; they are cancelled where the task or client goes.

        There is room for them, as `check_room` has just said.

        Raises:
            ApiError: A request is refused.
        """
        names = [request.id for request in requests]
        answer = Answer(self, names, receive)
        self._answers.update(dict.fromkeys(names, answer))
        try:
            await asyncio.to_thread(self._submit, requests, regex)
        except ValueError as error:
            answer.close("refused")
            raise refused(error) from None
        except BaseException:  # the task is cancelled, or the tokenizer fails
            answer.close()
            raise
        return answer

    def cancel(self, names: Iterable[str]) -> None:
        """Ends requests without another word."""
        for name in names:
            self._answers.pop(name, None)
            self._cancelled.append(name)
        self._wake.set()

    def _submit(self, requests: Iterable[TextGenerationRequest], regex: str | None) -> None:
        """Run by a thread of the executor: others may cancel them meanwhile."""
        for request in requests:
            self.generator.submit(request, regex)
            if request.id not in self._answers:
                self._cancelled.append(request.id)
        self._wake.set()

    def _run(self) -> None:
        try:
            while self._open:
                self._wake.wait()
                self._wake.clear()
                while self._open and self._step():
                    pass
        except Exception as error:
            self._loop.call_soon_threadsafe(self._lose, error)

    def _step(self) -> bool:
        """Does what there is to do; False where that is nothing."""
        while self._cancelled:
            self.generator.cancel(self._cancelled.popleft())
        if not self.generator.busy:
            return False
        if deltas := self.generator.step():
            self._loop.call_soon_threadsafe(self._hand_out, deltas)
        return True

    def _hand_out(self, deltas: Iterable[TextDelta]) -> None:
        new: dict[Answer, list[TextDelta]] = {}
        for delta in deltas:
            answer = self._answers.get(delta.request_id)
            if answer is None:  # cancelled
                continue
            if delta.finish_reason:
                del self._answers[delta.request_id]
            new.setdefault(answer, []).append(delta)
        for answer, its in new.items():
            answer.push(its)

    def _lose(self, error: Exception) -> None:
        self.lost = error
        left, self._answers = set(self._answers.values()), {}
        for answer in left:
            answer.fail(LostError(self.name, error))
