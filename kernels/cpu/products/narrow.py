"""Products by weights of 8 and 4 bits in registers of AVX-512.

Where a is bfloat16 and the machine has dot products of pairs, the weights become bfloat16, which
holds them exactly, and a step takes two elements along k; else all is float32, as one row by int8
is beside AMX.

Products of eight rows or more leave ports free on which weights are widened beside them, but not
enough for floats: so the first tile of a block keeps its pairs for those below it. Of 13 to 16 rows
that would be half of the block: they are one tile of half a panel instead, which widens for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.products import asks as products_asks
from heddle.kernels.cpu.products import panels, turned
from heddle.kernels.cpu.products.blocks import PANEL, Block, Rows, Strip, Tile, strips, tiles
from heddle.kernels.cpu.products.groups import DOTS, STRETCH, Groups
from heddle.kernels.cpu.products.narrow_weights import RIGHT, STEP, Reader
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.cpu.products.tile import add_rows, copies_of, merged, rows_of
from heddle.kernels.cpu.products.turned import Turned
from heddle.kernels.cpu.products.widened import Keeping, Kept, Pairs
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, fold

FLOATS = 4
"""Cycles from one multiplication to the next that adds to the same sum."""

FEW = 1
"""Rows that take no tiles of AMX where they are not multiplied as bytes: products in registers cost
them less than widening weights through the stack."""

STAGED = 2**14
"""Elements of such a row that lie on the stack as float32, at most: 64 KiB."""

LOW = 8
"""Rows of a tile whose products read elements from memory themselves: those of higher ones share
what is read, as LLVM would read ahead into registers that it lacks."""

CLAIM = 8
"""Panels that a thread takes at a time by rows that it turns for them: for each anew, that would
take a twentieth of the time."""

Left = Callable[[int, Any], Any]
"""What a step along k takes of a row, in every lane; or for each vector of a tile."""


def together(m: Expr, machine: Machine) -> Expr:
    """How many tasks of `m` rows a thread takes at a time."""
    above, beyond = (
        fold("min", 1, fold("floordiv", m, rows + 1)) for rows in (rows_of(machine), turned.ROWS)
    )
    return fold("add", 1, fold("mul", CLAIM - 1, fold("sub", above, beyond)))


def emit_blocks(tasks: Tasks, product: Product) -> None:
    """Emits the products of all blocks."""
    high = product.high
    if not high:
        panels.emit_blocks(tasks, product.multiply)
        return
    sums = host.byte_buffer(tasks.most * PANEL * emit.ITEM_SIZE[tasks.dtype])
    for rows, first, last in tasks.runs():
        height = emit.as_index(rows.height)
        within = emit.compare("greater_equal", height, min(high))
        within &= emit.compare("less_equal", height, max(high))
        end = emit.select(within, emit.as_index(sizes.greatest(first, last)), emit.as_index(first))
        with emit.when(emit.compare("less", emit.as_index(first), end)):
            product.turn(rows)
        for block in tasks.written(rows, first, end, sums):
            product.multiply_high(block, sums)
        for panel in emit.loop(end, last):
            product.multiply(tasks, tasks.block(rows, panel), sums)


class Product:
    """The sums of blocks of the rows of tasks; made in the function's entry block.

    Attributes:
        in_tiles: Whether most rows are multiplied in tiles of AMX, not here.
        high: How many rows are multiplied by half a panel at a time, from the most on.
    """

    def __init__(self, tasks: Tasks) -> None:
        frame, lanes, spec = tasks.frame, tasks.lanes, tasks.frame.spec
        a, weights = spec.operands[:2]
        self._frame, self._lanes = frame, lanes
        self.right: Reader = RIGHT[weights.dtype](frame, lanes)
        self._groups = Groups(frame, lanes, STEP, self.right.bytes)
        self._k, group = self._groups.k, self._groups.length
        # Sums are scaled where a group ends, and where a stretch ends within one.
        self._span = math.gcd(group, STRETCH) if group > STRETCH else group
        self._stretch = min(STRETCH // self._span * self._span, self._k)
        self._pairs = frame.machine.dots and a.dtype == "bfloat16"
        self.in_tiles = frame.machine.tiles and self._pairs
        self._staged: Any = None
        k = self._groups.k
        # int8 becomes bfloat16 by way of float32, which one row is multiplied by for less.
        if self.in_tiles and weights.dtype == "int8" and isinstance(k, int) and 0 < k <= STAGED:
            self._staged = host.byte_buffer(k * emit.ITEM_SIZE["float32"])
            self._pairs = False
        self._most = FEW if self.in_tiles else rows_of(frame.machine)
        self._rows = [frame.inputs[0], emit.opaque(frame.inputs[0])]
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)
        keeps = self._pairs and not self.in_tiles
        self._kept = Pairs(self._stretch, lanes) if keeps else None
        self._turned: Turned | None = None
        self.high = range(0)
        high = [height for height in tasks.heights if self._most < height <= turned.ROWS]
        if high and not self.in_tiles and turned.fits(k, self._pairs):
            assert isinstance(k, int)
            self._turned = Turned(frame, k, self._pairs)
            self.high = range(max(high), min(high) - 1, -1)

    def stage(self, rows: Rows) -> None:
        """Puts the one row on the stack, if it is multiplied as float32."""
        if self._staged is None:
            return
        for place, mask in host.vectors(0, self._k, self._lanes):
            dtype = self._frame.spec.operands[0].dtype
            first = rows.row * self._k + place
            value = memory.load(self._frame.inputs[0], first, dtype, self._lanes, mask)
            memory.store(value, self._staged, place, "float32", mask)

    def turn(self, rows: Rows) -> None:
        """Puts so many rows on the stack."""
        assert self._turned is not None
        self._turned.begin(rows)

    def multiply_high(self, block: Block, scratch: Any) -> None:
        """Emits the sums of a block of rows that are on the stack."""
        self._groups.clear(scratch, block.height)
        for height in self.high:
            with emit.when(emit.compare("equal", emit.as_index(block.height), height)):
                halves = [
                    Tile(block.row, 0, height, height, block.panel, part, 1, block.column + part)
                    for part in range(0, PANEL, self._lanes)
                ]
                self._add(halves, self.right, emit.index(0), self._k, scratch)

    def multiply(self, tasks: Tasks, block: Block, scratch: Any) -> None:
        """Emits the sums of a block, and what writes them."""
        frame, lanes = self._frame, self._lanes
        self._groups.clear(scratch, block.height)
        one = emit.compare("less_equal", emit.as_index(block.height), rows_of(frame.machine))
        depth = emit.select(one, emit.as_index(self._k), self._stretch)
        for start in emit.loop(0, self._k, depth):
            stop = sizes.least(start + depth, self._k)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            for strip in strips(frame, block, lanes):
                tasks.ask_strip(strip, complete)
                for tile, right in self._tiles(strip, one, start):
                    self._add([tile], right, start, stop, scratch)
                tasks.write_strip(strip, scratch, complete)

    def _tiles(self, strip: Strip, one: Any, start: Size) -> Iterator[tuple[Tile, Any]]:
        """Emits the Python body of a `for tile, right in` this, of which one is run.

        A strip is the `one` of its block, or the first one, or below it.
        """
        every = range(self._most, 0, -1)
        if self._kept is None:
            for tile in tiles(self._frame, strip, every):
                yield tile, self.right
            return
        top, bottom = emit.as_index(strip.top), emit.as_index(strip.bottom)
        first = emit.compare("equal", top, 0) & emit.compare("less", bottom, strip.block.height)
        below = emit.compare("greater", top, 0)
        halves = range(self._most, self._most // 2 - 1, -1)  # several are no lower than that
        cases: list[tuple[Any, range, Any]] = [
            (one, every, self.right),
            (first, halves, Keeping(self.right, self._kept, start)),
            (below, halves, Kept(self._kept, start)),
        ]
        for condition, heights, right in cases:
            with emit.when(condition):
                for tile in tiles(self._frame, strip, heights):
                    yield tile, right

    def _add(
        self, tiles: Sequence[Tile], right: Any, start: Size, stop: Size, scratch: Any
    ) -> None:
        """Adds the products along k from `start` to `stop - 1` to the sums.

        The tiles are of the same rows, and take turns by groups of weights.
        """
        left_at = self._left_reader(tiles[0])
        ahead, pace = self._groups.ahead(tiles[0], start, stop)
        for first in emit.loop(start, stop, self._span):
            due = ahead + (first - start) // STEP * pace
            for tile in tiles:
                sums = self._group(tile, right, first, left_at, due, pace)
                self._groups.add(sums, self._groups.scales(tile, first), tile, scratch)

    def _group(
        self, tile: Tile, right: Any, first: Size, left_at: Left, due: Any, pace: Any
    ) -> list[Any]:
        """The sums of a tile along k from `first` to the group's end.

        Beside the first step it asks for what is `due`, and `pace` bytes further beside each.
        """
        count = tile.height * tile.vectors
        high = tile.height > self._most  # as other tiles, whose rows have one sum of each element
        copies = 1 if high else copies_of(count, DOTS if self._pairs else FLOATS)
        lines = self.right.bytes // LINE

        # `due` is carried: computed from k, it would take k's register, and LLVM load all that k
        # leads to before, into registers that it lacks.
        def add_step(k: Any, due: Any, *sums: Any) -> list[Any]:
            if not self.in_tiles:
                self._ask(tile, due, pace, range(lines))
            right.start(tile, k)
            if self._pairs:
                rows = taken(due, right.pairs, STEP // 2)
                added = add_rows(sums, k // 2, left_at, rows, copies, _bfloat16.add_dots)
            else:
                added = add_rows(sums, k, left_at, taken(due, right.row, STEP), copies)
            return [due + pace, *added]

        def taken(due: Any, row: Callable[[int], Any], count: int) -> Iterator[Any]:
            """The rows of a step. One row of a spreads its asks over them, or memory would wait."""
            for number in range(count):
                if self.in_tiles:
                    share = range(number * lines // count, (number + 1) * lines // count)
                    self._ask(tile, due, pace, share)
                yield row(number)

        zeros = [self._zero] * (count * copies)
        _, *sums = emit.carry(first, first + self._span, STEP, [due, *zeros], add_step)
        return merged(sums, copies)

    def _left_reader(self, tile: Tile) -> Left:
        """What reads elements of the tile's rows, or pairs of them, into every lane.

        A product reads one from memory itself, if no other takes the same: so each vector of a low
        tile has its own pointer to the rows, to LLVM another one.
        """
        dtype = self._frame.spec.operands[0].dtype
        group, kind = (2, "uint32") if self._pairs else (1, dtype)
        count = tile.vectors if tile.height <= LOW else 1

        def left_at(r: int, step: Any) -> Any:
            if self._turned is not None and tile.height > self._most:
                return emit.splat(self._turned.load(r, step), self._lanes)
            if self._staged is not None:
                return emit.splat(memory.load(self._staged, step, "float32"), self._lanes)
            offset = (tile.row + r) * self._k + step * group
            words = [
                memory.load(memory.at(a, offset, dtype), 0, kind, alignment=emit.ITEM_SIZE[dtype])
                for a in self._rows[:count]
            ]
            return [emit.splat(word, self._lanes) for word in words] * (tile.vectors // count)

        return left_at

    def _ask(self, tile: Tile, first: Any, pace: Any, share: range) -> None:
        """Prefetches a share of the lines of a step, which are in `pace` bytes from `first` on."""
        if tile.part == 0:  # the columns beside them lie in the same lines, or the next
            asks = products_asks.of_tile(tile, self._frame) if self.in_tiles else (memory.Ask(1),)
            for line in share:
                place = first + pace * line // (self.right.bytes // LINE)
                for ask in asks:
                    ask.beside(self._frame.inputs[1], place, "int8")
