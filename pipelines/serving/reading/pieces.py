"""The parts of an answer, as readers find them in the text that a model writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Said:
    """Text for who asked."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Text that the model reasons by."""

    text: str


@dataclass(frozen=True)
class Called:
    """The call of a function, with its arguments in JSON, or the beginning of them."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Argued:
    """More of the arguments of the last call."""

    text: str


Piece = Said | Thought | Called | Argued


class Reader(Protocol):
    """Reads one answer; however its text is cut, the pieces say the same."""

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """What is found with more text; with `final` nothing is held back any more."""


class Plain:
    """All is text."""

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """The text."""
        return [Said(text)] if text else []


class Markers:
    """Finds where a text may go on as a marker, one of `texts`."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self._firsts = frozenset(text[0] for text in texts)
        self._longest = max(map(len, texts)) - 1

    def settled(self, text: str) -> int:
        """How many characters surely come before a marker, and before the white space at it."""
        tail = text[-self._longest :]
        if self._firsts.isdisjoint(tail):
            return len(text.rstrip())
        held = next((n for n in range(len(tail), 0, -1) if self._begins(tail[-n:])), 0)
        return len(text[: len(text) - held].rstrip())

    def _begins(self, text: str) -> bool:
        return any(marker.startswith(text) for marker in self._texts)
