"""What a window of each channel is reduced to, for both targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from heddle.kernels import bodies, emit, sizes
from heddle.kernels.emit import compare
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec
from heddle.kernels.windows import Windows

arith = dialect("arith")

MOST_WRITTEN_OUT = 16
"""Taps that are written out; more of them are a loop."""

Load = Callable[[int, Any], Any]
"""`load(operand, position)`: neighbouring elements of an operand in registers."""


class Combination:
    """How a spec's taps are put together: `max`, `mean`, or `product` with weights and the sum.

    float16 and bfloat16 are reduced in float32.
    """

    def __init__(self, spec: Spec) -> None:
        self.kind, self._dtype = spec.attr("kind"), spec.operands[0].dtype
        self._counts_padding = self.kind != "mean" or spec.attr("counts_padding")
        self._taps = prod(spec.attr("kernel"))

    def start(self, lanes: int) -> Any:
        """What nothing is reduced to; a tap outside of the tensor."""
        lowest = -math.inf if self.kind == "max" else 0
        return emit.constant(emit.register_type(self._dtype), lowest, lanes)

    def with_tap(self, value: Any, found: Any, weight: Any) -> Any:
        """A value with what was found at one tap more; `weight` is that of a product."""
        if self.kind == "max":
            return bodies.maximum(self._dtype, value, found)
        return value + found if self.kind == "mean" else emit.fma(found, weight, value)

    def finished(self, value: Any, inside: Sequence[Size]) -> Any:
        """The result of a value in which so many taps along each axis are `inside`."""
        if self.kind != "mean":
            return value
        if self._counts_padding:
            return value / float(self._taps)
        element = emit.element_of(value)
        count = arith.sitofp(element, emit.as_index(sizes.product(tuple(inside))))
        return value / emit.splat(count, emit.lanes_of(value))


class Reduction:
    """The window numbered `row`."""

    def __init__(self, frame: Any, windows: Windows, row: Size) -> None:
        self._windows, self._combination = windows, Combination(frame.spec)
        self._item, self._starts = windows.starts(row)
        axes = range(len(windows.kernel))
        self._ends = [windows.taps_inside(axis, self._starts[axis]) for axis in axes]

    def emit(self, lanes: int, write: Callable[[Callable[[Load], Any]], None]) -> None:
        """Emits `write(reduced)`, of vectors of `lanes`: in two ways, of which one is run.

        Windows that are inside of the tensor go through all taps one after another, the others
        through loops over the taps that are inside.
        """
        if prod(self._windows.kernel) > MOST_WRITTEN_OUT:
            write(lambda load: self._by_loops(load, lanes))
            return

        def inside() -> list[Any]:
            write(lambda load: self._written_out(load, lanes))
            return []

        def at_an_edge() -> list[Any]:
            write(lambda load: self._by_loops(load, lanes))
            return []

        emit.either(self._is_inside(), [], inside, at_an_edge)

    def _is_inside(self) -> Any:
        found = emit.constant(emit.integer(1), 1)
        for (first, last), taps in zip(self._ends, self._windows.kernel, strict=True):
            found = found & compare("equal", first, 0) & compare("equal", last, taps)
        return found

    def _written_out(self, load: Load, lanes: int) -> Any:
        value = self._combination.start(lanes)
        for tap in product(*map(range, self._windows.kernel)):
            value = self._with(load, value, tap)
        return self._finished(value)

    def _by_loops(self, load: Load, lanes: int) -> Any:
        def along(tap: Sequence[Any], value: Any) -> Any:
            if len(tap) == len(self._ends):
                return self._with(load, value, tap)
            first, last = self._ends[len(tap)]
            return emit.carry(
                first, last, 1, [value], lambda place, value: [along([*tap, place], value)]
            )[0]

        return self._finished(along([], self._combination.start(lanes)))

    def _with(self, load: Load, value: Any, tap: Sequence[Any]) -> Any:
        """A value with one tap more."""
        windows = self._windows
        found = load(0, windows.place(self._item, windows.at(self._starts, tap)))

        weight = None
        if self._combination.kind == "product":
            number: Size = 0
            for taps, offset in zip(windows.kernel, tap, strict=True):
                number = number * taps + offset
            weight = load(1, emit.as_index(number * windows.channels))
        return self._combination.with_tap(value, found, weight)

    def _finished(self, value: Any) -> Any:
        return self._combination.finished(value, [last - first for first, last in self._ends])


def depth_of(spec: Spec) -> int:
    """Channels of a group: of x that each result is of, and of results."""
    if spec.attr("kind") != "product":
        return 1
    lines, _, *pair = spec.operands[1].shape
    assert isinstance(lines, int)
    taps: int = prod(spec.attr("kernel"))
    return lines * (2 if pair else 1) // taps


def unsupported(spec: Spec) -> str | None:
    """Why no kernel takes `spec`, or None: floats, without a prologue."""
    dtype = spec.operands[0].dtype
    if not emit.is_float(dtype):
        return f"{spec.op} of {dtype}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)
