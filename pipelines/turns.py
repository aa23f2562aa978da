"""Threads that take turns: one after the other, in the order in which they come.

A lock of Python's lets a thread that gives it back take it again at once; one that waits for it
beside a loop may wait until the loop ends.
"""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A lock that goes to who has waited longest; not to be taken twice by one thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C, perhaps when the turn had come
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._pass_on()
            raise

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().release()
        else:
            self._taken = False
