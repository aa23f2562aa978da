"""Threads for work that may never end: it holds up neither other work nor the end of the process.

`concurrent.futures` waits for its threads when the interpreter exits, and can replace none.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any


class Work(Future[Any]):
    """One call, and what comes of it.

    Attributes:
        begun: When a thread took it, of `time.monotonic`; None before that.
        given_up: Whether another thread has the place of the one that works on it.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments
        self.begun: float | None = None
        self.given_up = False

    def run(self) -> None:
        """Make the call."""
        self.begun = time.monotonic()
        try:
            result = self.function(*self.arguments)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)


_Queue = SimpleQueue["Work | None"]


class DaemonThreads:
    """Threads that take work in the order in which it comes; they end with this object.

    Args:
        count: How many work at once, those that are given up aside.
        name: What their names begin with.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._started = 0
        self._closed = False
        self._lock = Lock()
        self._waiting: _Queue = SimpleQueue()
        weakref.finalize(self, self._waiting.put, None).atexit = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Work:
        """Call `function` on one of the threads.

        Raises:
            RuntimeError: The threads were closed.
        """
        work = Work(function, arguments)
        with self._lock:
            if self._closed:
                raise RuntimeError("DaemonThreads: wanted ones that are open, got closed ones")
            self._waiting.put(work)
            if self._started < self._count:
                self._started += 1
                self._start()
        return work

    def give_up(self, work: Work) -> None:
        """Start a thread in the place of the one that works on `work`, which ends after it."""
        with self._lock:
            if work.running() and not work.given_up:
                work.given_up = True
                self._start()

    def close(self) -> None:
        """Drop the work that waits, take no more, and let the threads end."""
        with self._lock:
            self._closed = True
            while True:
                try:
                    work = self._waiting.get_nowait()
                except Empty:
                    break
                if work is not None:
                    work.cancel()
            self._waiting.put(None)

    def _start(self) -> None:
        Thread(
            target=_take_work, args=(self._waiting, self._lock), name=self._name, daemon=True
        ).start()


def _take_work(waiting: _Queue, lock: Lock) -> None:
    """What each thread does; it does not hold the object that started it."""
    while (work := waiting.get()) is not None:
        if work.set_running_or_notify_cancel():
            work.run()
        with lock:
            given_up = work.given_up
        if given_up:
            return
        del work  # while nothing comes, no result is kept
    waiting.put(None)  # for the next one
