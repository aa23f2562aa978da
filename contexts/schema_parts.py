"""The parts of a JSON schema, and where its references lead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

# Keywords whose values are data, not schemas.
_DATA = frozenset(("const", "default", "enum", "examples"))
# Keywords whose values hold schemas by names, which are no keywords.
_BY_NAME = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
)


def dict_of(value: Any) -> dict[str, Any]:
    """`value` where it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """`value` where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def schemas_within(root: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each dict of `root` that may be a schema, `root` too, and the one around it."""
    waiting: list[tuple[Any, dict[str, Any]]] = [(root, {})]
    while waiting:
        part, around = waiting.pop()
        if isinstance(part, dict):
            yield part, around
            for key, value in part.items():
                if key in _BY_NAME and isinstance(value, dict):
                    waiting += [(each, part) for each in value.values()]
                elif key not in _DATA:
                    waiting.append((value, part))
        elif isinstance(part, list):
            waiting += [(each, around) for each in part]


class References:
    """Where the references of a schema lead.

    Args:
        root: The schema.

    Attributes:
        some: Whether there are any.
    """

    def __init__(self, root: Any) -> None:
        self.some = False
        self._places: dict[str, Any] = {"": root}
        # By the id of a schema: the address that its references are relative to.
        self._bases: dict[int, str] = {}
        for schema, around in schemas_within(root):
            base = self._bases.get(id(around), "")
            if isinstance(name := schema.get("$id"), str):
                base = _address(base, name)[0]
                self._places[base] = schema
            if isinstance(anchor := schema.get("$anchor"), str):
                self._places[f"{base}#{anchor}"] = schema
            self._bases[id(schema)] = base
            self.some |= "$ref" in schema

    def target(self, schema: dict[str, Any]) -> Any:
        """What the `$ref` of `schema` leads to; None where there is none, or it leads elsewhere."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return None
        address, fragment = _address(self._bases.get(id(schema), ""), reference)
        if fragment and not fragment.startswith("/"):
            return self._places.get(f"{address}#{fragment}")
        target = self._places.get(address)
        for step in unquote(fragment).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                target = target[int(step)]
            else:
                target = target.get(step) if isinstance(target, dict) else None
        return target


def _address(base: str, reference: str) -> tuple[str, str]:
    """Where `reference` leads, and the fragment of it."""
    if reference.startswith("#"):  # also where `base` is of a kind that cannot be joined
        return base, reference[1:]
    try:
        address, fragment = urldefrag(urljoin(base, reference))
    except ValueError:  # no address at all
        return reference, ""
    return address, fragment
