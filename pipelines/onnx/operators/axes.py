"""Helpers for one axis of many."""

from __future__ import annotations

from typing import Any


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """The index of a tensor that chooses `index` on one axis and all of the others."""
    return (*[slice(None)] * axis, index)
