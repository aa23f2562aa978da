"""Threads that take turns: one after the other, in the order in which they come.

A lock of Python's lets a thread that gives it back take it again at once; one that waits for it
beside a loop may wait until the loop ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock that goes to who has waited longest; not to be taken twice by one thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: deque[threading.Lock] = deque()  # the first one has come, the others wait

    @contextmanager
    def take(self) -> Iterator[None]:
        """Waits for a turn, which is given back at the end, wherever a Ctrl-C comes."""
        turn = threading.Lock()
        turn.acquire()
        try:
            with self._guard:
                self._turns.append(turn)
                self._open_first()
            turn.acquire()
            yield
        finally:
            try:
                self._leave(turn)
            except BaseException:  # Ctrl-C on the way: what is done already is not done again
                self._leave(turn)
                raise

    def _leave(self, turn: threading.Lock) -> None:
        with self._guard:
            if turn in self._turns:
                self._turns.remove(turn)
            self._open_first()

    def _open_first(self) -> None:
        if self._turns and self._turns[0].locked():
            self._turns[0].release()
