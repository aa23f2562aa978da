"""Rows in 8 bits (see `round_rows`) by weights in 8 or 4 bits, in panels of 32 columns.

Sums of a group are integers, which are exact, and are scaled once. A step takes four integers of a
row, as one word in every lane, and four weights of each column. Where the machine has dot products
of bytes, a step is one of them: one side has no sign there, so weights are raised, and a sum begins
with what that adds, taken off. Others add products of pairs in 16 bits: of 4 bits, raised too,
those of a whole unit along k; of 8 bits magnitudes by integers with the signs of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from heddle.kernels import convert, emit, host, memory, sizes
from heddle.kernels.cpu.products import asks, beside, panels
from heddle.kernels.cpu.products import integers as products_integers
from heddle.kernels.cpu.products.blocks import PANEL, Block, Tile, strips, tiles
from heddle.kernels.cpu.products.groups import DOTS, STRETCH, Groups, unsupported
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.cpu.products.tile import copies_of, merged, rows_of
from heddle.kernels.cpu.round_rows import HEAD
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

llvm = dialect("llvm")

UNIT = 32
"""Elements along k of a turn. Products of so many fit 16 bits where weights are 15 at most: those
of 8 pairs are up to 2 * 8 * 15 * 127 = 30480."""

WORD, WORDS = 4, UNIT // 4
"""Integers in a word, and words in a unit."""

RowAt = Callable[[int], Any]
"""`at(r)`: where something of row r begins."""


def emit_rounded(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    for frame in beside.frames(spec, machine):
        emit_blocks(frame, Tasks)


def emit_blocks(frame: host.Frame, tasks: type[Tasks]) -> None:
    """Emits the products of all blocks of `tasks`."""
    lanes = host.lanes_for(frame.machine, ["float32"])
    panels.emit_blocks(tasks(frame, lanes, "float32"), _Product(frame, lanes).multiply)


class _Product:
    """The sums of blocks of rows."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        spec = frame.spec
        rows, weights = spec.operands[:2]
        self._frame, self._lanes = frame, lanes
        self._nibbles, self._dots = weights.dtype == "uint32", frame.machine.dots
        self._multiply = _by_dots if self._dots else _raised if self._nibbles else _signed
        self._bytes = UNIT * PANEL // (2 if self._nibbles else 1)
        self._groups = Groups(frame, lanes, UNIT, self._bytes)
        self._k, self._group = self._groups.k, self._groups.length
        self._size = frame.size(rows.shape[-1])

    def multiply(self, tasks: Tasks, block: Block, scratch: Any) -> None:
        """Emits the sums of a block, and what writes them."""
        frame, lanes = self._frame, self._lanes
        self._groups.clear(scratch, block.height)
        one = emit.compare("less_equal", emit.as_index(block.height), rows_of(frame.machine))
        depth = max(self._group, STRETCH // self._group * self._group)
        heights = range(rows_of(frame.machine), 1, -1)
        step = emit.select(one, emit.as_index(sizes.greatest(self._k, 1)), depth)
        for start in emit.loop(0, self._k, step):
            stop = sizes.least(start + step, self._k)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            single = emit.compare("equal", emit.as_index(block.height), 1)
            with emit.when(single):
                self._multiply_row(tasks, block, start, stop, scratch)
            with emit.when(single ^ 1):
                for strip in strips(frame, block, lanes):
                    tasks.ask_strip(strip, complete)
                    for tile in tiles(frame, strip, heights):
                        self._add(tile, start, stop, scratch)
                    tasks.write_strip(strip, scratch, complete)

    def _multiply_row(self, tasks: Tasks, block: Block, start: Size, stop: Size, sums: Any) -> None:
        """One row goes along a whole panel: memory is read line after line."""
        vectors = PANEL // self._lanes
        tile = Tile(block.row, 0, 1, block.height, block.panel, 0, vectors, block.column)
        self._add(tile, start, stop, sums)
        tasks.write(block, sums, 0, block.height)

    def _add(self, tile: Tile, start: Size, stop: Size, scratch: Any) -> None:
        """Adds the products along k from `start` to `stop - 1` to the sums."""
        due, pace = self._groups.ahead(tile, start, stop)
        for first in emit.loop(start, stop, self._group):
            begin = due + (first - start) // UNIT * pace
            row_at = self._rows(tile, first)
            sums = self._sums(tile, first, row_at, begin, pace)
            scales = self._groups.scales(tile, first)
            self._groups.add(self._by_rows(tile, sums, row_at), scales, tile, scratch)

    def _by_rows(self, tile: Tile, sums: Sequence[Any], row_at: RowAt) -> Iterator[Any]:
        """The sums as float32, times the scales of their rows."""
        for number, value in enumerate(sums):
            scale = memory.load(row_at(number // tile.vectors), 0, "float32")
            yield convert.cast(value, "int32", "float32") * emit.splat(scale, self._lanes)

    def _sums(self, tile: Tile, first: Size, row_at: RowAt, due: Any, pace: Any) -> list[Any]:
        """The sums of a group, as integers."""
        copies = copies_of(tile.height * tile.vectors, DOTS) if self._dots else 1
        zero = emit.constant(emit.integer(32), 0, self._lanes)
        own = []
        for row in range(tile.height):
            begin = zero
            if self._nibbles or self._dots:
                begin = emit.splat(memory.load(row_at(row), 1, "int32"), self._lanes)
            own += [begin] * tile.vectors
        before = own + [zero] * (len(own) * (copies - 1))

        def unit(k: Any, due: Any, *sums: Any) -> list[Any]:
            words = [memory.at(row_at(r), HEAD + k, "int8") for r in range(tile.height)]
            ask = partial(self._ask, tile, due, pace)
            return [due + pace, *self._unit(tile, first + k, words, sums, ask)]

        _, *sums = emit.carry(0, self._group, UNIT, [due, *before], unit)
        return merged(sums, copies)

    def _unit(
        self,
        tile: Tile,
        k: Size,
        words: Sequence[Any],
        sums: Sequence[Any],
        ask: Callable[[int], None],
    ) -> list[Any]:
        """The sums with the products of a unit, of rows whose integers begin at `words`."""
        total, share = list(sums), tile.height * tile.vectors
        pairs: list[Any] = [None] * len(total)
        for number in range(WORDS):
            ask(number)
            weights, copy = self._weights(tile, k, number), number * share % len(total)
            for row, word in enumerate(words):
                integers = memory.load(word, number, "uint32")
                integers = emit.splat(integers, self._lanes)
                for at, weight in enumerate(weights, copy + row * tile.vectors):
                    total[at], pairs[at] = self._multiply(total[at], pairs[at], weight, integers)
        both = zip(total, pairs, strict=True)
        return [value if pair is None else value + _widened(pair) for value, pair in both]

    def _weights(self, tile: Tile, k: Size, number: int) -> list[Any]:
        """Those of word `number` of a unit, as bytes, of each vector of columns."""
        step, half = (8, number % 2) if self._nibbles else (WORD, 0)
        first = (tile.panel * self._k + k) // step * PANEL + tile.part
        first += (number // 2 if self._nibbles else number) * PANEL
        found = []
        for column in range(tile.vectors):
            place = first + column * self._lanes
            word = memory.load(self._frame.inputs[1], place, "uint32", self._lanes)
            if self._nibbles:
                word = (word >> 4 if half else word) & 0x0F0F0F0F
            elif self._dots:
                word = word ^ 0x80808080
            found.append(word)
        return found

    def _rows(self, tile: Tile, first: Size) -> RowAt:
        """Where the group of element `first` of each row begins."""
        place = first // self._group * (self._group + HEAD)

        def at(r: int) -> Any:
            return memory.at(self._frame.inputs[0], (tile.row + r) * self._size + place, "int8")

        return at

    def _ask(self, tile: Tile, first: Any, pace: Any, number: int) -> None:
        """Prefetches this part's share of `pace` bytes of the weights, beside a word of a unit.

        A unit's lines are spread over its words: all at once they would fill the queue of misses.
        """
        lines, width = self._bytes // LINE, tile.vectors * self._lanes
        pieces, piece = PANEL // width * WORDS, tile.part // width * WORDS + number
        for line in range(piece * lines // pieces, (piece + 1) * lines // pieces):
            place = first + pace * line // lines
            for ask in asks.of_tile(tile, self._frame):
                ask.beside(self._frame.inputs[1], place, "int8")


def _by_dots(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds dot products of four weights, which are raised, by four integers."""
    return products_integers.dots(total, weights, integers), pairs


def _raised(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds to the sums of pairs of the unit."""
    found = _sums_of_pairs(
        products_integers.parts(weights, 8), products_integers.parts(integers, 8)
    )
    return total, found if pairs is None else products_integers.opaque(pairs + found)


def _signed(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds products of magnitudes by integers that are negative where the weight is."""
    weights, integers = (products_integers.parts(words, 8) for words in (weights, integers))
    if emit.lanes_of(weights) == 2**5:
        name = "llvm.x86.avx2.psign.b"
        integers = llvm.call_intrinsic(weights.type, name, [integers, weights], [], [])
    else:
        integers = emit.select(emit.compare("less", weights, 0), -integers, integers)
    found = _sums_of_pairs(emit.absolute(weights), integers)
    return products_integers.opaque(total + _widened(found)), pairs


def _sums_of_pairs(weights: Any, integers: Any) -> Any:
    """Bytes without signs by those with signs, pairs added in 16 bits."""
    lanes = emit.lanes_of(weights)
    name = "llvm.x86.avx2.pmadd.ub.sw" if lanes == 32 else "llvm.x86.avx512.pmaddubs.w.512"
    kind = emit.widen(emit.integer(16), lanes // 2)
    return llvm.call_intrinsic(kind, name, [weights, integers], [], [])


def _widened(pairs: Any) -> Any:
    """The sums of pairs of 16 bits, in 32."""
    return products_integers.pairs(pairs, emit.constant(emit.integer(16), 1, emit.lanes_of(pairs)))


def supports(spec: Spec) -> str | None:
    """Rows of `round_rows` by whole groups of int8, or of 4 bits in uint32; no prologue."""
    a, weights = (operand.dtype for operand in spec.operands[:2])
    if a != "uint8" or weights not in ("int8", "uint32"):
        return f"wanted uint8 by int8 or uint32, got {a} by {weights}"
    return unsupported(spec)


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products; beside tiles both caches are asked."""
    return "dots", "tiles"


KERNEL = Kernel(
    "rounded_matmul_packed",
    "cpu",
    emit_rounded,
    beside.launch,
    beside.supports_each(supports),
    split=beside.split,
    overwrites="epilogue",
    uses=uses,
)
