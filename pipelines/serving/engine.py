"""One thread that steps a text generator, and hands what is new to tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from heddle.contexts import TextGenerationRequest
from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.serving.answer import Answer, Receive
from heddle.pipelines.serving.errors import ApiError, LostError, QueueFullError, refused
from heddle.pipelines.serving.metrics import ModelMetrics
from heddle.pipelines.serving.reading.forms import Style

LATE_S = 0.1
"""Seconds after which what nobody waits for is counted all the same."""


class Engine:
    """A generator for the tasks of one event loop.

    The thread sleeps where nothing is to do. What steps bring crosses to the loop in one call, as
    soon as somebody waits for it.
    Prompts are read and grammars compiled in threads of the loop's executor, while steps go on.

    Args:
        name: The model's.
        generator: What it steps; nobody else does.
        most: Most requests of the generator at once, of all answers together.
        metrics: Of the model.
        style: How the model writes.
        sampling: How its tokens are drawn where a request does not say it.

    Attributes:
        hidden: Tokens that are left out of the texts of conversations; None: special ones.
        lost: The error of a step that failed; then nothing is answered any more.
    """

    kind = "a text generator"

    def __init__(
        self,
        name: str,
        generator: TextGenerator,
        most: int,
        metrics: ModelMetrics,
        style: Style,
        sampling: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.generator = generator
        self.metrics = metrics
        self.style = style
        self.sampling = sampling
        markers = style.markers
        self.hidden = generator.tokenizer.special_tokens(but=markers) if markers else None
        self.lost: Exception | None = None
        self._most = most
        self._answers: dict[str, Answer] = {}
        self._cancelled: deque[str] = deque()
        self._new: deque[tuple[float, list[TextDelta]]] = deque()  # and when it came
        self._told = 0.0  # when the loop was told of it
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

    def check_room(self, choices: int, prompts: int = 1) -> None:
        """Refuses an answer of so many choices to each prompt, before their requests are made.

        Raises:
            ApiError: The model is lost, or the queue is full.
        """
        if self.lost:
            raise LostError(self.name, self.lost)
        count = choices * prompts
        if count > self._most:
            name = "n" if prompts <= self._most else "prompt"
            raise ApiError(400, f"{name}: wanted at most {self._most} texts, got {count}", name)
        if len(self._answers) + count > self._most:
            raise QueueFullError(self._most)

    async def ask(
        self,
        requests: Sequence[TextGenerationRequest],
        regex: str | None,
        receive: Receive,
        hidden: Collection[int] | None = None,
        whole: bool = False,
    ) -> Answer:
        """Submits the requests of one answer; they are cancelled where the task or client goes.

        There is room for them, as `check_room` has just said. Those with messages have the same
        ones. `hidden` are tokens that are left out of texts, as `TextGenerator.submit` says, and
        `whole` is as for `Answer`.

        Raises:
            ApiError: A request is refused.
        """
        names = [request.id for request in requests]
        answer = Answer(self, names, receive, whole)
        self._answers.update(dict.fromkeys(names, answer))
        try:
            answer.prompt = await asyncio.to_thread(self._submit, requests, regex, hidden)
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

    def _submit(
        self,
        requests: Iterable[TextGenerationRequest],
        regex: str | None,
        hidden: Collection[int] | None,
    ) -> list[int]:
        """Run by a thread of the executor: others may cancel them meanwhile; the last prompt."""
        prompt: list[int] = []
        for request in requests:
            if request.messages is None or not prompt:
                prompt = self.generator.prompt(request)
            self.generator.submit(request, regex, prompt, hidden)
            if request.id not in self._answers:
                self._cancelled.append(request.id)
        self._wake.set()
        return prompt

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
            now = time.perf_counter()
            self._new.append((now, deltas))
            if now - self._told > LATE_S or any(map(self._is_awaited, deltas)):
                self._told = now
                self._loop.call_soon_threadsafe(self._hand_out)
        return True

    def _is_awaited(self, delta: TextDelta) -> bool:
        """Whether somebody does something with it now."""
        answer = self._answers.get(delta.request_id)
        return answer is not None and (bool(delta.finish_reason) or not answer.whole)

    def _hand_out(self) -> None:
        while self._new:
            now, deltas = self._new.popleft()
            new: dict[Answer, list[TextDelta]] = {}
            for delta in deltas:
                answer = self._answers.get(delta.request_id)
                if answer is None:  # cancelled
                    continue
                if delta.finish_reason:
                    del self._answers[delta.request_id]
                new.setdefault(answer, []).append(delta)
            for answer, its in new.items():
                answer.push(its, now)

    def _lose(self, error: Exception) -> None:
        self._hand_out()
        self.lost = error
        left, self._answers = set(self._answers.values()), {}
        for answer in left:
            answer.fail(LostError(self.name, error))
