"""JSON: files beside a model's weights, read and refused in one way, and what it can hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heddle.runtime.errors import GraphError

Refusal = Callable[[str], Exception]
"""Makes an error of its text."""


def read_object(path: Path, refusal: Refusal = GraphError) -> dict[str, Any]:
    """The JSON object in the file `path`.

    Raises:
        GraphError: The file cannot be read, or holds none; another error where `refusal` makes it.
    """
    found = _read(path, "object", refusal)
    if not isinstance(found, dict):
        raise refusal(f"{path}: wanted a JSON object, got {type(found).__name__}")
    return found


def read_list(path: Path, refusal: Refusal = GraphError) -> list[Any]:
    """The JSON list in the file `path`; otherwise as `read_object`."""
    found = _read(path, "list", refusal)
    if not isinstance(found, list):
        raise refusal(f"{path}: wanted a JSON list, got {type(found).__name__}")
    return found


def _read(path: Path, wanted: str, refusal: Refusal) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refusal(f"{path}: wanted a JSON {wanted}, got an error: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise refusal(f"{path}: wanted a JSON {wanted}, got no JSON: {error}") from None


def finite(value: Any, instead: Callable[[str], Any]) -> Any:
    """`value` as JSON holds it; numbers that are not finite, which it lacks, by `instead(name)`."""
    return json.loads(json.dumps(value), parse_constant=instead)
