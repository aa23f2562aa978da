"""Calls of tools within a text: between markers, as each family of models writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heddle.pipelines.serving.reading.pieces import Called, Markers, Piece, Said

Functions = Mapping[str, Mapping[str, Any]]
"""The functions that a request knows: the JSON schema of each one's arguments, by its name."""


@dataclass(frozen=True)
class CallForm:
    """How calls are written.

    Attributes:
        begin: The marker in front of a call, or of several.
        end: The one behind; empty: the next `begin`, or the end of the text.
        read: The calls between the markers.

    Raises:
        ValueError: By `read`: there is no call of a known function, or something beside it.
    """

    begin: str
    end: str
    read: Callable[[str, Functions], list[Called]]
    quoted: bool = True
    """Whether arguments are in JSON, in whose texts a marker is none."""
    bare: str = ""
    """What an answer that is a call begins with, where it has no marker."""
    marks: tuple[str, ...] = ()
    """Further markers, which `read` looks for."""

    @cached_property
    def ends(self) -> re.Pattern[str]:
        """What the marker behind a call matches, and each text in JSON that it is not to be in."""
        marker = re.escape(self.end or self.begin)
        text = r'"(?:[^"\\]+|\\.)*(?:"|\\?\Z)|' if self.quoted else ""
        return re.compile(f"{text}(?P<marker>{marker})", re.DOTALL)


class CallReader:
    """Reads text with calls of functions in it; one that cannot be read stays text.

    A call comes once all of it is there. White space around its markers is dropped.

    Args:
        form: How calls are written.
        functions: Those that may be called.
    """

    def __init__(self, form: CallForm, functions: Functions) -> None:
        self._form = form
        self._functions = functions
        self._begins = Markers(form.begin)
        self._held = ""
        self._body: int | None = None  # where in it a call begins, behind its marker
        self._searched = 0
        self._blank = True  # nothing but calls so far
        self._behind = False  # a call has just ended

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """As `Reader`."""
        self._held += text
        found: list[Piece] = []
        while self._held:
            new = self._text(final) if self._body is None else self._call(self._body, final)
            if new is None:
                break
            found += new
        return found

    def _text(self, final: bool) -> list[Piece] | None:
        """The text in front of a call; None where more has to come."""
        if self._behind:
            self._held = self._held.lstrip()
            if not self._held:
                return None
            self._behind = False
        form, start = self._form, len(self._held) - len(self._held.lstrip())
        at = self._held.find(form.begin)
        if form.bare and self._blank and self._held.startswith(form.bare, start):
            cut, self._body = 0, start
        elif at >= 0:
            cut = len(self._held[:at].rstrip())
            self._body = at + len(form.begin) - cut
        else:
            cut = len(self._held) if final else self._begins.settled(self._held)
            if not cut:
                return None
        self._searched = self._body or 0
        text, self._held = self._held[:cut], self._held[cut:]
        return self._said(text)

    def _call(self, body: int, final: bool) -> list[Piece] | None:
        """The calls up to the next end, or the text there; None where more has to come."""
        end, behind = self._end(body)
        if end < 0:
            if not final:
                return None
            end = behind = len(self._held)
        text, inside = self._held[:behind], self._held[body:end]
        self._held, self._body = self._held[behind:], None
        try:
            calls = self._form.read(inside, self._functions)
        except (ValueError, RecursionError):
            return self._said(text)
        self._behind = True
        return [*calls]

    def _end(self, body: int) -> tuple[int, int]:
        """Where a call ends, and what follows it begins; -1 for each: not yet."""
        marker = self._form.end or self._form.begin
        searched = self._searched
        self._searched = max(body, len(self._held) - len(marker) + 1)
        if self._held.find(marker, searched) >= 0:
            for match in self._form.ends.finditer(self._held, body):
                if match["marker"]:
                    return match.start(), match.end() if self._form.end else match.start()
        return -1, -1

    def _said(self, text: str) -> list[Piece]:
        self._blank = self._blank and not text
        return [Said(text)] if text else []


def _refuse(name: str) -> float:
    raise ValueError(f"wanted JSON, got {name}")


DECODER = json.JSONDecoder(parse_constant=_refuse)
"""Of JSON; Python's own would take NaN and infinity, too."""

SPACE = re.compile(r"\s*")


def json_calls(text: str, functions: Functions) -> list[Called]:
    """Calls that are objects with `name` and `arguments`, or `parameters`; one, several, or a list.

    Raises:
        ValueError: There is something else.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:-1] if text.endswith("]") else ""
    calls = [_object_call(each, functions) for each in _values(text)]
    if not calls:
        raise ValueError("wanted a call, got none")
    return calls


def known_call(name: str, arguments: str, functions: Functions) -> Called:
    """The call of a known function with an object in JSON; white space alone is one of nothing.

    Raises:
        ValueError: The function is not known, or the arguments are no object.
    """
    arguments = arguments.strip() or "{}"
    if name not in functions or not isinstance(DECODER.decode(arguments), dict):
        raise ValueError(f"wanted a call of {', '.join(functions)}, got {name!r}")
    return Called(name, arguments)


def _object_call(text: str, functions: Functions) -> Called:
    members = _members(text)
    given = [members[key] for key in ("arguments", "parameters") if key in members]
    return known_call(str(DECODER.decode(members["name"])), (given or ["{}"])[0], functions)


def _values(text: str) -> list[str]:
    """Values in JSON, as they are written, with a comma or a semicolon between them."""
    found: list[str] = []
    at = _behind_space(text, 0)
    while at < len(text):
        if found:
            if text[at] not in ",;":
                raise ValueError(f"wanted a separator, got {text[at]!r}")
            at = _behind_space(text, at + 1)
        _, end = DECODER.raw_decode(text, at)
        found.append(text[at:end])
        at = _behind_space(text, end)
    return found


def _members(text: str) -> dict[str, str]:
    """The members of an object in JSON, each value as it is written."""
    read = DECODER.decode(text)
    if not (isinstance(read, dict) and "name" in read):
        raise ValueError(f"wanted an object with a name, got {text!r}")
    found: dict[str, str] = {}
    at = _behind_space(text, 1)
    while text[at] != "}":
        key, end = DECODER.raw_decode(text, at)
        at = _behind_space(text, _behind_space(text, end) + 1)
        _, end = DECODER.raw_decode(text, at)
        found[key] = text[at:end]
        at = _behind_space(text, end)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    return found


def _behind_space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    assert match is not None
    return match.end()
