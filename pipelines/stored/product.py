"""A weight of a product as a checkpoint stores it, in the forms that a graph may ask for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import (
    CHUNK,
    array_of,
    bits_of,
    narrowed,
    packed,
    quantize,
    widened,
)
from heddle.runtime import narrow_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

FLOATS = ("float32", "bfloat16", "float16")
"""What weights without scales are stored in, and scales of a graph are held in."""

FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2")

HOLDS = {
    "uint8": ("int4",),
    "int8": ("int4", "int8"),
    **{kind: (kind,) for kind in FLOATS_OF_8_BITS},
}
"""The kinds of values that fit each dtype of a graph's integers."""

GROUPS = 32
"""A graph's groups have a multiple of so many elements (`ops.quantized_matmul`)."""

LARGEST_GROUP = 128
"""The elements of a graph's group where more have one scale, which is then said more than once."""


class Product(ABC):
    """A weight [n, k], or one for each of several experts, [experts, n, k].

    Attributes:
        shape: Its sizes.
        kind: What its values are: `"int4"`, `"int8"`, floats, or what no graph holds.
        group: Elements along k with one scale, of which the last group may have fewer; 0: none.
    """

    shape: tuple[int, ...]
    kind: str
    group: int

    @property
    def group_held(self) -> int:
        """The elements of the groups that a graph holds exactly these values in; 0: in none."""
        group = math.gcd(self.group, self.shape[-1], LARGEST_GROUP)
        held = any(self.kind in kinds for kinds in HOLDS.values())
        return group if held and group % GROUPS == 0 else 0

    def fits(self, dtype: str, group: int) -> bool:
        """Whether `quantized` of these rounds no value."""
        return self.kind in HOLDS[dtype] and self.group % group == 0

    @abstractmethod
    def floats(self, dtype: str) -> Array:
        """The weight in `dtype`, one of `FLOATS`: each value times its scale, rounded once."""

    @abstractmethod
    def quantized(self, dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
        """Values and scales as `ops.quantized_matmul` takes them.

        Args:
            dtype: What holds the values, a key of `HOLDS`: exactly, if they fit, else rounded anew,
                to integers.
            group: Elements along k with one scale.
            scale_dtype: One of `FLOATS`, which scales are rounded to.
        """


class Plain(Product):
    """A weight that is stored in floats."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape, self.kind, self.group = tuple(array.shape), str(array.dtype), 0

    def floats(self, dtype: str) -> Array:
        """The weight itself, or rounded to `dtype`."""
        if dtype == self.kind:
            return self.array
        return array_of(narrowed(widened(bits_of(self.array)), dtype), dtype)

    def quantized(self, dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
        """The weight, rounded."""
        return _rounded(bits_of(self.array), dtype, group, scale_dtype)


class Made(Product):
    """A weight that becomes floats when it is asked for.

    Args:
        shape: Its sizes.
        kind: The dtype of the floats; or what it is stored in, which is no dtype.
        make: Makes it, in floats.
    """

    def __init__(self, shape: tuple[int, ...], kind: str, make: Callable[[], Array]) -> None:
        self.shape, self.kind, self.group = shape, kind, 0
        self.make = make

    def floats(self, dtype: str) -> Array:
        """The weight, rounded to `dtype`."""
        return Plain(self.make()).floats(dtype)

    def quantized(self, dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
        """The weight, rounded."""
        return Plain(self.make()).quantized(dtype, group, scale_dtype)


def turned(bits: NDArray[Any], kind: str) -> Made:
    """The weight [n, k] that is stored as [k, n], in floats of this kind, as `bits_of` has them."""
    return Made(bits.shape[::-1], kind, lambda: array_of(np.ascontiguousarray(bits.T), kind))


class Scaled(Product):
    """A weight that is stored as values and scales.

    Args:
        shape: Its sizes.
        kind: What the values are.
        group: Elements along k with one scale; more than there are, as files may say, are all.
        values: Makes the values: integers of 8 bits or more, or the bits of floats.
        scales: Makes the scales, float32 [..., n, ceildiv(k, group)].
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        kind: str,
        group: int,
        values: Callable[[], NDArray[Any]],
        scales: Callable[[], NDArray[np.float32]],
    ) -> None:
        self.shape, self.kind, self.group = shape, kind, min(group, shape[-1])
        self.values, self.scales = values, scales

    def floats(self, dtype: str) -> Array:
        """Each value times its scale."""
        k = self.shape[-1]
        values, scales = self.values().reshape(-1, k), self.scales()
        scales = scales.reshape(len(values), -1)
        found = _empty(values.shape, dtype)
        rows = max(1, CHUNK // k)
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            wide = self._widened(values[part])
            wide *= np.repeat(scales[part], self.group, axis=1)[:, :k]
            found[part] = narrowed(wide, dtype)
        return array_of(found.reshape(self.shape), dtype)

    def _widened(self, values: NDArray[Any]) -> NDArray[np.float32]:
        narrow = self.kind in FLOATS_OF_8_BITS
        return narrow_floats.widened(values, self.kind) if narrow else values.astype(np.float32)

    def quantized(self, dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
        """The values themselves, if they fit."""
        if not self.fits(dtype, group):
            return _rounded(bits_of(self.floats("float32")), dtype, group, scale_dtype)
        values = self.values()
        places = np.arange(0, self.shape[-1], group) // self.group
        scales = np.ascontiguousarray(self.scales()[..., places])
        return (
            array_of(packed(values) if dtype == "uint8" else values, dtype),
            array_of(narrowed(scales, scale_dtype), scale_dtype),
        )


class Stack(Product):
    """The weights of experts, all of one shape, side by side: made one expert at a time."""

    def __init__(self, experts: Sequence[Product]) -> None:
        self.experts = experts
        self.shape = (len(experts), *experts[0].shape)
        kinds = sorted({expert.kind for expert in experts})
        self.kind = "int8" if kinds == ["int4", "int8"] else " or ".join(kinds)
        self.group = math.gcd(*(expert.group for expert in experts))

    def floats(self, dtype: str) -> Array:
        """Those of each expert."""
        found = _empty(self.shape, dtype)
        for number, expert in enumerate(self.experts):
            found[number] = bits_of(expert.floats(dtype))
        return array_of(found, dtype)

    def quantized(self, dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
        """Those of each expert."""
        *rows, k = self.shape
        values = _empty((*rows, k // 2 if dtype == "uint8" else k), dtype)
        scales = _empty((*rows, k // group), scale_dtype)
        for number, expert in enumerate(self.experts):
            parts = expert.quantized(dtype, group, scale_dtype)
            values[number], scales[number] = map(bits_of, parts)
        return array_of(values, dtype), array_of(scales, scale_dtype)


def _empty(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Room for what `bits_of` gives of a weight."""
    return np.empty(shape, narrow_floats.DTYPES.get(dtype, dtype))


def _rounded(floats: NDArray[Any], dtype: str, group: int, scale_dtype: str) -> tuple[Array, Array]:
    integers, scales = quantize(floats, 4 if dtype == "uint8" else 8, group, scale_dtype)
    return integers, array_of(scales, scale_dtype)
