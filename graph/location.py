"""Where in the user's code a graph is being built."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from heddle.runtime.errors import GraphError

_ROOM = os.path.dirname(os.path.abspath(__file__)) + os.sep

_place: ContextVar[tuple[str, int] | None] = ContextVar("heddle_place", default=None)


@contextmanager
def read_from(file: str, line: int) -> Iterator[None]:
    """What is built inside comes from a place in a model's file, not from a line of Python.

    Line 0 means the file as a whole.
    """
    token = _place.set((file, line))
    try:
        yield
    finally:
        _place.reset(token)


def caller() -> tuple[str, int]:
    """File and line of the innermost frame outside of the graph room, or the place read from."""
    place = _place.get()
    if place is not None:
        return place
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_ROOM) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def graph_error(message: object) -> GraphError:
    """An error with the user's file and line before `message` (once, also where errors nest)."""
    file, line = caller()
    place = f"{file}:{line}: " if line else f"{file}: "
    return GraphError(place + str(message).replace(place, ""))
