"""Chat templates, and the names, filters and tags that they are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from heddle.runtime.errors import InputError


class GenerationTag(Extension):  # type: ignore[misc]
    """`{% generation %}`, which shows training what an assistant says: here, what stands in it."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> nodes.Node:
        """What stands in the tag; names that are set there end with it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def render(template: str, names: Mapping[str, Any]) -> str:
    """The text that a template makes of `names`.

    It finds what it is written for: the tags, functions and filters of transformers ("Chat
    templates", Hugging Face), `tojson` that changes no character among them.

    Raises:
        InputError: The template refuses, or fails.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        text: str = environment.from_string(template).render(names)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise InputError(f"chat template: {error}") from None
    return text


def _refuse(message: str) -> None:
    """`raise_exception` of chat templates."""
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """The filter `tojson` of chat templates: no escapes for HTML, keys as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _now(form: str) -> str:
    """`strftime_now` of chat templates: the time here."""
    return datetime.now().strftime(form)
