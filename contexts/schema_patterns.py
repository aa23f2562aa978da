"""Counts how many patterns of a JSON schema hold for one string at once.

llguidance intersects them, and looks without a limit of time for a text that follows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# Most schemas looked at, references written out.
_SCHEMAS = 20_000

_Path = tuple[str, ...]
_Counts = dict[_Path, int]


class TooManySchemasError(Exception):
    """A schema has too many parts once its references are written out."""


class PatternCounter:
    """Counts patterns by the path of the string that they hold for.

    Args:
        target: What a reference points to.
    """

    def __init__(self, target: Callable[[str], Any]) -> None:
        self._target = target
        self._open: set[str] = set()
        self._schemas = 0

    def most(self, schema: Any) -> int:
        """Most patterns that one string has to follow.

        Raises:
            TooManySchemasError: `schema` has too many parts, references written out.
        """
        return max(self._of(schema, ()).values(), default=0)

    def _of(self, schema: Any, path: _Path) -> _Counts:
        if not isinstance(schema, dict):
            return {}
        self._schemas += 1
        if self._schemas > _SCHEMAS:
            raise TooManySchemasError
        counts: _Counts = {path: ("pattern" in schema) + ("format" in schema)}
        for name, value in _dict(schema.get("properties")).items():
            _add(counts, self._of(value, (*path, name)))
        for key in ("additionalProperties", "items"):
            _add(counts, self._of(schema.get(key), (*path, "*")))
        for number, value in enumerate(_list(schema.get("prefixItems"))):
            _add(counts, self._of(value, (*path, str(number))))
        for value in _list(schema.get("allOf")):
            _add(counts, self._of(value, path))
        for key in ("anyOf", "oneOf"):
            _add(counts, _most(self._of(value, path) for value in _list(schema.get(key))))
        _add(counts, self._of_reference(schema.get("$ref"), path))
        return counts

    def _of_reference(self, reference: Any, path: _Path) -> _Counts:
        if not isinstance(reference, str) or reference in self._open:
            return {}
        self._open.add(reference)
        counts = self._of(self._target(reference), path)
        self._open.discard(reference)
        return counts


def _add(counts: _Counts, more: _Counts) -> None:
    for path, count in more.items():
        counts[path] = counts.get(path, 0) + count


def _most(options: Iterable[_Counts]) -> _Counts:
    """Only one of several options holds: the most of each path."""
    most: _Counts = {}
    for counts in options:
        for path, count in counts.items():
            most[path] = max(most.get(path, 0), count)
    return most


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
