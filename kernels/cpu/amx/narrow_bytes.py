"""Up to eight rows of bfloat16 by int8 and 4-bit weights in AMX tiles of bytes.

Rows are sums of bytes (see `digits`), so that weights are multiplied as integers: int8 as it lies
in memory, 4 bits as bytes on the stack, which takes a few instructions, where to widen them to
bfloat16 would take most of the time. Sums of integers are exact. When a span of a group ends, the
sums of a row's two bytes become one number, which is scaled. Two spans take turns: a tile that is
stored while it is still being computed would hold up the products behind it, and sums are scaled
beside the products of others.

Infinities and NaN are no sums of bytes: rows beside them take another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from heddle.kernels import convert, emit, host, memory, sizes
from heddle.kernels.cpu.amx import groups, tiles
from heddle.kernels.cpu.amx.digits import DIGITS, Digits
from heddle.kernels.cpu.amx.sides import PANEL_ROW, WORD, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.memory import LINE, Ask
from heddle.kernels.sizes import Size

Beside = Callable[[Any], None]
"""What is done beside a product, by its number: two in each step."""

MOST = TILE_ROWS // DIGITS
"""Rows whose digits fill a tile. More of them are faster where weights are widened."""

LEAST = {"int8": 2, "uint32": 1}
"""How many rows are multiplied so at least, by the dtype of weights: one is faster in registers by
int8, which becomes float32 there, but not by 4 bits."""

DEEP = 2**14
"""Elements of a row whose digits lie on the stack, at most: 256 KiB of eight rows."""

SPAN = 256
"""Elements along k whose sums are taken at once, at most: those of both digits fit 32 bits so."""

ROOM = 2 * TILE
"""Bytes of the sums of a panel."""

RAISED = 4
"""By how many powers of two weights of 4 bits are too large: each is the upper half of a byte."""

BEFORE, SLOTS = 2, 4
"""Steps from what is multiplied to what becomes bytes, and how many have room."""

ASKS = (Ask(1, 6 << 10), Ask(2, 24 << 10), 4)
"""What is asked for beside what is read: of the first cache each line, and of the second one, which
fetches those between by itself, one line in so many."""

CLOSER = (Ask(1, 3 << 10), Ask(2, 16 << 10), 1)
"""The same beside 4 bits whose groups fill rows of tiles."""


def takes(frame: host.Frame) -> bool:
    """Whether the weights are integers, and the digits of rows can lie on the stack."""
    k = frame.size(frame.spec.operands[0].shape[-1])
    if frame.spec.operands[1].dtype not in LEAST or not isinstance(k, int) or not 0 < k <= DEEP:
        return False
    return _along(k, frame.spec.attr("group")) is not None


class Few:
    """The sums of a few rows by panels; made in the function's entry block."""

    def __init__(self, frame: host.Frame, tasks: Tasks) -> None:
        spec = frame.spec
        k, group = frame.size(spec.operands[0].shape[-1]), spec.attr("group")
        assert isinstance(k, int)
        self._weights, self._scales = frame.inputs[1:3]
        self._dtype, self._tasks = spec.operands[2].dtype, tasks
        self._nibbles = spec.operands[1].dtype == "uint32"
        along = _along(k, group)
        assert along is not None
        step = math.gcd(along, TILE_ROW)
        self._step, self._steps, self._along = step, k // step, along // step
        self._groups, self._group = k // group, group // step
        self._size = step * PANEL // (2 if self._nibbles else 1)
        self._asks = CLOSER if self._nibbles and step == TILE_ROW else ASKS
        apart = RAISED if self._nibbles else 0
        self._digits = Digits(frame, k, step, 2 * along, self._nibbles, apart)
        self._bytes = host.byte_buffer(SLOTS * step * PANEL) if self._nibbles else None
        self._ahead = max(1, groups.SCALES // (self._group * self._size)) * PANEL
        self._sums = host.byte_buffer(2 * ROOM)
        self._totals = host.byte_buffer(MOST * PANEL_ROW)

    def begin(self, rows: Rows, first: Size) -> Any:
        """Puts the rows on the stack; returns whether all of their numbers are finite.

        Meanwhile the first of their panels is asked for: half of it beside eight rows.
        """
        start = (rows.panel + first) * self._steps * self._size
        share = max(1, 2 * self._along * self._size // LINE // 16)

        def ask(span: Any) -> None:
            for line in range(share):
                place = start + (span * share + line) * LINE
                memory.prefetch(self._weights, place, "int8", level=2)

        return self._digits.begin(rows, ask)

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        begin, end = ((rows.panel + panel) * self._steps for panel in (first, last))
        if self._nibbles:
            for step in range(BEFORE):
                for quarter in range(4):
                    self._beside(sizes.least(begin + step, end - 1), quarter)
        for block in self._tasks.written(rows, first, last, self._totals):
            self._multiply(rows, block.panel, end)

    def _multiply(self, rows: Rows, panel: Size, end: Size) -> None:
        """Emits the totals of a panel; the last one of which bytes are made ends before `end`."""
        begin = panel * self._steps

        def add_step(beside: Beside | None, step: Size, *before: Any) -> list[Any]:
            place = begin + step
            ahead = sizes.least(place + BEFORE, end - 1) if self._nibbles else place
            left = self._digits.load(step)
            found = []
            for half, total in enumerate(before):
                self._beside(ahead, 2 * half)
                right = self._right(place, half)
                self._beside(ahead, 2 * half + 1)
                found.append(tiles.multiply("int8", total, left, right, self._step))
                if beside is not None:
                    beside(2 * step + half)
            return found

        def products(first: Size, beside: Beside | None = None) -> list[Any]:
            zeros = [tiles.zero(), tiles.zero()]
            step = partial(add_step, beside)
            return emit.carry(first, first + self._along, 1, zeros, step)

        def add_pair(first: Size, *before: Any) -> list[Any]:
            earlier, second = products(first), first + self._along
            self._store(before, ROOM)
            some = emit.compare("greater", first, 0)
            start = emit.select(some, first - 2 * self._along, 0)
            height = emit.select(some, emit.as_index(rows.height), 0)
            scale, share = self._scaling(panel, start, height), -(-MOST // (2 * self._along))

            def beside(turn: Any) -> None:
                top = (turn - 2 * second) * share
                scale(top, top + share)

            later = products(second, beside)
            self._store(earlier, 0)
            return later

        self._clear(rows.height)
        last = emit.carry(0, self._steps, 2 * self._along, [tiles.zero(), tiles.zero()], add_pair)
        self._store(last, ROOM)
        start = emit.index(self._steps - 2 * self._along)
        self._scaling(panel, start, rows.height)(0, MOST)

    def _clear(self, height: Size) -> None:
        """Clears the totals of so many rows."""
        zero = emit.constant(emit.register_type("float32"), 0, TILE_ROWS)
        for place in emit.loop(0, height * PANEL, TILE_ROWS):
            memory.store(zero, self._totals, place, "float32", alignment=TILE_ROW)

    def _store(self, found: Sequence[Any], apart: int) -> None:
        """Stores the sums of a panel from byte `apart` of their room on."""
        for half, total in enumerate(found):
            tiles.store(total, bytes_at(self._sums, apart + half * TILE), TILE_ROW)

    def _scaling(self, panel: Size, first: Any, height: Size) -> Callable[[Size, Size], None]:
        """What adds sums of rows from one to before another, times their scales, to the totals.

        They are both that are stored, which begin with step `first` of the panel, and of which
        there are those of `height` rows.
        """
        scales: list[Any] = []
        for step in (first, first + self._along):
            place = (panel * self._groups + step // self._group) * PANEL
            groups.ask(self._scales, place + self._ahead, self._dtype)
            halves = (place, place + TILE_ROWS)
            scales += [memory.load(self._scales, at, self._dtype, TILE_ROWS) for at in halves]

        def add(top: Size, bottom: Size) -> None:
            for r in emit.loop(sizes.least(top, height), sizes.least(bottom, height)):
                self._add_row(r, first // (2 * self._along), scales)

        return add

    def _add_row(self, r: Any, span: Any, scales: Sequence[Any]) -> None:
        """Adds both sums of a row that are stored, which are in one span of it."""
        of_row = self._digits.scale(r, span)
        for half in range(2):
            found: Any = None
            for number in (half, half + 2):
                place = (number * TILE_ROWS + r * DIGITS) * TILE_ROWS
                low, high = (
                    memory.load(self._sums, place + digit * TILE_ROWS, "int32", TILE_ROWS)
                    for digit in range(DIGITS)
                )
                value = convert.cast((high << 8) + low, "int32", "float32")
                scale = scales[number]
                found = value * scale if found is None else emit.fma(value, scale, found)
            at = r * PANEL + half * TILE_ROWS
            total = memory.load(self._totals, at, "float32", TILE_ROWS)
            total = emit.fma(found, of_row, total)
            memory.store(total, self._totals, at, "float32", alignment=TILE_ROW)

    def _right(self, step: Size, half: int) -> Any:
        """A half of a step's weights, counted through all panels."""
        words, size = self._step // WORD, self._step * PANEL
        if self._nibbles:
            place = step % SLOTS * size + half * (size // 2)
            return tiles.load(bytes_at(self._bytes, place), TILE_ROW, rows=words)
        place = step * size + half * TILE_ROW
        return tiles.load(bytes_at(self._weights, place), PANEL_ROW, rows=words)

    def _beside(self, step: Size, quarter: int) -> None:
        """What is done beside a tile: of a quarter of a step's lines.

        They are asked for, and of weights of 4 bits, which come later, bytes are made.
        """
        near, far, apart = self._asks
        for line in range(quarter * self._size // 4, (quarter + 1) * self._size // 4, LINE):
            place = step * self._size + line
            near.beside(self._weights, place, "int8")
            if line % (apart * LINE) == 0:
                far.beside(self._weights, place, "int8")
            if self._nibbles:
                self._part(step, line)

    def _part(self, step: Size, line: int) -> None:
        """Makes bytes of a line of weights of 4 bits, counted in bytes of a step.

        Rows of a tile are the lower halves of a word's bytes and its upper ones, in turns. In the
        upper half of a byte, the highest bit the other way round, it is 16 times the number itself.
        """
        word, half = line // PANEL_ROW, line // TILE_ROW % 2
        place = bytes_at(self._bytes, step % SLOTS * (self._step * PANEL))
        at = step * (self._size // WORD) + line // WORD
        value = memory.load(self._weights, at, "uint32", TILE_ROWS)
        for upper, bits in enumerate((value << RAISED, value)):
            row = half * (self._step // WORD) + 2 * word + upper
            number = (bits & 0xF0F0F0F0) ^ 0x80808080
            memory.store(number, place, row * TILE_ROWS, "uint32", alignment=TILE_ROW)


def _along(k: int, group: int) -> int | None:
    """Elements along k whose sums are taken at once: a row has an even number of such spans."""
    fits = (s for s in range(SPAN, 0, -TILE_ROW // 2) if group % s == 0 and k // s % 2 == 0)
    return next(fits, None)
