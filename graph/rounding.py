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
    if not dtype.in_numpy:
        return narrow_floats.narrowed(values, dtype.name)
    array = np.asarray(values)
    if array.dtype.kind == "f" and not dtype.is_float and dtype is not DType.bool:
        return _whole(array, dtype)
    return array.astype(dtype.to_numpy(), copy=False)


def _whole(array: Array, dtype: DType) -> Array:
    """Floats without their fraction, the nearest integers that fit; NaN is 0."""
    low, high = (np.array(end, dtype.to_numpy()) for end in dtype.range)
    wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    fits = (wide > float(low)) & (wide < float(high))
    inside = np.where(fits, wide, 0).astype(dtype.to_numpy())
    return np.where(fits, inside, np.where(wide > 0, high, low))


def loaded(array: Array, dtype: DType) -> Array:
    """The values of an array that `stored` gave."""
    return array if dtype.in_numpy else narrow_floats.widened(array, dtype.name)
