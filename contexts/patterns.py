"""Finds regular expressions that read some texts in exponentially many ways, such as `(a+)+`.

Matchers that backtrack, which is what users check outputs with, take exponential time for them, and
with counted repeats llguidance runs out of expressions in the middle of a sequence. The method:
the positions of an expression with "may follow" between them (Glushkov, 1961) read a text in
exponentially many ways if and only if two different paths lead from a position back to it with
the same text (Weber and Seidl, 1991).
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

# A repeat that may go on for longer than this counts as one without end.
_LONG = 16
# Most steps of the search for two paths: about a fifth of a second.
_STEPS = 300_000
# Most groups inside one another.
_DEPTH = 64

_ATOM = re.compile(
    r"\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]"  # a class
    r"|\\(?:[pP](?:\{[^}]*\}|\w)|x\{[^}]*\}|u\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
    r"|[^\\]",
    re.DOTALL,
)
_REPEAT = re.compile(r"([*+?]|\{(\d+)(,?)(\d*)\})[?+]?")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|[a-zA-Z-]+(?=\))))?")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)(\w*)\}|(\w))")
# What Python reserves inside a class, and would warn about; escapes are matched to be left alone.
_SET_SYNTAX = re.compile(r"\\.|\[|&&|--|~~|\|\|", re.DOTALL)
_CODE_POINT = re.compile(r"\\[xu]\{([0-9a-fA-F]+)\}")


class _Part(NamedTuple):
    """Positions where a text of a part of the expression begins and ends."""

    first: frozenset[int]
    last: frozenset[int]
    empty: bool


def _escape_last(match: re.Match[str]) -> str:
    text = match[0]
    return text if text[0] == "\\" else f"{text[:-1]}\\{text[-1]}"


class _TooManySteps(Exception):  # noqa: N818
    """The search was given up."""


_NOTHING = _Part(frozenset(), frozenset(), True)


class _Expression:
    """The positions of an expression, and which may follow which."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.alphabet = {*map(chr, range(9, 127)), *"äßλж中😀", *text}
        self.alphabet |= {chr(ord(each) + 1) for each in text if ord(each) < 0x10FFFF}
        self.atoms: list[str] = []
        self.follow: list[set[int]] = []
        # Whether a position may follow another in two ways within a loop.
        self.doubled = False
        # The loops that are in no other loop: first position, last position + 1.
        self.loops: list[tuple[int, int]] = []
        self.steps = self.depth = 0

    def alternatives(self) -> _Part:
        part = self.sequence()
        while self.text.startswith("|", self.at):
            self.at += 1
            other = self.sequence()
            part = _Part(
                part.first | other.first, part.last | other.last, part.empty or other.empty
            )
        return part

    def sequence(self) -> _Part:
        part = _NOTHING
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            part = self.join(part, self.repeated())
        return part

    def join(self, before: _Part, after: _Part) -> _Part:
        self.link(before.last, after.first)
        return _Part(
            before.first | after.first if before.empty else before.first,
            before.last | after.last if after.empty else after.last,
            before.empty and after.empty,
        )

    def link(self, before: frozenset[int], after: frozenset[int]) -> None:
        self.step(len(before) * len(after))
        for position in before:
            self.doubled |= not self.follow[position].isdisjoint(after)
            self.follow[position] |= after

    def repeated(self) -> _Part:
        begin = len(self.atoms)
        part = self.single()
        while repeat := _REPEAT.match(self.text, self.at):
            self.at = repeat.end()
            kind, least, comma, most = repeat.groups()
            if kind in "*+" or (comma and not most) or int(most or least or 1) > _LONG:
                self.link(part.last, part.first)
                self.loops = [loop for loop in self.loops if loop[0] < begin]
                self.loops.append((begin, len(self.atoms)))
            if kind in "*?" or least == "0":
                part = part._replace(empty=True)
        return part

    def single(self) -> _Part:
        if group := _GROUP.match(self.text, self.at):
            self.at = group.end()
            self.depth += 1
            if self.depth > _DEPTH:
                raise _TooManySteps
            part = self.alternatives()
            self.depth -= 1
            self.at += 1  # the bracket that closes
            return part
        atom = _ATOM.match(self.text, self.at)
        self.at = atom.end() if atom else len(self.text)
        if atom is None or atom[0] in ("^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"):
            return _NOTHING
        self.atoms.append(atom[0])
        self.follow.append(set())
        here = frozenset((len(self.atoms) - 1,))
        return _Part(here, here, False)

    def step(self, count: int) -> None:
        self.steps += count
        if self.steps > _STEPS:
            raise _TooManySteps

    def two_paths(self, begin: int, end: int) -> bool:
        """Whether two different paths lead from a position of this loop back with one text."""
        members = {atom: self.members(atom) for atom in dict.fromkeys(self.atoms)}
        loop = range(begin, end)
        # Many positions are followed by the same ones: each pair of such sets is looked at once.
        follow = [frozenset(self.follow[position].intersection(loop)) for position in loop]
        looked_at = set()
        pairs = [(position, position) for position in loop]
        seen = set(pairs)
        while pairs:
            one, two = pairs.pop()
            afters, others = follow[one - begin], follow[two - begin]
            if (afters, others, one == two) in looked_at:
                continue
            looked_at.add((afters, others, one == two))
            self.step(len(afters) * len(others))
            if one != two and not afters.isdisjoint(others):
                return True
            for after in afters:
                taken = members[self.atoms[after]]
                for other in others:
                    pair = (after, other) if after < other else (other, after)
                    if pair not in seen and not taken.isdisjoint(members[self.atoms[other]]):
                        seen.add(pair)
                        pairs.append(pair)
        return False

    def members(self, atom: str) -> frozenset[str]:
        """The characters that an atom takes: of ASCII, of this expression, and a few others."""
        if atom[-1:] not in r".]" and (
            len(atom) == 1 or (len(atom) == 2 and not atom[1].isalnum())
        ):
            return frozenset(atom[-1])
        self.step(len(self.alphabet))
        if "[:" in atom:  # a named class, which Python does not have
            return frozenset(self.alphabet)

        def of_category(match: re.Match[str]) -> str:
            name = match[3] or match[4]
            wanted = (match[1] == "p") != bool(match[2])
            return "".join(
                re.escape(each)
                for each in self.alphabet
                if unicodedata.category(each).startswith(name) == wanted
            )

        try:
            plain = _PROPERTY.sub(of_category, atom)
            plain = _CODE_POINT.sub(lambda match: re.escape(chr(int(match[1], 16))), plain)
            if plain != atom and not plain.startswith("["):
                plain = f"[{plain}]"
            if plain.startswith("["):
                plain = "[" + _SET_SYNTAX.sub(_escape_last, plain[1:])
            takes = re.compile(plain, re.DOTALL).fullmatch
        except (re.error, OverflowError, ValueError):  # llguidance has its own view of it
            return frozenset(self.alphabet)
        return frozenset(each for each in self.alphabet if takes(each))


def is_ambiguous(pattern: str) -> bool:
    """Whether some texts can be read in exponentially many ways, or that takes long to find out.

    Flags such as `(?i)` are not looked at. Syntax errors are left to whoever compiles it.
    """
    expression = _Expression(pattern)
    try:
        expression.alternatives()
        return expression.doubled or any(expression.two_paths(*loop) for loop in expression.loops)
    except _TooManySteps:
        return True
