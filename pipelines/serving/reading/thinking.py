"""Reasoning between two markers at the beginning of an answer, as `<think>` and `</think>`."""

from __future__ import annotations

from enum import Enum, auto

from heddle.pipelines.serving.reading.pieces import Markers, Piece, Reader, Thought


class State(Enum):
    """Where in the answer the reader is."""

    BEFORE = auto()
    BEGUN = auto()
    INSIDE = auto()
    ENDED = auto()
    BEHIND = auto()


class ThinkingReader:
    """Reads the reasoning; what follows goes to another reader. White space at markers is dropped.

    Args:
        begin: What reasoning begins with.
        end: What it ends with.
        opened: Whether the prompt has begun it; the model may do so again.
        rest: Reads what follows.
    """

    def __init__(self, begin: str, end: str, opened: bool, rest: Reader) -> None:
        self._begin, self._end = begin, end
        self._ends = Markers(end)
        self._otherwise = State.BEGUN if opened else State.BEHIND
        self._rest = rest
        self._state = State.BEFORE
        self._held = ""

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """As `Reader`; reasoning that is cut off has no end."""
        if self._state is State.BEHIND:
            return self._rest.push(text, final)
        self._held += text
        found: list[Piece] = []
        if self._state is State.BEFORE:
            self._look_for_the_beginning(final)
        if self._state is State.BEGUN:
            self._held = self._held.lstrip()
            if self._held:
                self._state = State.INSIDE
        if self._state is State.INSIDE:
            found += self._inside(final)
        if self._state is State.ENDED:
            self._held = self._held.lstrip()
            if self._held or final:
                self._state = State.BEHIND
        if self._state is State.BEHIND:
            text, self._held = self._held, ""
            found += self._rest.push(text, final)
        return found

    def _look_for_the_beginning(self, final: bool) -> None:
        start = self._held.lstrip()
        if start.startswith(self._begin):
            self._state, self._held = State.BEGUN, start[len(self._begin) :]
        elif final or not self._begin.startswith(start):
            self._state = self._otherwise

    def _inside(self, final: bool) -> list[Piece]:
        at = self._held.find(self._end)
        if at >= 0:
            thought, self._held = self._held[:at].rstrip(), self._held[at + len(self._end) :]
            self._state = State.ENDED
        else:
            cut = len(self._held) if final else self._ends.settled(self._held)
            thought, self._held = self._held[:cut], self._held[cut:]
        return [Thought(thought)] if thought else []
