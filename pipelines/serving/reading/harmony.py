"""Messages with channels, as gpt-oss writes them ("OpenAI harmony response format", OpenAI).

An answer is one or more of `<|start|>assistant<|channel|>NAME<|message|>TEXT<|end|>`, the first one
without its `<|start|>assistant`, which the prompt ends with. A header that says `to=functions.NAME`
makes its text the arguments of a call.
"""

from __future__ import annotations

import re

from heddle.pipelines.serving.reading.calls import Functions, known_call
from heddle.pipelines.serving.reading.pieces import Called, Markers, Piece, Said, Thought

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>", START)
AT_END = Markers(*ENDS)
MARKERS = (*ENDS, CHANNEL, MESSAGE, "<|constrain|>")

HEADERS = (START, CHANNEL, MESSAGE, "to=")
"""What a header begins with."""

RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
REASONING = re.compile(re.escape(CHANNEL) + r"\s*analysis\b")


class HarmonyReader:
    """Reads messages; a text that has no header, or whose call cannot be read, is text.

    Args:
        functions: Those that may be called.
        reasoning: Whether what the model says in its channel for reasoning is kept apart.
    """

    def __init__(self, functions: Functions, reasoning: bool) -> None:
        self._functions = functions
        self._reasoning = reasoning
        self._held = ""
        self._open = False  # a message goes on,
        self._kind: type[Said] | type[Thought] = Said  # of this kind,
        self._called: str | None = None  # which calls this function.
        self._before: set[type[Piece]] = set()

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """As `Reader`; messages of a kind are lines of their own."""
        self._held += text
        found: list[Piece] = []
        while self._held:
            new = self._message(final) if self._open else self._header(final)
            if new is None:
                break
            found += new
        return found

    def _header(self, final: bool) -> list[Piece] | None:
        """Reads a header; None where more of it has to come."""
        start = self._held.lstrip()
        if not any(each.startswith(start[: len(each)]) for each in HEADERS):
            return self._begin("")
        at = self._held.find(MESSAGE)
        if at >= 0:
            header, self._held = self._held[:at], self._held[at + len(MESSAGE) :]
            return self._begin(header)
        if not final:
            return None
        text, self._held = self._held, ""
        return [] if self._before else [Said(text)]  # one that is cut off says nothing

    def _begin(self, header: str) -> list[Piece]:
        """Begins a message."""
        recipient = RECIPIENT.search(header)
        self._open, self._called = True, recipient[1] if recipient else None
        thinks = self._reasoning and REASONING.search(header)
        self._kind = Thought if thinks and not self._called else Said
        again = self._kind in self._before and not self._called
        return [self._kind("\n")] if again else []

    def _message(self, final: bool) -> list[Piece] | None:
        """What is new of a message; None where more of it has to come."""
        ends = [(at, each) for each in ENDS if (at := self._held.find(each)) >= 0]
        if ends:
            end, marker = min(ends)
            text = self._held[:end]
            self._held = self._held[end if marker == START else end + len(marker) :]
            self._open = False
        elif final:
            text, self._held = self._held, ""
        elif self._called or not (cut := AT_END.settled(self._held)):
            return None
        else:
            text, self._held = self._held[:cut], self._held[cut:]
        if not self._called:
            return self._of_kind(text)
        try:
            call = known_call(self._called, text, self._functions)
        except (ValueError, RecursionError):
            return self._of_kind(text)
        self._before.add(Called)
        return [call]

    def _of_kind(self, text: str) -> list[Piece]:
        self._before.add(self._kind)
        return [self._kind(text)] if text else []
