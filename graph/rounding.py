"""Values of any dtype in NumPy's arrays, and the bits that they are in memory.

NumPy has no bfloat16, no float8_e4m3fn and no float8_e5m2: arrays hold their values in float32,
rounded as `heddle.runtime.narrow_floats` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from heddle.graph.dtype import DType
from heddle.runtime import narrow_floats

Array = np.ndarray[Any, Any]


def held(values: Any, dtype: DType) -> Array:
    """`values` cast to `dtype`, in an array of `dtype.to_numpy()`."""
    return loaded(stored(values, dtype), dtype)


def stored(values: Any, dtype: DType) -> Array:
    """`values` cast to `dtype`, in an array of `dtype.to_bits()`."""
    if dtype.in_numpy:
        return np.asarray(values).astype(dtype.to_numpy(), copy=False)
    return narrow_floats.narrowed(values, dtype.name)


def loaded(array: Array, dtype: DType) -> Array:
    """The values of an array that `stored` gave."""
    return array if dtype.in_numpy else narrow_floats.widened(array, dtype.name)
