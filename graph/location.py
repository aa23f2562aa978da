"""Where in the user's code a graph is being built."""

from __future__ import annotations

import os
import sys

from heddle.runtime.errors import GraphError

_ROOM = os.path.dirname(os.path.abspath(__file__)) + os.sep


def caller() -> tuple[str, int]:
    """File and line of the innermost frame outside of the graph room."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_ROOM) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def graph_error(message: object) -> GraphError:
    """An error with the user's file and line before `message` (once, also where errors nest)."""
    file, line = caller()
    place = f"{file}:{line}: "
    return GraphError(place + str(message).replace(place, ""))
