"""Windows over the spatial axes of a tensor with channels last, for both targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.emit import compare
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec


@dataclass(frozen=True)
class Windows:
    """The windows of a spec's operand 0, [batch, *sizes, channels], along its spatial axes.

    Attributes:
        sizes: Of operand 0.
        counts: Windows along each axis.
        kernel: Taps along each axis.
    """

    batch: Size
    sizes: tuple[Size, ...]
    channels: Size
    counts: tuple[Size, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]

    @staticmethod
    def of(frame: Any) -> Windows:
        """Those of a frame's spec."""
        spec: Spec = frame.spec
        batch, *inner, channels = frame.shape(spec.operands[0].shape)
        counts = frame.shape(spec.result.shape[1:-1])
        kernel, strides, dilations = (
            spec.attr(name) for name in ("kernel", "strides", "dilations")
        )
        before = spec.attr("padding")[::2]
        return Windows(batch, tuple(inner), channels, counts, kernel, strides, dilations, before)

    @property
    def number(self) -> Size:
        """How many there are."""
        return sizes.product((self.batch, *self.counts))

    def starts(self, window: Size, axes: int | None = None) -> tuple[Size, list[Any]]:
        """The item of the batch that a window is in, and where it starts: outside, maybe.

        With `axes` a number of windows along the first so many, and where it starts along them.
        """
        item, *places = sizes.split(window, (self.batch, *self.counts[:axes]))
        found = [
            emit.as_index(place * stride) - before
            for place, stride, before in zip(places, self.strides, self.before, strict=False)
        ]
        return item, found

    def place(self, item: Size, at: Sequence[Any]) -> Any:
        """The first channel's element number at a place of an item."""
        found: Any = item
        for size, where in zip(self.sizes, at, strict=True):
            found = found * size + where
        return found * self.channels

    def at(self, starts: Sequence[Any], tap: Sequence[Size]) -> list[Any]:
        """Where a tap of a window is."""
        return [
            start + offset * dilation
            for start, offset, dilation in zip(starts, tap, self.dilations, strict=False)
        ]

    def inside(self, at: Sequence[Any]) -> Any:
        """Whether a place is inside of the tensor."""
        found = emit.constant(emit.integer(1), 1)
        for size, where in zip(self.sizes, at, strict=False):
            found = found & compare("less", where, size, unsigned=True)
        return found

    def taps_inside(self, axis: int, start: Any) -> tuple[Any, Any]:
        """The first tap along an axis that is inside, and the one behind the last."""
        dilation, size = self.dilations[axis], self.sizes[axis]
        first = sizes.ceildiv(emit.maximum(-start, 0), dilation)
        left = emit.maximum(emit.as_index(size) - start, 0)
        last = emit.minimum(sizes.ceildiv(left, dilation), self.kernel[axis])
        return emit.minimum(first, last), last
