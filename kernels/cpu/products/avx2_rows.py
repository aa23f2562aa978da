"""Rows beside weights of 8 and 4 bits on AVX2: on the stack, as float32.

From there one instruction spreads an element over a register. Elements are smaller than in memory
by what makes up for the places of their weights (see `avx2_weights`): only those below 2^-98 lose
bits by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.products.avx2_weights import Weights
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.cpu.products.panels import BLOCK
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

arith = dialect("arith")

ROOM = 2**15
"""Elements of rows on the stack, beside what lies between rows."""

FEWEST = 2
"""Rows whose sums are of weights that are above what they mean: at most so many."""

WORD = emit.ITEM_SIZE["float32"]


class Left:
    """The rows of a block, of which a part along k is on the stack: `depth` elements at most.

    `span` elements along k are summed up at once.
    """

    def __init__(self, frame: host.Frame, lanes: int, weights: Weights, span: int) -> None:
        self._frame, self._lanes, self._weights, self._span = frame, lanes, weights, span
        self._k = frame.size(frame.spec.operands[0].shape[-1])
        self._elements = host.byte_buffer(ROOM * WORD + BLOCK * LINE, shared="left")
        self._above = host.byte_buffer(FEWEST * ROOM // span * WORD, shared="above")
        self._factors = _factors(weights, lanes)
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)

    def depth(self, height: Size) -> Size:
        """Elements along k, in whole spans, for which so many rows have room."""
        return sizes.floordiv(ROOM, height) // self._span * self._span

    def stage(self, rows: Rows, height: Size, depth: Size, start: Size, stop: Size) -> None:
        """Puts the elements from `start` to `stop - 1` of the first `height` rows on the stack.

        And of one row or two what is to be added to the sums of each span.
        """
        if self._weights.above:
            few = emit.compare("less_equal", emit.as_index(rows.height), FEWEST)
            for r in emit.loop(0, emit.select(few, emit.as_index(height), 0)):
                for first in emit.loop(start, stop, self._span):
                    end = first + self._span
                    (total,) = self._put(rows, r, depth, start, first, end, [self._zero])
                    value = crosslane.across(total, lambda a, b: a + b)
                    place = sizes.floordiv(first - start, self._span) * FEWEST + r
                    memory.store(value * -self._weights.above, self._above, place, "float32")
            height = emit.select(few, emit.index(0), emit.as_index(height))
        for r in emit.loop(0, height):
            self._put(rows, r, depth, start, start, stop, [])

    def _put(
        self,
        rows: Rows,
        r: Size,
        depth: Size,
        start: Size,
        first: Size,
        end: Size,
        totals: Sequence[Any],
    ) -> list[Any]:
        """Puts a row's elements from `first` to `end - 1` there, adding vectors of them to totals.

        Element `start` is the first one on the stack.
        """
        source, dtype = self._frame.inputs[0], self._frame.spec.operands[0].dtype
        row, target = (rows.row + r) * self._k, r * _apart(depth) - start

        def put(k: Any, *before: Any) -> list[Any]:
            value = memory.load(source, row + k, dtype, self._lanes)
            memory.store(value * self._factors, self._elements, target + k, "float32")
            return [total + value for total in before]

        return emit.carry(first, end, self._lanes, totals, put)

    def reader(self, top: Size, depth: Size) -> Any:
        """`at(r, k)`: element k on the stack of row `top + r`, in every lane."""
        apart = _apart(depth)
        first = top * apart

        def at(r: int, k: Any) -> Any:
            place = first + apart * r + k
            return emit.splat(memory.load(self._elements, place, "float32"), self._lanes)

        return at

    def above(self, height: int, done: Size) -> list[Any]:
        """What is to be added to the sums of one row or two, of the span at element `done`."""
        if height > FEWEST or not self._weights.above:
            return []
        first = sizes.floordiv(done, self._span) * FEWEST
        found = [memory.load(self._above, first + r, "float32") for r in range(height)]
        return [emit.splat(value, self._lanes) for value in found]


def _factors(weights: Weights, lanes: int) -> Any:
    """What makes up for the places of weights."""
    element = emit.register_type("float32")
    factors = [ir.FloatAttr.get(element, 2.0**-shift) for shift in weights.shifts]
    kind = emit.widen(element, lanes)
    return arith.constant(kind, ir.DenseElementsAttr.get(factors, kind))


def _apart(depth: Size) -> Size:
    """Elements from row to row on the stack: no power of two."""
    return depth + LINE // WORD
