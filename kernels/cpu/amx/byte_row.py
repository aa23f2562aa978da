"""One row as bytes (see `digits`) by weights of 4 bits, in registers.

A tile of sums is stored for each group, which takes one row as long as eight. Dot products of bytes
leave them in registers. One side of these has no sign, so weights are raised by 8, as they are in
memory, and sums begin with what that adds, taken off. Numbers, scales and the order of sums are
those of several rows (see `byte_sums`), and so are the results, bit by bit, unless scales of
weights are so small or large that a factor of 16 counts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory
from heddle.kernels.cpu.amx.byte_sums import HALVES, UPPER, ByteSums, Cut
from heddle.kernels.cpu.amx.digits import DIGITS, Digits, joined
from heddle.kernels.cpu.amx.sides import WORD
from heddle.kernels.cpu.amx.tiles import TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products import integers
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.sizes import Size

RAISED = 8
"""What a weight is more in memory."""

NIBBLES, LOWER = 2, 0x0F0F0F0F
"""Weights of a byte, and the lower ones of a word."""

Ask = Callable[[Size, int], None]
"""`ask(step, byte)` asks for what comes later than the line at a byte of a step's weights."""


class ByteRow:
    """The sums of a row by panels; made in the entry block."""

    def __init__(
        self, frame: host.Frame, cut: Cut, step: int, digits: Digits, sums: ByteSums
    ) -> None:
        """A step is `step` elements along k."""
        self._weights, self._cut, self._step = frame.inputs[1], cut, step
        self._digits, self._sums = digits, sums
        self._begins = host.byte_buffer(cut.steps // cut.along * WORD)

    def begin(self) -> None:
        """Computes what sums begin with, from the digits on the stack."""
        word = emit.integer(32)
        for span in emit.loop(0, self._cut.steps // self._cut.along):

            def add(step: Any, total: Any) -> list[Any]:
                for digit in range(DIGITS):
                    place = self._digits.row(0, digit, step)
                    for first in range(0, self._step, TILE_ROWS):
                        value = memory.load(place, first, "int8", TILE_ROWS)
                        value = convert.cast(value, "int8", "int32")
                        total += value << (8 * digit) if digit else value
                return [total]

            zero = emit.constant(word, 0, TILE_ROWS)
            start = span * self._cut.along
            (total,) = emit.carry(start, start + self._cut.along, 1, [zero], add)
            taken = crosslane.across(total, operator.add) * -RAISED
            memory.store(taken, self._begins, span, "int32")

    def multiply(self, start: Size, totals: Any, ask: Ask) -> None:
        """Writes the totals of the panel from a step on, which are counted through all panels."""
        cut = self._cut
        zeros = [emit.constant(emit.register_type("float32"), 0, TILE_ROWS)] * HALVES

        def add_digits(inside: Any, *before: Any) -> list[Any]:
            def add_span(first: Any, *before: Any) -> list[Any]:
                found = self._products(start + first, first, ask)
                scales = self._sums.scales_at(start + first)
                return [emit.fma(*each) for each in zip(found, scales, before, strict=True)]

            found = emit.carry(inside, inside + cut.digits, cut.along, zeros, add_span)
            # That of rows whose weights are upper halves of bytes.
            scale = self._digits.scale(0, inside // cut.digits) * float(1 << UPPER)
            return [emit.fma(f, scale, b) for f, b in zip(found, before, strict=True)]

        found = emit.carry(0, cut.steps, cut.digits, zeros, add_digits)
        for half, total in enumerate(found):
            memory.store(total, totals, half * TILE_ROWS, "float32", alignment=TILE_ROW)

    def _products(self, first: Size, inside: Size, ask: Ask) -> list[Any]:
        """The sums of a span, of half a panel each; `inside` is its first step in the row."""
        begin = memory.load(self._begins, inside // self._cut.along, "int32")
        zero = emit.constant(emit.integer(32), 0, TILE_ROWS)
        # Those of lower and upper halves of bytes apart: an addition takes as long as several.
        before = [zero] * (HALVES * DIGITS * NIBBLES)
        before[0] = before[DIGITS * NIBBLES] = emit.splat(begin, TILE_ROWS)

        def add_step(number: Any, *before: Any) -> list[Any]:
            left = [self._digits.row(0, digit, inside + number) for digit in range(DIGITS)]
            return self._add(list(before), first + number, left, ask)

        found = emit.carry(0, self._cut.along, 1, before, add_step)
        halves = (found[: len(found) // 2], found[len(found) // 2 :])
        return [
            joined(*(reduce(operator.add, sums[digit::DIGITS]) for digit in range(DIGITS)))
            for sums in halves
        ]

    def _add(self, sums: list[Any], step: Size, left: Sequence[Any], ask: Ask) -> list[Any]:
        """Adds the products of a step, whose digits are `left`."""
        size = self._step * PANEL // NIBBLES
        for line in range(0, size, TILE_ROW):
            ask(step, line)
            word, half = line // (HALVES * TILE_ROW), line // TILE_ROW % HALVES
            place = step * (size // WORD) + line // WORD
            bits = memory.load(self._weights, place, "uint32", TILE_ROWS)
            for nibble, value in enumerate((bits & LOWER, bits >> 4 & LOWER)):
                for digit, row in enumerate(left):
                    own = memory.load(row, NIBBLES * word + nibble, "uint32")
                    at = (half * NIBBLES + nibble) * DIGITS + digit
                    own = emit.splat(own, TILE_ROWS)
                    sums[at] = integers.dots(sums[at], value, own)
        return sums
