"""Numbers as sums of bfloat16, for AMX tiles: rows of a on the stack, and panels of b.

A float32 has 24 bits of significand. Its upper 8 with its exponent are a bfloat16, so are the next
8 and the last 8, and the three add up to it exactly; a float16 is the sum of two. Bits are cut off
and not rounded, so that no part overflows. Tiles take denormals for zero: of numbers below
2**-110 the last bits are lost.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.amx.sides import ALONG, STEP, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR, TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

vector = dialect("vector")

PARTS = {"float32": 3, "float16": 2, "bfloat16": 1}
"""How many bfloat16 add up to a number, by its dtype."""

ORDER = ((2, 0), (1, 1), (1, 0), (0, 2), (0, 1), (0, 0))
"""Parts of both sides that are multiplied, the smallest products first. One of the first side stays
in its tiles, one of the second is loaded for each: where both stay in turns, LLVM spills tiles."""

UNITS = 2 * TILE_ROWS
"""Units of a step of a panel: two elements along k of half its columns."""

TOGETHER = 4
"""Steps of a row that are split together: more would lie in too few sets of the first cache."""

MANY, FEW = ((2, 2, 1),), ((1, 1, 1), (2, 8, 4))
"""What is asked for beside a step that is split: the level of cache, how many steps behind it, and
one line in how many. A few rows, which are bound by reading b, ask both caches; the second one
fetches the lines between by itself."""


def split(value: Any, parts: int) -> list[Any]:
    """The parts of float32, the greatest first: each in the upper half of a word.

    Below the last part are zeros, if so many parts add up to the number, and of an infinite or a
    NaN all that follow the first one are NaN.
    """
    found = []
    for number in range(parts):
        bits = emit.bitcast(value, emit.integer(32))
        found.append(bits)
        if number + 1 < parts:
            value = value - emit.bitcast(bits & convert.HIGH, emit.register_type("float32"))
    return found


def no_number(value: Any) -> Any:
    """Bits that are set where a float32 is infinite or a NaN, which have no parts."""
    return emit.bitcast(value - value, emit.integer(32))


def is_any(found: Any) -> Any:
    """Whether a bit is set in any lane."""
    return emit.compare("not_equal", crosslane.across(found, operator.or_), 0)


class Left:
    """Rows of float32 on the stack, so many steps at a time: of each step part by part.

    A part is a pair of tiles; what lies beyond k is zero. There is room for `steps` of a pair, and
    pairs are `depth` steps apart.
    """

    def __init__(self, a: Any, k: Size, height: int, depth: int, steps: int) -> None:
        self._a, self._k = a, k
        self._step = PARTS["float32"] * STEP
        self._pair = depth * self._step
        room = max(steps, height // PAIR * depth) * self._step
        self._room = host.byte_buffer(room, shared="left")

    def begin(self, rows: Rows, start: Size, stop: Size) -> None:
        """Puts the steps from `start` to `stop - 1` on the stack."""
        self._start = start
        whole = sizes.floordiv(self._k, ALONG)
        for first in emit.loop(start, stop, TOGETHER):
            last = sizes.least(first + TOGETHER, stop)
            full = sizes.least(last, whole)
            for r in emit.loop(0, rows.height):
                source = (rows.row + r) * self._k
                place = r // PAIR * self._pair + r % PAIR * TILE_ROW
                for begin, end, ends in ((first, full, False), (full, last, True)):
                    for step in emit.loop(begin, end):
                        left = self._k - step * ALONG if ends else None
                        self._put(source + step * ALONG, place + (step - start) * self._step, left)

    def _put(self, source: Size, place: Size, left: Size | None) -> None:
        """Writes a step of a row; of its elements so many are `left`, or all."""
        halves = []
        for first in (0, TILE_ROWS):
            mask = None if left is None else host.first_lanes(left - first, TILE_ROWS)
            value = memory.load(self._a, source + first, "float32", TILE_ROWS, mask)
            halves.append(split(value, PARTS["float32"]))
        kind = ir.VectorType.get([2 * TILE_ROWS], emit.integer(16))
        for number, words in enumerate(zip(*halves, strict=True)):
            low, high = (vector.bitcast(kind, each) for each in words)
            part = crosslane.shuffle(low, high, range(1, 4 * TILE_ROWS, 2))
            target = bytes_at(self._room, place + number * STEP)
            memory.store(part, target, 0, "uint16", alignment=TILE_ROW)

    def tile(self, top: Size, step: Size, part: int, number: int) -> Any:
        """The pointer to tile 0 or 1 of a part of the pair of tiles from row `top` on."""
        place = top // PAIR * self._pair + (step - self._start) * self._step
        return bytes_at(self._room, place + (part * STEP + number * TILE))


@dataclass(frozen=True)
class Source:
    """Where a step of a panel lies, and how many elements along k are there from it on."""

    at: Any
    left: Size


class Right:
    """Panels of b, some steps of which are split on the stack; made in the entry block.

    There is room for `steps` of them, each in the place of the one that came so many before it.
    """

    def __init__(self, b: Any, dtype: str, k: Size, steps: int) -> None:
        self._b, self._dtype, self._k = b, dtype, k
        self.parts = PARTS[dtype]
        self._step, self._steps = self.parts * STEP, steps
        self._room = host.byte_buffer(steps * self._step, shared="right")
        self._zero = None
        if not isinstance(k, int) or k % ALONG > 0:
            self._zero = host.byte_buffer(PANEL * emit.ITEM_SIZE[dtype])
            for place in range(0, PANEL, TILE_ROWS):
                zero = emit.constant(emit.register_type(dtype), 0, TILE_ROWS)
                memory.store(zero, self._zero, place, dtype)

    def source(self, panel: Size, step: Size) -> Source:
        """Where a step of a panel, counted through all batches, lies."""
        at = (panel * self._k + step * ALONG) * (PANEL * emit.ITEM_SIZE[self._dtype])
        return Source(bytes_at(self._b, at), self._k - step * ALONG)

    def tile(self, number: Size, part: int, half: int) -> Any:
        """The pointer to a part of half of a step, of those that were split number `number`."""
        place = number % self._steps * self._step
        return bytes_at(self._room, place + (part * STEP + half * TILE))

    def fill(self, source: Source, number: Size, first: Size, unit: int) -> None:
        """Splits unit `first + unit` of a step, where `first` is even, as number `number`."""
        row, half = first + unit // 2 * 2, unit % 2
        pair = []
        for r in (row, row + 1):
            line = memory.at(source.at, r * PANEL, self._dtype)
            if self._zero is not None:
                inside = emit.compare("less", r, emit.as_index(source.left))
                line = emit.select(inside, line, self._zero)
            value = memory.load(line, half * TILE_ROWS, self._dtype, TILE_ROWS)
            pair.append(split(value, self.parts))
        for part, (one, other) in enumerate(zip(*pair, strict=True)):
            target = self.tile(number, part, half)
            words = (one >> 16) | (other & convert.HIGH)
            memory.store(words, target, row // 2 * TILE_ROWS, "uint32", alignment=TILE_ROW)

    def ask(self, source: Source, first: Size, unit: int, few: bool) -> None:
        """Asks for a unit's share of what comes behind its step: see `FEW` and `MANY`."""
        size = ALONG * PANEL * emit.ITEM_SIZE[self._dtype]
        each = size // UNITS
        for line in range(unit * each, (unit + 1) * each, LINE):
            for level, ahead, apart in FEW if few else MANY:
                if line % (apart * LINE) == 0:
                    place = first * each + (ahead * size + line)
                    memory.prefetch(source.at, place, "int8", level=level)
