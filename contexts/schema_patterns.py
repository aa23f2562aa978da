"""Counts how many patterns of a JSON schema hold for one string at once.

llguidance intersects them, and looks without a limit of time for a text that follows all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heddle.contexts.schema_parts import References, dict_of, list_of

# Most schemas looked at, references written out.
_SCHEMAS = 20_000

_Path = tuple[str, ...]
_Counts = dict[_Path, int]


class TooManySchemasError(Exception):
    """A schema has too many parts once its references are written out."""


class PatternCounter:
    """Counts patterns by the path of the string that they hold for.

    Args:
        references: Those of the schema.
    """

    def __init__(self, references: References) -> None:
        self._references = references
        self._open: set[int] = set()
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
        for name, value in dict_of(schema.get("properties")).items():
            _add(counts, self._of(value, (*path, name)))
        # llguidance takes only patterns of which no two find the same name.
        by_pattern = dict_of(schema.get("patternProperties")).values()
        others = [schema.get("additionalProperties"), *by_pattern]
        _add(counts, _most(self._of(value, (*path, "*")) for value in others))
        _add(counts, self._of(schema.get("items"), (*path, "*")))
        for number, value in enumerate(list_of(schema.get("prefixItems"))):
            _add(counts, self._of(value, (*path, str(number))))
        for value in list_of(schema.get("allOf")):
            _add(counts, self._of(value, path))
        for key in ("anyOf", "oneOf"):
            _add(counts, _most(self._of(value, path) for value in list_of(schema.get(key))))
        _add(counts, self._of_reference(schema, path))
        return counts

    def _of_reference(self, schema: dict[str, Any], path: _Path) -> _Counts:
        target = self._references.target(schema)
        if target is None or id(target) in self._open:
            return {}
        self._open.add(id(target))
        counts = self._of(target, path)
        self._open.discard(id(target))
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
