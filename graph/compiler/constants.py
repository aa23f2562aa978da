"""The bytes of `heddle.constant`."""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.graph.attributes import constant_array
from heddle.graph.compiler import module as m
from heddle.graph.rounding import stored


def constant_bytes(operation: Any) -> bytes:
    """The row-major little-endian bytes of a constant's elements."""
    array = constant_array(operation.attributes["value"])
    array = stored(array, m.tensor(operation.results[0]).dtype)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
