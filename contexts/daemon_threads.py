"""Threads for work that may never end: it holds up neither other work nor the end of the process.

`concurrent.futures` waits for its threads when the interpreter exits, and can replace none.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread
from typing import Any


class ClosedError(RuntimeError):
    """Work came after `DaemonThreads.close`."""


class Work(Future[Any]):
    """One call, and what comes of it.

    Attributes:
        begun: When a thread took it, of `time.monotonic`.
        too_late: What comes of it when it is given up.
    """

    def __init__(
        self, too_late: Exception, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.too_late = too_late
        self.function = function
        self.arguments = arguments
        self.begun = 0.0
        self._settled = Lock()

    def settle(self) -> bool:
        """Whether the caller is the first to ask, and so the one to say what comes of it."""
        return self._settled.acquire(blocking=False)

    def run(self) -> bool:
        """Make the call; False: it was given up meanwhile."""
        try:
            result = self.function(*self.arguments)
        except BaseException as error:
            if first := self.settle():
                self.set_exception(error)
        else:
            if first := self.settle():
                self.set_result(result)
        return first


class _Team:
    """What the threads share; they do not hold the object that started them.

    While work is under way one more thread, the watch, waits for what was begun first: all have the
    same time, so it is also the first to be given up.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self.waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._name = name
        self._seconds = seconds
        self._lock = Lock()
        self._begun: deque[Work] = deque()
        self._watched = False

    def start(self) -> None:
        """Start a thread that takes work until there is none any more."""
        Thread(target=self._take_work, name=self._name, daemon=True).start()

    def _take_work(self) -> None:
        while (work := self.waiting.get()) is not None:
            if work.set_running_or_notify_cancel():
                self._watch(work)
                if not work.run():
                    return  # another thread has its place
            del work  # while nothing comes, no result is kept
        self.waiting.put(None)  # for the next one

    def _watch(self, work: Work) -> None:
        with self._lock:
            work.begun = time.monotonic()
            while self._begun and self._begun[0].done():
                self._begun.popleft()
            self._begun.append(work)
            if self._watched:
                return
            self._watched = True
        watch = Thread(target=self._give_up_late, name=f"{self._name}-watch", daemon=True)
        try:
            watch.start()
        except RuntimeError:  # the system has no thread left: the next work asks for one again
            self._watched = False

    def _give_up_late(self) -> None:
        while True:
            with self._lock:
                if not self._begun:
                    self._watched = False
                    return
                work = self._begun.popleft()
            left = work.begun + self._seconds - time.monotonic()
            wait([work], min(max(0, left), TIMEOUT_MAX))
            if work.settle():
                work.set_exception(work.too_late)
                try:
                    self.start()
                except RuntimeError:  # the system has no thread left: this one takes the place
                    self._watched = False
                    self._take_work()
                    return
            del work


class DaemonThreads:
    """Threads that take work in the order in which it comes; they end with this object.

    Args:
        count: How many work at once, those whose work was given up aside.
        name: What their names begin with.
        seconds: After so long, work that was begun is given up, and another thread takes the place
            of the one that works on it, which ends after it.
    """

    def __init__(self, count: int, name: str, seconds: float) -> None:
        self._count = count
        self._started = 0
        self._closed = False
        self._lock = Lock()
        self._team = _Team(name, seconds)
        weakref.finalize(self, self._team.waiting.put, None).atexit = False

    def submit(self, too_late: Exception, function: Callable[..., Any], *arguments: Any) -> Work:
        """Call `function` on one of the threads; the result raises `too_late` if it is given up.

        Raises:
            ClosedError: The threads were closed.
            RuntimeError: There are none, and the system has none left.
        """
        work = Work(too_late, function, arguments)
        with self._lock:
            if self._closed:
                raise ClosedError("DaemonThreads: wanted ones that are open, got closed ones")
            if self._started < self._count:
                try:
                    self._team.start()
                    self._started += 1
                except RuntimeError:
                    if not self._started:
                        raise
            self._team.waiting.put(work)
        return work

    def close(self) -> None:
        """Drop the work that waits, take no more, and let the threads end."""
        with self._lock:
            self._closed = True
            while True:
                try:
                    work = self._team.waiting.get_nowait()
                except Empty:
                    break
                if work is not None:
                    work.cancel()
            self._team.waiting.put(None)
