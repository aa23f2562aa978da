"""Rows of bfloat16 as bytes, for AMX tiles of integers: each number is two of them.

In a span along k each number becomes a multiple of a power of two, 2^-15 of the next one above the
largest magnitude there: an integer of 16 bits, the sum of two signed bytes times 256 and 1. What is
at least 2^-7 of the largest magnitude is exact so (but for one number, see `LARGEST`), others are
rounded, within 2^-15 of it: all of 512 together, in the root of the sum of squares, by less than
bfloat16 rounds the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.sides import bytes_at
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.products.blocks import Rows
from heddle.kernels.mlir import dialect

arith, vector = dialect("arith"), dialect("vector")

DIGITS = 2
"""Bytes of a number."""

ROWS = TILE_ROWS // DIGITS
"""Rows whose digits fill a tile: a block of them."""

PIECE = 32
"""Elements along k that become bytes at once: two vectors of words."""

BITS, LARGEST = 15, 127 * 256 + 127
"""Of an integer, its sign aside, and the largest that is a sum of two signed bytes. The only number
above it is 32640, if its significand is all ones: it becomes the largest one."""

EXPONENT, INFINITE = 7, 0x7F80
"""Where the exponent of a bfloat16 begins, and the magnitude of infinity: those above are NaN."""

LEAST = 19
"""The least exponent of a largest magnitude, as it is stored, for which a scale is no denormal."""

ROUNDS, RAISED = 0x4B400000, 0x8080
"""The bits of 1.5 * 2^23, the last of which counts 1, and 128 in each byte of an integer."""

ORDER = tuple(first + i for first in range(0, PIECE, 8) for i in (0, 4, 1, 5, 2, 6, 3, 7))
"""That of elements beside 4-bit weights: of the eight in a word, those in the lower halves of its
bytes come first (see `pack_int4`)."""


class Digits:
    """The digits of up to so many `rows` on the stack; made in the function's entry block.

    They are in tiles of 16 rows by a step along k, `step` elements, of eight rows after those of
    the eight before. Row r of eight has rows 2 r and 2 r + 1 of them, its lower digit first, and a
    scale for each `span`: `apart` says by how many powers of two weights are too large. Weights of
    4 bits are `nibbles`.
    """

    def __init__(
        self, frame: host.Frame, k: int, step: int, span: int, rows: int, nibbles: bool, apart: int
    ) -> None:
        self._source, self._k, self._step, self._span = frame.inputs[0], k, step, span
        self._nibbles, self._apart = nibbles, apart
        self._block = TILE_ROWS * k
        self._room = host.byte_buffer(-(-rows // ROWS) * self._block, shared="left")
        self._scales = host.byte_buffer(k // span * TILE_ROWS * emit.ITEM_SIZE["float32"])

    def load(self, step: Any, block: int, rows: int) -> Any:
        """The tile of a step along k of a block of eight rows, so many of the tile's rows."""
        place = bytes_at(self._room, step * (self._step * TILE_ROWS) + block * self._block)
        return tiles.load(place, self._step, rows=rows, row=self._step)

    def row(self, row: Any, digit: int, step: Any) -> Any:
        """Where the row of a step's tile that has a digit of a row begins."""
        block, inside = row // ROWS, row % ROWS
        place = (step * TILE_ROWS + inside * DIGITS + digit) * self._step
        return bytes_at(self._room, block * self._block + place)

    def scale(self, row: Any, span: Any) -> Any:
        """That of a row's span, in every lane."""
        scale = memory.load(self._scales, span * TILE_ROWS + row, "float32")
        return emit.splat(scale, TILE_ROWS)

    def begin(self, rows: Rows, ask: Callable[[Any], None]) -> Any:
        """Puts the rows on the stack; returns whether all of their numbers are finite.

        Beside each span, `ask(number)` may ask for memory that is wanted next; they are numbered
        through all rows.
        """
        spans = self._k // self._span
        # Of rows that there are not: sums of whatever lies in their places are no denormals so.
        none = emit.constant(emit.register_type("float32"), 0, TILE_ROWS)
        for span in emit.loop(0, spans):
            memory.store(none, self._scales, span * TILE_ROWS, "float32")

        def of_row(row: Any, finite: Any) -> list[Any]:
            def of_span(span: Any, finite: Any) -> list[Any]:
                ask(row * spans + span)
                first = (rows.row + row) * self._k + span * self._span
                largest = self._largest(first)
                self._store(row, span, first, emit.maximum(largest >> EXPONENT, LEAST))
                return [emit.compare("less", largest, INFINITE) & finite]

            return emit.carry(0, spans, 1, [finite], of_span)

        true = emit.constant(emit.integer(1), 1)
        return emit.carry(0, rows.height, 1, [true], of_row)[0]

    def _largest(self, first: Any) -> Any:
        """The largest magnitude of a span, from element `first` on: its bits as an i32."""
        zero = emit.constant(emit.integer(16), 0, PIECE)

        def turn(i: Any, before: Any) -> list[Any]:
            bits = memory.load(self._source, first + i, "uint16", PIECE)
            return [emit.maximum(bits & 0x7FFF, before)]

        (found,) = emit.carry(0, self._span, PIECE, [zero], turn)
        return arith.extui(emit.integer(32), crosslane.across(found, emit.maximum))

    def _store(self, row: Any, span: Any, first: Any, exponent: Any) -> None:
        """Writes the digits of a span and its scale; `exponent` is that of bits as they are."""
        word, single = emit.integer(32), emit.register_type("float32")
        # A power of two by the bits of its exponent: magnitudes are below 2^(exponent - 126).
        factor = emit.bitcast((253 + BITS - exponent) << 23, single)
        scale = emit.bitcast((exponent - (BITS - 1 + self._apart)) << 23, single)
        memory.store(scale, self._scales, span * TILE_ROWS + row, "float32")
        factor = emit.splat(factor, TILE_ROWS)
        rounds = emit.bitcast(emit.constant(word, ROUNDS, TILE_ROWS), single)
        steps = self._span // self._step
        for step in emit.loop(0, steps):
            places = [self.row(row, d, span * steps + step) for d in range(DIGITS)]
            for piece in range(0, self._step, PIECE):
                words = []
                for half in (0, TILE_ROWS):
                    at = first + step * self._step + (piece + half)
                    value = memory.load(self._source, at, "bfloat16", TILE_ROWS)
                    bits = emit.bitcast(emit.fma(value, factor, rounds), word)
                    raised = emit.minimum(bits + (RAISED - ROUNDS), LARGEST + RAISED)
                    words.append(raised ^ RAISED)
                for place, digits in zip(places, _by_digit(*words), strict=True):
                    # In the order of weights.
                    ordered = crosslane.shuffle(digits, digits, ORDER) if self._nibbles else digits
                    memory.store(ordered, place, piece, "uint8", alignment=PIECE)


def joined(low: Any, high: Any) -> Any:
    """Sums of both digits' products as those of the numbers, in float32."""
    return convert.cast((high << 8) + low, "int32", "float32")


def _by_digit(low: Any, high: Any) -> list[Any]:
    """The bytes of two vectors of words: the first ones of all words, and the second ones."""
    byte, word = emit.integer(8), emit.integer(32)
    count = emit.lanes_of(low)
    # In each four words first, which costs one instruction: then their bytes are words themselves.
    order = [
        lane + 4 * i + d for lane in range(0, 4 * count, 16) for d in range(4) for i in range(4)
    ]
    turned = []
    for value in (low, high):
        value = vector.bitcast(emit.widen(byte, 4 * count), value)
        value = crosslane.shuffle(value, value, order)
        turned.append(vector.bitcast(emit.widen(word, count), value))
    found = []
    for digit in range(DIGITS):
        digits = crosslane.shuffle(turned[0], turned[1], range(digit, 2 * count, 4))
        found.append(vector.bitcast(emit.widen(byte, 2 * count), digits))
    return found
