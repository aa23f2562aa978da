"""Weights that are stored as values and scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import CHUNK, array_of, bits_of, narrowed, packed, raised
from heddle.pipelines.stored.product import (
    BITS,
    FLOATS_OF_8_BITS,
    UNSIGNED,
    Form,
    Product,
    room,
    rounded,
)
from heddle.runtime import narrow_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array


class Scaled(Product):
    """A weight that is stored as values and scales, or as those and minimums.

    Args:
        shape: Its sizes.
        kind: What the values are.
        group: Elements along k with one scale; more than there are, as files may say, are all.
        values: Makes the values: integers, or the bits of floats.
        scales: Makes the scales, float32 [..., n, ceildiv(k, group)].
        minimums: Makes what is added to each value times its scale, as scales: beside integers
            without a sign.
        scales_in: As the attribute.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        kind: str,
        group: int,
        values: Callable[[], NDArray[Any]],
        scales: Callable[[], NDArray[np.float32]],
        minimums: Callable[[], NDArray[np.float32]] | None = None,
        scales_in: str = "",
    ) -> None:
        self.shape, self.kind, self.group = shape, kind, min(group, shape[-1])
        self.values, self.scales, self.minimums = values, scales, minimums
        self.scales_in = scales_in

    def floats(self, dtype: str) -> Array:
        """Each value times its scale, and the minimum."""
        k = self.shape[-1]
        values = self.values().reshape(-1, k)
        scales, *minimums = (side().reshape(len(values), -1) for side in self._sides())
        found = room(values.shape, dtype)
        rows = max(1, CHUNK // k)
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            wide = self._widened(values[part])
            wide *= np.repeat(scales[part], self.group, axis=1)[:, :k]
            for side in minimums:
                wide += np.repeat(side[part], self.group, axis=1)[:, :k]
            found[part] = narrowed(wide, dtype)
        return array_of(found.reshape(self.shape), dtype)

    def _sides(self) -> list[Callable[[], NDArray[np.float32]]]:
        """What makes the numbers of each group."""
        return [self.scales, self.minimums] if self.minimums else [self.scales]

    def _widened(self, values: NDArray[Any]) -> NDArray[np.float32]:
        narrow = self.kind in FLOATS_OF_8_BITS
        return narrow_floats.widened(values, self.kind) if narrow else values.astype(np.float32)

    def quantized(self, form: Form) -> tuple[Array, ...]:
        """The values themselves, if they fit."""
        if not self.fits(form):
            return rounded(bits_of(self.floats("float32")), form)
        values, sides = self.values(), [side() for side in self._sides()]
        counted, bits = form.kind in UNSIGNED, BITS.get(self.kind, 8)
        if self.kind not in UNSIGNED and (counted or form.bits == 4):
            values = raised(values, bits)
            if counted:
                sides.append(sides[0] * np.float32(-(2 ** (bits - 1))))
        places = np.arange(0, self.shape[-1], form.group) // self.group
        return (
            array_of(packed(values) if form.bits == 4 else values, form.dtype),
            *(_narrow(side[..., places], form.scales) for side in sides),
        )


def _narrow(side: NDArray[np.float32], dtype: str) -> Array:
    """Scales or minimums in a dtype; those that are larger than all of it become infinite."""
    with np.errstate(over="ignore"):
        return array_of(narrowed(np.ascontiguousarray(side), dtype), dtype)


class Ordered(Product):
    """A weight [n, k] whose groups lie side by side only in another order of its elements.

    Args:
        sorted: The weight in that order.
        order: int64 [k], the places along k of its elements.
    """

    def __init__(self, sorted: Scaled, order: NDArray[np.int64]) -> None:
        self.sorted, self.order = sorted, order
        self.places = np.argsort(order)
        self.shape, self.kind, self.group = sorted.shape, sorted.kind, sorted.group
        self.scales_in = sorted.scales_in

    def floats(self, dtype: str) -> Array:
        """The weight, in its own order."""
        found = bits_of(self.sorted.floats(dtype))
        return array_of(found.take(self.places, axis=1), dtype)

    def quantized(self, form: Form) -> tuple[Array, ...]:
        """The values themselves in the other order, if they fit."""
        if self.fits(form):
            return self.sorted.quantized(form)
        return rounded(bits_of(self.floats("float32")), form)
