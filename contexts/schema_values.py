"""Whether a finite value can follow a JSON schema whose parts may contain one another.

The method is the one of `lark_rules`: the least fixed point of "some way to follow these schemas
needs nothing but values that are found to be finite already". Schemas that hold for one value are
looked at together. Whatever this reader does not know restricts nothing: a schema that some finite
value follows is never taken for one without.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator
from itertools import chain, product
from typing import Any

from heddle.contexts.least_fixed_point import Rule, least_fixed_point
from heddle.contexts.schema_parts import References, dict_of, list_of

# Most schemas looked at, as often as they come: less than a fifth of a second.
_STEPS = 100_000
_TYPES = frozenset(("array", "boolean", "null", "number", "object", "string"))
# A pattern of which it is plain which names it finds.
_PLAIN = re.compile(r"(\^?)([\w-]*)(\$?)", re.ASCII)

_Schemas = list[dict[str, Any]]
# Schemas that hold for one value, by their ids.
_Together = frozenset[int]


class _TooManySteps(Exception):  # noqa: N818
    """The search was given up."""


class FiniteValues:
    """Whether finite values follow a schema.

    Args:
        schema: The schema.
        references: Those of the document that it is.
    """

    def __init__(self, schema: Any, references: References) -> None:
        self._references = references
        self._schemas: dict[int, Any] = {}
        self._rules: list[Rule] = []
        self._waiting: list[_Together] = []
        self._seen: set[_Together] = set()
        self._groups = self._steps = 0
        self._root = self._all_of([schema])

    def exist(self) -> bool:
        """The answer; True also where the search takes too long."""
        try:
            while self._waiting:
                self._look_at(self._waiting.pop())
        except _TooManySteps:
            return True
        return self._root in least_fixed_point(self._rules)

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > _STEPS:
            raise _TooManySteps

    def _all_of(self, schemas: Iterable[Any]) -> _Together:
        """What stands for a value that all of `schemas` hold for."""
        parts = {id(each): each for each in schemas if isinstance(each, dict) or each is False}
        together = frozenset(parts)
        if together not in self._seen:
            self._seen.add(together)
            self._schemas |= parts
            self._waiting.append(together)
        return together

    def _look_at(self, together: _Together) -> None:
        for schemas in self._ways([self._schemas[each] for each in together]):
            self._step(len(schemas))
            types = _types(schemas)
            given = any("const" in schema or "enum" in schema for schema in schemas)
            if given or not types <= {"array", "object"}:
                self._rules.append(Rule(together, (), 0))
                return
            for name, parts in (("object", self._of_object), ("array", self._of_array)):
                if name in types:
                    items = parts(schemas)
                    self._rules.append(Rule(together, items, len(items)))

    def _ways(self, schemas: list[Any]) -> Iterator[_Schemas]:
        """All that holds for a value of `schemas`: once for each way to choose among options."""
        # What is to be looked at, each with the ids of those that led to it; what holds so far.
        nothing: frozenset[int] = frozenset()
        stack: list[tuple[list[tuple[Any, frozenset[int]]], _Schemas]]
        stack = [([(schema, nothing) for schema in schemas], [])]
        while stack:
            pending, held = stack.pop()
            while pending:
                self._step(1)
                schema, above = pending.pop()
                if schema is False or id(schema) in above:
                    break  # no value, or the same value again without an end
                if not isinstance(schema, dict):
                    continue
                held.append(schema)
                above |= {id(schema)}
                more = self._references.target(schema), *list_of(schema.get("allOf"))
                pending += [(each, above) for each in more]
                options = [list_of(schema.get(key)) for key in ("anyOf", "oneOf")]
                if any(options):
                    for choice in product(*filter(None, options)):
                        self._step(len(pending) + len(held) + len(choice))
                        chosen = [(each, above) for each in choice]
                        stack.append(([*pending, *chosen], [*held]))
                    break
            else:
                yield held

    def _of_object(self, schemas: _Schemas) -> list[Hashable]:
        """The values that the smallest object of all `schemas` cannot do without."""
        names = [list_of(schema.get("required")) for schema in schemas]
        required = dict.fromkeys(name for name in chain(*names) if isinstance(name, str))
        items: list[Hashable] = [self._property(schemas, name) for name in required]
        missing = _most(schemas, "minProperties") - len(required)
        if missing > 0:
            items.append(self._more_properties(schemas, required, missing))
        return items

    def _more_properties(
        self, schemas: _Schemas, required: Collection[str], count: int
    ) -> Hashable:
        """`count` properties that need not be there."""
        names = dict.fromkeys(chain(*(dict_of(schema.get("properties")) for schema in schemas)))
        optional = [self._property(schemas, name) for name in names if name not in required]
        other = self._property(schemas, None)  # of such names there are as many as needed
        return self._group(Rule(None, optional, count), Rule(None, [other], 1))

    def _property(self, schemas: _Schemas, name: str | None) -> Hashable:
        """The value of property `name`; None: of one that no schema names."""
        ways = []
        for choice in product(*(_options(schema, name) for schema in schemas)):
            self._step(len(schemas))
            ways.append(self._all_of(chain(*choice)))
        return ways[0] if len(ways) == 1 else self._group(*(Rule(None, [way], 1) for way in ways))

    def _group(self, *rules: Rule) -> Hashable:
        """What holds by any of `rules`."""
        self._groups += 1
        self._rules += [rule._replace(symbol=self._groups) for rule in rules]
        return self._groups

    def _of_array(self, schemas: _Schemas) -> list[Hashable]:
        """The values that the smallest array of all `schemas` cannot do without."""
        firsts = [list_of(schema.get("prefixItems")) for schema in schemas]
        # All that come after the longest of these are alike.
        count = min(_most(schemas, "minItems"), max(map(len, firsts)) + 1)
        self._step(count * len(schemas))
        return [
            self._all_of(
                first[index] if index < len(first) else schema.get("items")
                for schema, first in zip(schemas, firsts, strict=True)
            )
            for index in range(count)
        ]


def _types(schemas: _Schemas) -> frozenset[str]:
    """The types of a value that all of `schemas` hold for."""
    types = _TYPES
    for schema in schemas:
        found = schema.get("type")
        names = {name for name in (*list_of(found), found) if isinstance(name, str)}
        if "integer" in names:
            names = names - {"integer"} | {"number"}
        if names and names <= _TYPES:
            types &= names
    return types


def _options(schema: dict[str, Any], name: str | None) -> list[list[Any]]:
    """What may hold for property `name` by `schema`: one of several lists of schemas."""
    properties, others = dict_of(schema.get("properties")), schema.get("additionalProperties")
    patterns = dict_of(schema.get("patternProperties")).items()
    sure = [value for pattern, value in patterns if _finds(pattern, name)]
    if name in properties:
        sure.append(properties[name])
    if sure:
        return [sure]
    return [[others], *([value] for pattern, value in patterns if _finds(pattern, name) is None)]


def _finds(pattern: str, name: str | None) -> bool | None:
    """Whether `pattern` finds a part of `name`; None: not known."""
    plain = _PLAIN.fullmatch(pattern)
    if plain is None or name is None:
        return None
    begin, text, end = plain.groups()
    if begin and end:
        return name == text
    if begin:
        return name.startswith(text)
    return name.endswith(text) if end else text in name


def _most(schemas: _Schemas, key: str) -> int:
    counts = [schema.get(key) for schema in schemas]
    return max((count for count in counts if isinstance(count, int)), default=0)
