"""A weight of a product as a checkpoint stores it, in the forms that a graph may ask for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import (
    array_of,
    bits_of,
    narrowed,
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

BITS = {"int4": 4, "int8": 8, "uint4": 4, "uint8": 8}
"""Those of integers."""

UNSIGNED = ("uint4", "uint8")
"""Integers that have a minimum for each group beside its scale."""

HOLDS = {
    "int4": ("int4",),
    "int8": ("int4", "int8"),
    "uint4": ("int4", "uint4"),
    "uint8": ("int4", "int8", "uint4", "uint8"),
    **{kind: (kind,) for kind in FLOATS_OF_8_BITS},
}
"""The kinds of values that fit each kind of a graph."""

GROUPS = 32
"""A graph's groups have a multiple of so many elements (`ops.quantized_matmul`)."""

LARGEST_GROUP = 128
"""The elements of a graph's group where more have one scale, which is then said more than once."""


@dataclass(frozen=True)
class Form:
    """How a graph holds a weight.

    Attributes:
        kind: What the values are, one of `HOLDS`.
        group: Elements along k with one scale.
        scales: The dtype of scales and minimums, one of `FLOATS`.
        ordered: Whether the order of the elements along k is beside them.
    """

    kind: str
    group: int
    scales: str
    ordered: bool = False

    @property
    def bits(self) -> int:
        """Those of a value."""
        return BITS.get(self.kind, 8)

    @property
    def dtype(self) -> str:
        """What the values are in."""
        return "uint8" if self.bits == 4 else self.kind


class Product(ABC):
    """A weight [n, k], or one for each of several experts, [experts, n, k].

    Attributes:
        shape: Its sizes.
        kind: What its values are: one of `HOLDS`, floats, or what no graph holds.
        group: Elements along k with one scale, of which the last group may have fewer; 0: none.
        scales_in: The dtype that has the scales of a graph without rounding them, or closest; empty
            where that is any.
        order: int64 [k], the places along k of a graph's elements; None: they are in order.
    """

    shape: tuple[int, ...]
    kind: str
    group: int
    scales_in = ""
    order: NDArray[np.int64] | None = None

    @property
    def group_held(self) -> int:
        """The elements of the groups that a graph holds exactly these values in; 0: in none."""
        group = math.gcd(self.group, self.shape[-1], LARGEST_GROUP)
        return group if self.kind in HOLDS and group % GROUPS == 0 else 0

    def fits(self, form: Form) -> bool:
        """Whether `quantized` of these rounds no value."""
        ordered = form.ordered or self.order is None
        return self.kind in HOLDS[form.kind] and self.group % form.group == 0 and ordered

    @abstractmethod
    def floats(self, dtype: str) -> Array:
        """The weight in `dtype`, one of `FLOATS`: each value times its scale, rounded once."""

    @abstractmethod
    def quantized(self, form: Form) -> tuple[Array, ...]:
        """Values and scales as `ops.quantized_matmul` takes them, and minimums if it has them.

        Values that fit are what they are; scales and minimums are rounded to their dtype. Others
        are rounded anew, to integers.
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

    def quantized(self, form: Form) -> tuple[Array, ...]:
        """The weight, rounded."""
        return rounded(bits_of(self.array), form)


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

    def quantized(self, form: Form) -> tuple[Array, ...]:
        """The weight, rounded."""
        return Plain(self.make()).quantized(form)


def turned(bits: NDArray[Any], kind: str) -> Made:
    """The weight [n, k] that is stored as [k, n], in floats of this kind, as `bits_of` has them."""
    return Made(bits.shape[::-1], kind, lambda: array_of(np.ascontiguousarray(bits.T), kind))


class Stack(Product):
    """The weights of experts, all of one shape, side by side: made one expert at a time."""

    def __init__(self, experts: Sequence[Product]) -> None:
        self.experts = experts
        self.shape = (len(experts), *experts[0].shape)
        kinds = {expert.kind for expert in experts}
        whole = [kind for kind, held in HOLDS.items() if kinds <= set(held)]
        floats = [kind for kind in FLOATS if kind in kinds]
        self.kind = next(iter((*whole, *floats)), " or ".join(sorted(kinds)))
        in_order = all(expert.order is None for expert in experts)
        self.group = math.gcd(*(expert.group for expert in experts)) if in_order else 0
        scales = {expert.scales_in for expert in experts}
        self.scales_in = scales.pop() if len(scales) == 1 else ""

    def floats(self, dtype: str) -> Array:
        """Those of each expert."""
        found = room(self.shape, dtype)
        for number, expert in enumerate(self.experts):
            found[number] = bits_of(expert.floats(dtype))
        return array_of(found, dtype)

    def quantized(self, form: Form) -> tuple[Array, ...]:
        """Those of each expert."""
        made: list[NDArray[Any]] = []
        dtypes = (form.dtype, form.scales, form.scales)
        for number, expert in enumerate(self.experts):
            parts = [bits_of(part) for part in expert.quantized(form)]
            made = made or [np.empty((len(self.experts), *p.shape), p.dtype) for p in parts]
            for whole, part in zip(made, parts, strict=True):
                whole[number] = part
        return tuple(map(array_of, made, dtypes))


def room(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Room for what `bits_of` gives of a weight."""
    return np.empty(shape, narrow_floats.DTYPES.get(dtype, dtype))


def rounded(floats: NDArray[Any], form: Form) -> tuple[Array, ...]:
    """A weight [n, k] in a form, rounded anew; bfloat16 as its bits."""
    signed = form.kind not in UNSIGNED
    integers, *sides = quantize(floats, form.bits, form.group, form.scales, signed)
    return integers, *(array_of(side, form.scales) for side in sides)
