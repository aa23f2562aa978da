"""Finds rules of a Lark grammar that no finite text follows, such as `start: "a" start`.

Once a sequence is in such a rule it never ends, and llguidance may look for its end forever. The
method is the usual one for context-free grammars: the least fixed point of "some alternative needs
nothing but rules that are found already". Whatever this reader does not know counts as finite:
syntax errors are left to llguidance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from heddle.contexts.least_fixed_point import Rule, least_fixed_point

# Strings and regular expressions need no end: a text without one is not read again and again.
_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*"?i?|<[^<>\n]*>)'
    r"|(?P<comment>(?://|\#)[^\n]*)"
    r"|(?P<regex>/(?:[^/\\\n]|\\.)+/?[a-z]*)"
    r"|(?P<line>\n)"
    r"|(?P<alias>->\s*\w+)"
    r"|(?P<directive>%\w+)"
    r"|(?P<parameter>::)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<repeat>~\s*\d+|\{\s*(?:\d+\s*)?(?:,\s*(?:\d+\s*)?)?\})"
    r"|(?P<other>[^\s\w]|\w+)"
)
_JSON = re.compile(rf"(%json\b)\s*|{_TOKEN.pattern}")
_Token = tuple[str, str]  # the kind, by the names of the groups, and the text
# A rule by its name, or a group in brackets by its number.
_Symbol = str | int


class _Rules:
    """The alternatives of each rule and group: what they cannot do without."""

    def __init__(self, text: str) -> None:
        self.alternatives: list[tuple[_Symbol, set[_Symbol]]] = []
        self.mentions: dict[str, set[str]] = {}
        self._groups = 0
        self._tokens = [
            (str(match.lastgroup), match[0])
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "comment"
        ]
        self._at = 0
        while self._at < len(self._tokens):
            self._statement()

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _statement(self) -> None:
        while self._peek()[0] == "line" or self._peek()[1] in ("?", "!"):
            self._at += 1
        kind, name = self._next()
        if kind == "directive" and self._peek()[1] == "{":
            self._braces()
        # Behind the name of a rule come its attributes, its priority, its parameters.
        while self._peek() != ("other", ":") and self._peek()[0] not in ("line", "end"):
            self._at += 1
        if kind == "name" and self._peek()[1] == ":":
            self._at += 1
            self._body(name)
        while self._peek()[0] not in ("line", "end"):
            self._at += 1

    def _braces(self) -> None:
        depth = 0
        while self._peek()[0] != "end":
            text = self._next()[1]
            depth += (text == "{") - (text == "}")
            if not depth:
                return

    def _body(self, name: str) -> None:
        mentions = self.mentions.setdefault(name, set())
        # For each open bracket: what is defined, the alternative so far, how it opens.
        open_: list[tuple[_Symbol, list[_Symbol | None], str]] = [(name, [], "")]
        for kind, text in self._body_tokens():
            symbol, items, bracket = open_[-1]
            if kind == "name":
                mentions.add(text)
                items.append(text)
            elif text in ("(", "["):
                self._groups += 1
                open_.append((self._groups, [], text))
            elif text == "|" or (text in (")", "]") and bracket):
                self._add(symbol, items)
                if text == "|":
                    items.clear()
                else:
                    open_.pop()
                    open_[-1][1].append(symbol if bracket == "(" else None)
            elif text in ("?", "*") or (kind == "repeat" and not _least(text)):
                items[-1:] = [None]
            elif kind in ("text", "regex"):
                items.append(None)
            elif kind == "directive":
                if self._peek()[1] == "{":
                    self._braces()
                items.append(None)
        for symbol, items, _ in open_:
            self._add(symbol, items)

    def _body_tokens(self) -> Iterator[_Token]:
        """Up to the end of the line, or to a line that does not go on with an alternative."""
        while (token := self._next())[0] != "end":
            if token[0] == "line":
                after = self._at
                while self._peek()[0] == "line":
                    self._at += 1
                if self._peek()[1] != "|":
                    self._at = after - 1
                    return
            else:
                yield token

    def _add(self, symbol: _Symbol, items: list[_Symbol | None]) -> None:
        self.alternatives.append((symbol, {item for item in items if item is not None}))


def _least(repeat: str) -> int:
    """The least count of `~2`, `{2}`, `{2,3}`, `{2,}` or `{,3}`."""
    number = re.search(r"\d+", repeat.split(",")[0])
    return int(number[0]) if number else 0


def json_schemas(text: str) -> Iterator[Any]:
    """The schemas of a Lark grammar, those behind `%json`."""
    for match in _JSON.finditer(text):
        if match[1]:
            try:
                yield json.JSONDecoder().raw_decode(text, match.end())[0]
            except (ValueError, RecursionError):  # llguidance says what is wrong with it
                continue


def endless_rule(text: str) -> str | None:
    """A rule that `start` leads to and that no finite text follows; None where there is none."""
    rules = _Rules(text)
    mentioned: set[str] = set().union(*rules.mentions.values())
    finite = least_fixed_point(
        [Rule(symbol, items, len(items)) for symbol, items in rules.alternatives],
        known=mentioned.difference(rules.mentions),  # imported, or unknown
    )
    reached, queue = {"start"}, ["start"]
    while queue:
        name = queue.pop()
        if name in rules.mentions and name not in finite:
            return name
        more = rules.mentions.get(name, set()) - reached
        reached |= more
        queue += sorted(more)
    return None
