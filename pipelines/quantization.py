"""Weights of a checkpoint in 8 or 4 bits, as `ops.quantized_matmul` takes them.

Each group of consecutive elements of a row has one scale (round to nearest, no calibration). In 8
bits the scale is a 127th of the largest magnitude; in 4 bits it makes the element of the largest
magnitude -8, so that all sixteen values are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.runtime import Buffer, narrow_floats
from heddle.runtime.errors import ArtifactError, ArtifactReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

CHUNK = 1 << 18
"""Elements that are looked at together: as many as stay in a cache."""

Wanted = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape of weights by name."""


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
    if bits == 8:
        return found, kept
    raised = (found + 8).astype(np.uint8)
    return raised[:, 0::2] | raised[:, 1::2] << 4, kept


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


def fit(path: Path, arrays: Mapping[str, Array], wanted: Wanted) -> dict[str, Array]:
    """The weights `wanted` from those of a checkpoint, read from `path`.

    `X.integers` and `X.scales` are made from `X.weight`, in the dtypes and groups that their
    shapes say. What the checkpoint does not have is left out: loading says what is missing.

    Raises:
        ArtifactError: A weight that is to be quantized has another shape.
    """
    found: dict[str, Array] = {}
    for name, (dtype, shape) in wanted.items():
        stem, _, end = name.rpartition(".")
        source = arrays.get(f"{stem}.weight")
        if name in arrays:
            found[name] = arrays[name]
        elif end == "integers" and source is not None:
            kind, (_, count) = wanted[f"{stem}.scales"]
            bits = 8 if dtype == "int8" else 4
            unpacked = [shape[0], shape[1] * 8 // bits]
            if list(source.shape) != unpacked:
                what = f"{stem}.weight: wanted {unpacked}, got {list(source.shape)}"
                raise ArtifactError(f"{path}: {what}", ArtifactReason.WEIGHTS)
            group = unpacked[1] // count
            integers, scales = quantize(bits_of(source), bits, group, kind)
            found[name] = integers
            found[f"{stem}.scales"] = (
                Buffer.from_numpy(scales, dtype=kind) if kind == "bfloat16" else scales
            )
    return found


def bits_of(array: Array) -> NDArray[Any]:
    """A weight as NumPy sees it: bfloat16 as its bits in uint16."""
    found = np.asarray(array)
    return found.view(np.uint16) if found.dtype.name == "bfloat16" else found
