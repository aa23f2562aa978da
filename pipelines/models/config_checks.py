"""What the readers of a model's `config.json` share: checks of its values, one by one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

from heddle.runtime.errors import GraphError

MOST_LAYERS = 4096
"""More than any model has: a graph of so many would not end."""

MOST_SIZE = 1 << 20
"""More than a model's vectors have, or an encoder's texts: graphs have constants of such sizes."""

MORE = "num_nextn_predict_layers"
"""The key for layers that guess later tokens."""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""What `layer_types` says of each layer."""


def check_count(name: str, value: Any, least: int) -> None:
    """Raises a GraphError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{name}: wanted an integer of at least {least}, got {value!r}")


def check_positive(name: str, value: Any, least: float = 0) -> None:
    """Raises a GraphError unless `value` is a finite number above `least`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least < value <= sys.float_info.max:
        raise GraphError(f"{name}: wanted a finite number above {least}, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raises a GraphError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise GraphError(f"{name}: wanted true or false, got {value!r}")


def check_choice(name: str, value: Any, among: Collection[str]) -> str:
    """The value; raises a GraphError unless it is one of the strings `among`."""
    if not isinstance(value, str) or value not in among:
        raise GraphError(f"{name}: wanted one of {', '.join(among)}, got {value!r}")
    return value


def refuse(values: Mapping[str, Any], name: str, wanted: Any) -> None:
    """Raises a GraphError where `values` has `name`, and not as `wanted`."""
    found = values.get(name)
    if found is not None and found != wanted:
        raise GraphError(f"{name}: wanted {'none' if wanted is None else wanted}, got {found!r}")
