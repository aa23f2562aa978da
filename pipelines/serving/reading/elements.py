"""Calls whose arguments are elements of their own, as GLM-4.5 and Qwen3-Coder write them.

No two parts of a pattern take the same white space: a long run of it would be cut in every way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from heddle.pipelines.serving.reading.calls import DECODER, Functions, known_call
from heddle.pipelines.serving.reading.pieces import Called

GLM = re.compile(r"\s*(?P<name>[^\s<]+)\s*(?P<rest>(?:<arg_key>.*</arg_value>\s*)?)", re.DOTALL)
GLM_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)
QWEN = re.compile(r"\s*<function=(?P<name>[^>]+)>(?P<rest>.*?)</function>\s*", re.DOTALL)
QWEN_ARGUMENT = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


def glm_calls(text: str, functions: Functions) -> list[Called]:
    """The call of a name and of keys and values behind it.

    Raises:
        ValueError: There is something else.
    """
    return [_call(text, GLM, GLM_ARGUMENT, functions)]


def qwen_calls(text: str, functions: Functions) -> list[Called]:
    """The call of an element for the function, with one for each parameter.

    Raises:
        ValueError: There is something else.
    """
    return [_call(text, QWEN, QWEN_ARGUMENT, functions)]


def _call(
    text: str, whole: re.Pattern[str], argument: re.Pattern[str], functions: Functions
) -> Called:
    match = whole.fullmatch(text)
    if match is None or argument.sub("", match["rest"]).strip():
        raise ValueError(f"wanted a call, got {text!r}")
    name = match["name"].strip()
    schema = functions.get(name, {})
    return known_call(name, _object(argument.findall(match["rest"]), schema), functions)


def _object(pairs: Iterable[tuple[str, str]], schema: Any) -> str:
    """An object in JSON of these members, whose values are texts unless they are JSON."""
    given = schema.get("properties")
    types = given if isinstance(given, dict) else {}
    named = [(key.strip(), value) for key, value in pairs]
    rows = [f"{_text(key)}: {_value(value, types.get(key))}" for key, value in named]
    return "{" + ", ".join(rows) + "}"


def _value(text: str, schema: Any) -> str:
    """The value that a text is: JSON, unless the schema wants a text or it is none."""
    kinds = _kinds(schema)
    is_null = text.strip() == "null" and "null" in kinds
    if kinds - {"null"} == {"string"} and not is_null:
        return _text(text)
    try:
        DECODER.decode(text)
    except (ValueError, RecursionError):
        return _text(text)
    return text.strip()


def _kinds(schema: Any) -> set[str]:
    """The types that a schema allows; empty: it does not say."""
    if not isinstance(schema, dict):
        return set()
    kinds, others = (
        value if isinstance(value, list) else [value]
        for value in map(schema.get, ("type", "anyOf"))
    )
    own = {kind for kind in kinds if isinstance(kind, str)}
    return own.union(*map(_kinds, others))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
