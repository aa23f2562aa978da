"""Weights of 8 and 4 bits as float32 on AVX2, eight along k of a vector of columns.

Two instructions widen an integer: one clears what lies beside it in its word, the other converts
the word. So it is a power of two larger than the weight, by its place in the word, and rows are
smaller by as much. Integers of 4 bits are above what they mean, by 8, which a third instruction
takes off. For one row or two, whose time is that of widening, sums are corrected instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from heddle.kernels import convert, crosslane, emit, host, memory
from heddle.kernels.cpu import _float8
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.cpu.products.narrow_weights import STEP, TOGETHER
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")


class Weights(Protocol):
    """How the weights of a dtype are widened.

    Attributes:
        bytes: What a step takes of a panel.
        shifts: By which power of two each weight of a step is larger than it means.
        above: How much the numbers in memory are above what they mean.
        few: Rows of a tile for which they are widened in registers, at most.
        twice: Whether that takes so little that two such tiles are better than weights that are
            widened once, on the stack, and one row is by two panels.
    """

    bytes: int
    shifts: tuple[int, ...]
    above: int
    few: int
    twice: bool

    def words(self, panel: Size, k: Size, column: int) -> list[Any]:
        """A step of a vector of a panel's columns, as it lies in memory."""

    def row(self, words: Sequence[Any], number: int, exact: bool) -> Any:
        """Element `number` along k of each column, as float32, `exact` or `above` what it means."""


class _Words:
    """Words of 32 bits for each column, with `together` weights along k."""

    together = TOGETHER
    above = 0
    few = 5
    twice = True

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._weights, self._lanes = frame.inputs[1], lanes
        self._dtype = frame.spec.operands[1].dtype
        self._k = frame.size(frame.spec.operands[0].shape[-1])
        self.bytes = STEP // self.together * PANEL * emit.ITEM_SIZE["uint32"]

    def words(self, panel: Size, k: Size, column: int) -> list[Any]:
        """A step of a vector of a panel's columns."""
        first = (panel * self._k + k) // self.together * PANEL + column
        places = [first + i * PANEL for i in range(STEP // self.together)]
        return [memory.load(self._weights, place, "uint32", self._lanes) for place in places]


class _Bytes(_Words):
    """int8: the highest byte of a word, whose sign is then the word's."""

    shifts = (24,) * STEP

    def row(self, words: Sequence[Any], number: int, exact: bool) -> Any:
        """Element `number` along k of each column, as float32."""
        word, byte = words[number // self.together], number % self.together
        count = 4 * self._lanes
        parts = vector.bitcast(emit.widen(emit.integer(8), count), word)
        zero = emit.constant(emit.integer(8), 0, count)
        order = [i - 3 + byte if i % 4 == 3 else count for i in range(count)]
        highest = vector.bitcast(word.type, crosslane.shuffle(parts, zero, order))
        return convert.cast(highest, "int32", "float32")


class _Nibbles(_Words):
    """4 bits, a word for eight along k, the even ones in its lower half (see `pack_int4`)."""

    together = STEP
    above = 8
    shifts = tuple((4 * (i // 2) + 16 * (i % 2)) % 28 for i in range(STEP))

    def row(self, words: Sequence[Any], number: int, exact: bool) -> Any:
        """Element `number` along k of each column, as float32."""
        shift = self.shifts[number]
        # The highest bits would be a sign.
        highest = number == STEP - 1
        bits = words[0] >> 28 if highest else words[0] & (15 << shift)
        value = convert.cast(bits, "int32", "float32")
        return value - self.above * 2.0**shift if exact else value


class _Floats(_Words):
    """Floats of 8 bits, by their bfloat16, which takes many instructions."""

    few = 4
    twice = False
    shifts = (0,) * STEP

    def row(self, words: Sequence[Any], number: int, exact: bool) -> Any:
        """Element `number` along k of each column, as float32."""
        word, place = words[number // self.together], number % self.together
        pair = _float8.halves(word, self._dtype)[place % 2]
        return convert.half(pair, place // 2) * _float8.SCALE[self._dtype]


WEIGHTS: dict[str, Any] = {
    "int8": _Bytes,
    "uint32": _Nibbles,
    "float8_e4m3fn": _Floats,
    "float8_e5m2": _Floats,
}
"""How weights are widened, by their dtype."""
