"""Up to 8 rows of bfloat16 by 4-bit weights, up to 16 by int8, in AMX tiles of bytes.

Rows are sums of bytes (see `digits`), so that weights are multiplied as integers: int8 as it lies
in memory, 4 bits as bytes on the stack, which takes a few instructions, where to widen them to
bfloat16 would take most of the time. Sums of integers are exact (see `byte_sums`; for one row by 4
bits, which takes registers instead of tiles, `byte_row`).

Infinities and NaN are no sums of bytes: rows beside them take another way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx import tiles
from heddle.kernels.cpu.amx.byte_row import ByteRow
from heddle.kernels.cpu.amx.byte_sums import HALVES, UPPER, Acts, ByteSums, Cut, Multiply
from heddle.kernels.cpu.amx.digits import DIGITS, ROWS, Digits
from heddle.kernels.cpu.amx.sides import PANEL_ROW, WORD, bytes_at
from heddle.kernels.cpu.amx.tiles import TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.memory import LINE, Ask, Asks
from heddle.kernels.sizes import Size

LEAST = {"int8": 2, "uint32": 1}
"""How many rows are multiplied so at least, by the dtype of weights: one by int8 is faster as
float32."""

DEEP = 2**14
"""Elements of a row whose digits lie on the stack, at most: 512 KiB of 16 rows."""

SUMMED = 256
"""Elements along k whose sums are taken at once, at most: those of both digits fit 32 bits so."""

SPAN = 512
"""Elements along k that are multiples of the same number, where twice as many are not summed."""

HEIGHTS = (2, 4, ROWS, 2 * ROWS)
"""Rows that there is code for: fewer of them are multiplied as so many."""

QUARTERS, STRAIGHT = 4, 2
"""Parts of a step, between its loads and products, and steps that are emitted one by one: beside
them something else is done."""

BEFORE, SLOTS = 2, 4
"""Steps from what is multiplied to what becomes bytes, and how many have room."""

ASKS: Asks = ((Ask(1, 6 << 10), 1), (Ask(2, 24 << 10), 4))
"""What is asked for beside weights. The second cache fetches lines between those that it is asked
for by itself."""

OF_NIBBLES: Asks = ((Ask(1, 2 << 10), 1), (Ask(1, 2 << 10), 1))
"""The same beside 4 bits: asked for once, lines from memory took up to a third longer; why was not
found."""

OF_ONE: Asks = ((Ask(1, 12 << 10), 1), (Ask(2, 16 << 10), 1))
"""The same beside one row."""


def most(frame: host.Frame) -> int:
    """How many rows are multiplied so at most; 0 where none can be.

    The weights have to be integers, and the digits of rows to lie on the stack.
    """
    dtype, k = frame.spec.operands[1].dtype, frame.size(frame.spec.operands[0].shape[-1])
    if dtype not in LEAST or not isinstance(k, int) or not 0 < k <= DEEP:
        return 0
    return most_of(dtype, k, frame.spec.attr("group"))


def most_of(dtype: str, k: int, group: int) -> int:
    """The same for rows of so many elements; more are faster by weights that are widened.

    Twice as many by int8, if groups fill rows of tiles: else what their sums take decides.
    """
    along = _along(k, group)
    if along is None:
        return 0
    return HEIGHTS[-1] if dtype == "int8" and along % TILE_ROW == 0 else ROWS


class Few:
    """The sums of a few rows by panels; made in the function's entry block."""

    def __init__(self, frame: host.Frame, tasks: Tasks) -> None:
        spec = frame.spec
        k, group = frame.size(spec.operands[0].shape[-1]), spec.attr("group")
        assert isinstance(k, int)
        self._weights, self._tasks = frame.inputs[1], tasks
        self._nibbles = spec.operands[1].dtype == "uint32"
        along = _along(k, group)
        assert along is not None
        self._step = step = math.gcd(along, TILE_ROW)
        turn = 2 * along
        spans = range(max(SPAN // turn, 1) * turn, 0, -turn)
        span = next(s for s in spans if k % s == 0)
        self._cut = Cut(k // step, group // step, along // step, span // step)
        self._size = step * PANEL // (2 if self._nibbles else 1)
        self._asks = OF_NIBBLES if self._nibbles else ASKS
        self._possible = _possible(most(frame), tasks)
        rows = max((height for _, height in self._possible), default=ROWS)
        raised = UPPER if self._nibbles else 0
        self._digits = Digits(frame, k, step, span, rows, self._nibbles, raised)
        self._bytes = host.byte_buffer(SLOTS * step * PANEL) if self._nibbles else None
        self._sums = ByteSums(frame, self._cut, self._digits, rows, self._size)
        one = self._nibbles and 1 in tasks.heights
        self._row = ByteRow(frame, self._cut, step, self._digits, self._sums) if one else None

    def begin(self, rows: Rows, first: Size) -> Any:
        """Puts the rows on the stack; returns whether all of their numbers are finite.

        Meanwhile the first of their panels is asked for: half of it beside eight rows.
        """
        start = (rows.panel + first) * self._cut.steps * self._size
        share = max(1, self._cut.digits * self._size // LINE // 16)

        def ask(span: Any) -> None:
            for line in range(share):
                place = start + (span * share + line) * LINE
                memory.prefetch(self._weights, place, "int8", level=2)

        finite = self._digits.begin(rows, ask)
        if self._row:
            with emit.when(_is_one(rows)):
                self._row.begin()
        return finite

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        if self._row is None:
            self._compute_several(rows, first, last)
            return
        one = _is_one(rows)
        with emit.when(one):
            self._compute_one(self._row, rows, first, last)
        with emit.when(one ^ 1):
            self._compute_several(rows, first, last)

    def _compute_one(self, row: ByteRow, rows: Rows, first: Size, last: Size) -> None:
        totals = self._sums.totals(0)
        for block in self._tasks.written(rows, first, last, totals):
            row.multiply(block.panel * self._cut.steps, totals, partial(self._ask, OF_ONE))

    def _compute_several(self, rows: Rows, first: Size, last: Size) -> None:
        if not self._possible:
            return
        begin, end = ((rows.panel + panel) * self._cut.steps for panel in (first, last))
        if self._nibbles:
            for step in range(BEFORE):
                for quarter in range(QUARTERS):
                    self._beside(sizes.least(begin + step, end - 1), quarter)
        for panel in emit.loop(first, last, self._sums.panels):
            count = sizes.least(emit.index(self._sums.panels), last - panel)
            start = (rows.panel + panel) * self._cut.steps
            stop = start + count * self._cut.steps
            for number in emit.loop(0, count):
                self._tasks.ask(self._tasks.block(rows, panel + number))
            for height, is_it in self._heights(rows):
                multiply = self._multiplying(height, end)
                with is_it, host.called(f"rows_{height}"):
                    self._sums.add_up(height, start, stop, multiply)
            for number in emit.loop(0, count):
                block = self._tasks.block(rows, panel + number)
                self._tasks.write(block, self._sums.totals(number))

    def _heights(self, rows: Rows) -> Iterator[tuple[int, AbstractContextManager[None]]]:
        """The `HEIGHTS` that these rows may need, each with what is emitted where they do."""
        for least, height in self._possible:
            if len(self._possible) == 1:
                yield height, nullcontext()
                continue
            count = emit.as_index(rows.height)
            within = emit.compare("less_equal", count, height)
            yield height, emit.when(emit.compare("greater", count, least) & within)

    def _multiplying(self, height: int, end: Size) -> Multiply:
        """What multiplies so many rows; the last step that is made of bytes is before `end`."""
        rows, along = DIGITS * min(height, ROWS), self._cut.along
        blocks = -(-height // ROWS)

        def add_step(step: Size, totals: Sequence[Any], shares: Iterator[Acts]) -> list[Any]:
            ahead = sizes.least(step + BEFORE, end - 1) if self._nibbles else step
            along, right = step % self._cut.steps, None
            left = [self._digits.load(along, block, rows) for block in range(blocks)]
            found = list(totals)
            for quarter in range(QUARTERS):
                self._beside(ahead, quarter)
                for act in next(shares, ()):
                    act()
                half, loaded = divmod(quarter, 2)
                if not loaded:
                    right = self._right(step, half)
                    continue
                for block, tile in enumerate(left):
                    at = block * HALVES + half
                    found[at] = tiles.multiply("int8", found[at], tile, right, self._step, rows)
            return found

        def rest(step: Size, *totals: Any) -> list[Any]:
            return add_step(step, totals, iter(()))

        def multiply(first: Size, acts: Acts) -> Sequence[Any]:
            found: Sequence[Any] = [tiles.zero(rows) for _ in range(blocks * HALVES)]
            straight = min(along, STRAIGHT)
            places = straight * QUARTERS
            ends = [n * len(acts) // places for n in range(places + 1)]
            shares = iter([acts[a:b] for a, b in pairwise(ends)])
            for number in range(straight):
                found = add_step(first + number, found, shares)
            if along == straight:
                return found
            return emit.carry(first + straight, first + along, 1, found, rest)

        return multiply

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
        share = self._size // QUARTERS
        for line in range(quarter * share, (quarter + 1) * share, LINE):
            self._ask(self._asks, step, line)
            if self._nibbles:
                self._part(step, line)

    def _ask(self, asks: Asks, step: Size, line: int) -> None:
        """Asks for what comes later than a line, counted in bytes of a step."""
        memory.ask_beside(asks, self._weights, step * self._size, line)

    def _part(self, step: Size, line: int) -> None:
        """Makes bytes of a line of weights of 4 bits, counted in bytes of a step.

        Rows of a tile are the lower halves of a word's bytes and its upper ones, in turns. In the
        upper half of a byte, the highest bit the other way round, it is 16 times the number itself.
        """
        word, half = line // PANEL_ROW, line // TILE_ROW % 2
        place = bytes_at(self._bytes, step % SLOTS * (self._step * PANEL))
        at = step * (self._size // WORD) + line // WORD
        value = memory.load(self._weights, at, "uint32", TILE_ROWS)
        for upper, bits in enumerate((value << UPPER, value)):
            row = half * (self._step // WORD) + 2 * word + upper
            number = (bits & 0xF0F0F0F0) ^ 0x80808080
            memory.store(number, place, row * TILE_ROWS, "uint32", alignment=TILE_ROW)


def _is_one(rows: Rows) -> Any:
    return emit.compare("equal", emit.as_index(rows.height), 1)


def _possible(most: int, tasks: Tasks) -> list[tuple[int, int]]:
    """The `HEIGHTS` up to `most` that several rows may need, each behind the one below it."""
    pairs = pairwise((1, *(height for height in HEIGHTS if height <= most)))
    return [p for p in pairs if any(p[0] < height <= p[1] for height in tasks.heights)]


def _along(k: int, group: int) -> int | None:
    """Elements along k whose sums are taken at once: a row has an even number of such spans."""
    fits = (s for s in range(SUMMED, 0, -TILE_ROW // 2) if group % s == 0 and k // s % 2 == 0)
    return next(fits, None)
