"""What a window of each channel is reduced to, for both targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from heddle.kernels import bodies, emit
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


class Reduction:
    """The window numbered `row`, by `kind`: `max`, `mean`, or `product` with weights and the sum.

    float16 and bfloat16 are reduced in float32.
    """

    def __init__(self, frame: Any, windows: Windows, row: Size) -> None:
        self._spec, self._windows = frame.spec, windows
        self._kind, self._dtype = frame.spec.attr("kind"), frame.spec.operands[0].dtype
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
        value = self._start(lanes)
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

        return self._finished(along([], self._start(lanes)))

    def _start(self, lanes: int) -> Any:
        lowest = -math.inf if self._kind == "max" else 0
        return emit.constant(emit.register_type(self._dtype), lowest, lanes)

    def _with(self, load: Load, value: Any, tap: Sequence[Any]) -> Any:
        """A value with one tap more."""
        windows = self._windows
        found = load(0, windows.place(self._item, windows.at(self._starts, tap)))
        if self._kind == "max":
            return bodies.maximum(self._dtype, value, found)
        if self._kind == "mean":
            return value + found
        number: Size = 0
        for taps, offset in zip(windows.kernel, tap, strict=True):
            number = number * taps + offset
        return emit.fma(found, load(1, emit.as_index(number * windows.channels)), value)

    def _finished(self, value: Any) -> Any:
        if self._kind != "mean":
            return value
        if self._spec.attr("counts_padding"):
            return value / float(prod(self._windows.kernel))
        count: Any = 1
        for first, last in self._ends:
            count = (last - first) * count
        element = emit.element_of(value)
        return value / emit.splat(arith.sitofp(element, count), emit.lanes_of(value))


def unsupported(spec: Spec) -> str | None:
    """Why no kernel takes `spec`, or None: floats, without a prologue."""
    dtype = spec.operands[0].dtype
    if not emit.is_float(dtype):
        return f"{spec.op} of {dtype}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)
