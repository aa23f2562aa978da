"""What a grammar must not be, although llguidance takes it: endless, or a trap for matchers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from heddle.contexts.lark_rules import endless_rule, json_schemas
from heddle.contexts.patterns import is_ambiguous
from heddle.contexts.schema_parts import References, dict_of, schemas_within
from heddle.contexts.schema_patterns import PatternCounter, TooManySchemasError
from heddle.contexts.schema_values import FiniteValues
from heddle.runtime.errors import InputError

# Strings and comments of a Lark grammar, and its regular expressions, which alone are captured.
# None needs an end, so that a text without one is not read again and again.
_LARK = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/((?:[^/\\\n]|\\.)+)/?')
# Most patterns of one string; llguidance takes seconds for 20, and minutes for 60.
_PATTERNS = 8


def check_grammar(kind: str, text: str) -> list[Any]:
    """Refuse patterns of exponentially many readings, and what no finite value or text follows.

    Returns:
        The JSON schemas that were looked at: the grammar itself, or those in a Lark grammar.

    Raises:
        InputError: With the pattern, or the kind of recursion.
    """
    schemas = list(_schemas(kind, text))
    for pattern in dict.fromkeys(_patterns(kind, text, schemas)):
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
    for schema in schemas:
        _check_schema(kind, schema)
    return schemas


def _schemas(kind: str, text: str) -> Iterator[Any]:
    if kind == "lark":
        yield from json_schemas(text)
    elif kind == "json_schema":
        try:
            yield json.loads(text.strip() or "{}")
        except (ValueError, RecursionError) as error:
            raise InputError(f"json_schema: wanted JSON, got {error}") from error


def _check_schema(kind: str, schema: Any) -> None:
    references = References(schema)
    # Without references nothing contains itself: llguidance says better what else is wrong.
    if references.some and not FiniteValues(schema, references).exist():
        raise InputError(
            f"{kind}: wanted a schema that finite values follow, got one that none follows, as "
            "where it contains itself without end"
        )
    try:
        count = PatternCounter(references).most(schema)
    except (RecursionError, TooManySchemasError):
        raise InputError(
            f"{kind}: wanted references that lead to a schema of moderate size, got one that "
            "grows too far"
        ) from None
    if count > _PATTERNS:
        raise InputError(
            f"{kind}: wanted at most {_PATTERNS} patterns and formats that hold for one string at "
            f"once, got {count}"
        )


def _patterns(kind: str, text: str, schemas: list[Any]) -> Iterator[str]:
    if kind == "regex":
        yield text
    elif kind == "lark":
        yield from (match[1] for match in _LARK.finditer(text) if match[1])
    for schema, _ in chain(*map(schemas_within, schemas)):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        yield from dict_of(schema.get("patternProperties"))
