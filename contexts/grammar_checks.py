"""What a grammar must not be, although llguidance takes it: endless, or a trap for matchers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from heddle.contexts.lark_rules import endless_rule
from heddle.contexts.patterns import is_ambiguous
from heddle.contexts.schema_patterns import PatternCounter, TooManySchemasError
from heddle.runtime.errors import InputError

# Strings and comments of a Lark grammar, and its regular expressions, which alone are captured.
# None needs an end, so that a text without one is not read again and again.
_LARK = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/((?:[^/\\\n]|\\.)+)/?')
# Keywords of a JSON schema whose values are data, not schemas.
_DATA = frozenset(("const", "default", "enum", "examples"))
# Most rounds in which references are looked through; two or three are enough for honest schemas.
_ROUNDS = 64
# Most patterns of one string; llguidance takes seconds for 20, and minutes for 60.
_PATTERNS = 8


def check_grammar(kind: str, text: str) -> None:
    """Refuse patterns of exponentially many readings, and what no finite value or text follows.

    Raises:
        InputError: With the pattern, or the kind of recursion.
    """
    schema: Any = None
    if kind == "json_schema":
        try:
            schema = json.loads(text.strip() or "{}")
        except (ValueError, RecursionError) as error:
            raise InputError(f"json_schema: wanted JSON, got {error}") from error
    for pattern in dict.fromkeys(_patterns(kind, text, schema)):
        if is_ambiguous(pattern):
            raise InputError(
                f"{kind}: wanted patterns that matchers read in reasonable time, got "
                f"{pattern[:80]!r}, which reads some texts in exponentially many ways"
            )
    if kind == "lark" and (rule := endless_rule(text)) is not None:
        raise InputError(
            f"lark: wanted a grammar whose rules finite texts follow, got rule {rule[:80]!r}, "
            "which contains itself without end"
        )
    try:
        _check_references(schema)
    except (RecursionError, TooManySchemasError):
        raise InputError(
            "json_schema: wanted references that lead to a schema of moderate size, got one that "
            "grows too far"
        ) from None


def _check_references(schema: Any) -> None:
    values = _FiniteValues(schema)
    if not values.exist():
        raise InputError(
            "json_schema: wanted a schema that finite values follow, got one that contains itself "
            "without end"
        )
    if (count := PatternCounter(values.target).most(schema)) > _PATTERNS:
        raise InputError(
            f"json_schema: wanted at most {_PATTERNS} patterns and formats that hold for one "
            f"string at once, got {count}"
        )


def _patterns(kind: str, text: str, schema: Any) -> Iterator[str]:
    if kind == "regex":
        yield text
    elif kind == "lark":
        yield from (match[1] for match in _LARK.finditer(text) if match[1])
    else:
        yield from _schema_patterns(schema)


def _schema_patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _schema_patterns(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            elif key == "patternProperties" and isinstance(value, dict):
                yield from value
            if key not in _DATA:
                yield from _schema_patterns(value)


class _FiniteValues:
    """Whether a finite value can follow a schema whose references may lead back to it.

    The least fixed point: a reference counts as endless until its target is found to be finite.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._finite: set[str] = set()
        self._looked_at: set[str] = set()

    def exist(self) -> bool:
        """The answer for the whole schema."""
        for _ in range(_ROUNDS):
            known = len(self._finite)
            self._looked_at = set()
            if self._of(self._root):
                return True
            if len(self._finite) == known:
                break
        return False

    def _of(self, schema: Any) -> bool:
        if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
            return True
        if "$ref" in schema and not self._of_reference(str(schema["$ref"])):
            return False
        for key, enough in (("allOf", all), ("anyOf", any), ("oneOf", any)):
            options = schema.get(key)
            if isinstance(options, list) and options and not enough(map(self._of, options)):
                return False
        types = schema.get("type")
        types = types if isinstance(types, list) else [types]
        return any(
            self._of_object(schema)
            if each == "object"
            else each != "array" or self._of_array(schema)
            for each in types
        )

    def _of_object(self, schema: dict[str, Any]) -> bool:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = [str(name) for name in required] if isinstance(required, list) else []
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        if not all(self._of(properties.get(name, others)) for name in names):
            return False
        missing = _count(schema, "minProperties") - len(names)
        optional = (value for name, value in properties.items() if name not in names)
        return missing <= 0 or self._of(others) or sum(map(self._of, optional)) >= missing

    def _of_array(self, schema: dict[str, Any]) -> bool:
        least = _count(schema, "minItems")
        first = schema.get("prefixItems")
        first = first[:least] if isinstance(first, list) else []
        if not all(map(self._of, first)):
            return False
        return least <= len(first) or self._of(schema.get("items"))

    def _of_reference(self, reference: str) -> bool:
        if reference not in self._looked_at:
            self._looked_at.add(reference)
            target = self.target(reference)
            if self._of(target):
                self._finite.add(reference)
        return reference in self._finite

    def target(self, reference: str) -> Any:
        """What a local reference points to; None, which is finite, for any other one."""
        target = self._root if reference.startswith("#") else None
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                target = target[int(step)]
            else:
                target = target.get(step) if isinstance(target, dict) else None
        return target


def _count(schema: dict[str, Any], key: str) -> int:
    value = schema.get(key)
    return value if isinstance(value, int) else 0
