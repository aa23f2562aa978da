"""Floats as weights in 8 or 4 bits, as `ops.quantized_matmul` takes them.

Each group of consecutive elements of a row has one scale (round to nearest, no calibration). In 8
bits the scale is a 127th of the largest magnitude; in 4 bits it makes the element of the largest
magnitude -8, so that all sixteen values are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.runtime import Buffer, narrow_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

CHUNK = 1 << 18
"""Elements that are looked at together: as many as stay in a cache."""


def quantize(
    weight: NDArray[Any], bits: int, group: int, scale_dtype: str = "float32"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Integers and scales of a weight [n, k], with k in whole groups.

    Args:
        weight: float32 or float16 [n, k], or the bits of bfloat16 as uint16.
        bits: 8 or 4.
        group: Elements along k with one scale.
        scale_dtype: float32, float16 or bfloat16; integers fit the rounded scales.

    Returns:
        int8 [n, k], or uint8 [n, k / 2] as `ops.quantized_matmul` says; scales [n, k / group],
        those of bfloat16 as bits in uint16.
    """
    n, k = weight.shape
    integers = np.empty((n, k * bits // 8), np.int8 if bits == 8 else np.uint8)
    scales = np.empty((n, k // group), np.uint16 if scale_dtype == "bfloat16" else scale_dtype)
    rows = max(1, CHUNK // k)
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        groups = widened(weight[part]).reshape(-1, k // group, group)
        integers[part], scales[part] = _rounded(groups, bits, scale_dtype)
    return integers, scales


def _rounded(
    groups: NDArray[np.float32], bits: int, scale_dtype: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    if bits == 8:
        exact = np.abs(groups).max(axis=-1) / 127
    else:
        largest = np.abs(groups).argmax(axis=-1)[..., None]
        exact = np.take_along_axis(groups, largest, axis=-1)[..., 0] / -8
    kept = narrowed(exact, scale_dtype)
    scales = widened(kept)[..., None]
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    lowest, highest = (-127, 127) if bits == 8 else (-8, 7)
    found = np.clip(np.rint(groups * inverse), lowest, highest).astype(np.int8)
    found = found.reshape(len(groups), -1)
    return found if bits == 8 else packed(found), kept


def packed(integers: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Integers [..., k] from -8 to 7 as uint8 [..., k / 2]: each as q + 8, even ones lower."""
    raised = (integers + np.int8(8)).view(np.uint8)
    pairs: NDArray[np.uint8] = raised[..., 0::2] | raised[..., 1::2] << 4
    return pairs


def widened(values: NDArray[Any]) -> NDArray[np.float32]:
    """float32 of floats, or of the bits of bfloat16 in uint16."""
    if values.dtype == np.uint16:
        return narrow_floats.widened(values, "bfloat16")
    return values.astype(np.float32)


def narrowed(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    """`values` in `dtype`, rounded to nearest even; bfloat16 as bits in uint16."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return narrow_floats.narrowed(values, dtype)


def bits_of(array: Array) -> NDArray[Any]:
    """A weight as NumPy sees it: floats that NumPy lacks as their bits."""
    found = np.asarray(array)
    held = narrow_floats.DTYPES.get(str(array.dtype))
    return found.view(held) if held else found


def array_of(bits: NDArray[Any], dtype: str) -> Array:
    """A weight of `dtype` from what `bits_of` gives."""
    return Buffer.from_numpy(bits, dtype=dtype) if dtype in narrow_floats.DTYPES else bits
