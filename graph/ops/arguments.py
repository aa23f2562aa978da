"""What functions that are made of ops check of their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.graph.location import graph_error
from heddle.graph.value import TensorValue


def rank_of(name: str, x: Any) -> int:
    """The rank of a tensor value; `name` is the function's.

    Raises:
        GraphError: `x` is something else.
    """
    if not isinstance(x, TensorValue):
        raise graph_error(f"{name}: wanted a tensor value, got {type(x).__name__}")
    return x.rank


def axis_of(name: str, axis: Any, rank: int) -> int:
    """The axis, counted from the front.

    Raises:
        GraphError: There is no such axis.
    """
    if not is_int(axis) or not -rank <= axis < rank:
        raise graph_error(f"{name}: wanted an axis from {-rank} to {rank - 1}, got {axis!r}")
    return int(axis) % rank


def is_count(value: Any) -> bool:
    """Whether it is such an integer of 0 or more."""
    return is_int(value) and value >= 0


def are_counts(values: Any) -> bool:
    """Whether it is a list of them."""
    return isinstance(values, (tuple, list)) and all(map(is_count, values))


def is_int(value: Any) -> bool:
    """Whether it is an integer of Python or NumPy, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
