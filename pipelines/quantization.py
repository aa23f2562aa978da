"""Floats as weights in 8 or 4 bits, as `ops.quantized_matmul` takes them.

Each group of consecutive elements of a row has one scale (round to nearest, no calibration). In 8
bits the scale is a 127th of the largest magnitude; in 4 bits it makes the element of the largest
magnitude -8, so that all sixteen values are used. Integers without a sign count from the least
element, the group's minimum, to the largest.
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
    weight: NDArray[Any], bits: int, group: int, scale_dtype: str = "float32", signed: bool = True
) -> tuple[NDArray[Any], ...]:
    """Integers and scales of a weight [n, k], with k in whole groups, and minimums without a sign.

    Args:
        weight: float32 or float16 [n, k], or the bits of bfloat16 as uint16.
        bits: 8 or 4.
        group: Elements along k with one scale.
        scale_dtype: float32, float16 or bfloat16; integers fit the rounded scales.
        signed: Whether the integers have a sign.

    Returns:
        int8 or uint8 [n, k], or uint8 [n, k / 2] as `ops.quantized_matmul` says; scales [n, k /
        group], those of bfloat16 as bits in uint16; and minimums like these, if not `signed`.
    """
    n, k = weight.shape
    rows = max(1, CHUNK // k)
    found: list[NDArray[Any]] = []
    for start in range(0, n, rows):
        groups = widened(weight[start : start + rows]).reshape(-1, k // group, group)
        parts = (_rounded if signed else _counted)(groups, bits, scale_dtype)
        found = found or [np.empty((n, part.shape[1]), part.dtype) for part in parts]
        for whole, part in zip(found, parts, strict=True):
            whole[start : start + rows] = part
    return tuple(found)


def _rounded(
    groups: NDArray[np.float32], bits: int, scale_dtype: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Integers with a sign, and scales."""
    if bits == 8:
        exact = np.abs(groups).max(axis=-1) / 127
    else:
        largest = np.abs(groups).argmax(axis=-1)[..., None]
        exact = np.take_along_axis(groups, largest, axis=-1)[..., 0] / -8
    kept = narrowed(exact, scale_dtype)
    lowest, highest = (-127, 127) if bits == 8 else (-8, 7)
    found = np.clip(_divided(groups, kept), lowest, highest).astype(np.int8)
    found = found.reshape(len(groups), -1)
    return found if bits == 8 else packed(raised(found, bits)), kept


def _counted(
    groups: NDArray[np.float32], bits: int, scale_dtype: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Integers without a sign, scales, and minimums."""
    minimums = narrowed(groups.min(axis=-1), scale_dtype)
    above, top = groups - widened(minimums)[..., None], 2**bits - 1
    kept = narrowed(above.max(axis=-1) / np.float32(top), scale_dtype)
    found = np.clip(_divided(above, kept), 0, top).astype(np.uint8).reshape(len(groups), -1)
    return found if bits == 8 else packed(found), kept, minimums


def _divided(groups: NDArray[np.float32], kept: NDArray[Any]) -> NDArray[np.float32]:
    """Each group over its scale, as whole numbers; 0 over a scale of less than 2^-126."""
    scales = widened(kept)[..., None]
    normal = np.abs(scales) >= np.finfo(np.float32).smallest_normal
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=normal)
    found: NDArray[np.float32] = np.rint(groups * inverse)
    return found


def raised(integers: NDArray[np.int8], bits: int) -> NDArray[np.uint8]:
    """Integers of so many bits without their sign: the least one is 0."""
    found: NDArray[np.uint8] = integers.view(np.uint8) + np.uint8(2 ** (bits - 1))
    return found


def packed(integers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Integers [..., k] from 0 to 15 as [..., k / 2]: even ones in the lower half of a byte."""
    pairs: NDArray[np.uint8] = integers[..., 0::2] | integers[..., 1::2] << np.uint8(4)
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
