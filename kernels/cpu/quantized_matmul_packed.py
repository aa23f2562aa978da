"""a @ b for weights in 8 or 4 bits, in panels of 32 columns (`products.panels`), each group scaled.

A group's sums are scaled once, when they are complete: a weight is so never rounded, and a scale
costs little. Where a is bfloat16 and the machine has dot products of pairs, the weights become
bfloat16, which holds them exactly, and a step takes two elements along k; else all is float32, as
one row by int8 is beside AMX.

Products of eight rows or more leave ports free on which weights are widened beside them, but not
enough for floats: so the first tile of a block keeps its pairs for those below it. With AMX most
rows are multiplied in tiles instead (see `amx.narrow`, and for up to 16 `amx.narrow_bytes` and
`amx.narrow_few`); AVX2 has a file of its own (see `products.avx2_narrow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx import narrow, narrow_bytes, narrow_few, products
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.products import asks as products_asks
from heddle.kernels.cpu.products import avx2_narrow, beside, panels
from heddle.kernels.cpu.products.blocks import Block, Rows, Strip, Tile, strips, tiles
from heddle.kernels.cpu.products.groups import DOTS, STRETCH, Groups, unsupported
from heddle.kernels.cpu.products.narrow_weights import RIGHT, STEP, Reader
from heddle.kernels.cpu.products.panels import Tasks
from heddle.kernels.cpu.products.tile import add_rows, copies_of, merged, rows_of
from heddle.kernels.cpu.products.widened import Keeping, Kept, Pairs
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold

FLOATS = 4
"""Cycles from one multiplication to the next that adds to the same sum."""

FEW = 1
"""Rows that take no tiles where they are not multiplied as bytes: products in registers cost them
less than widening weights through the stack."""

STAGED = 2**14
"""Elements of such a row that lie on the stack as float32, at most: 64 KiB."""

LOW = 8
"""Rows of a tile whose products read elements from memory themselves: those of higher ones share
what is read, as LLVM would read ahead into registers that it lacks."""


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    for frame in beside.frames(spec, machine):
        emit_blocks(frame, Tasks)


def emit_blocks(frame: host.Frame, kind: type[Tasks]) -> None:
    """Emits the products of all blocks of tasks of such a kind."""
    if frame.machine.vector_bytes == 32:
        avx2_narrow.emit_blocks(frame, kind)
        return
    lanes = host.lanes_for(frame.machine, ["float32"])
    tasks, product = kind(frame, lanes, "float32"), _Product(frame, lanes)
    if not product.in_tiles:
        panels.emit_blocks(tasks, product.multiply)
        return
    run = narrow.Run(frame, tasks, product.right)
    ways = _ways_of_few(frame, tasks, product, run.sums(0))
    for rows, first, last in tasks.runs():
        height, least = emit.as_index(rows.height), emit.index(0)
        for most, compute in ways:
            within = emit.compare("less_equal", height, most)
            with emit.when(emit.compare("greater", height, least) & within):
                compute(rows, first, last)
            least = emit.index(most)
        with emit.when(emit.compare("greater", height, least)):
            run.compute(rows, first, last)


Compute = Callable[[Rows, Size, Size], None]
"""Emits the results of rows by their panels from one number to before another."""


def _ways_of_few(
    frame: host.Frame, tasks: Tasks, product: _Product, room: Any
) -> list[tuple[int, Compute]]:
    """How few rows are multiplied where there are tiles: up to how many of them, by what."""

    def one_by_one(rows: Rows, first: Size, last: Size) -> None:
        for r in emit.loop(0, rows.height):
            row = Rows(rows.row + r, emit.index(1), rows.panel)
            product.stage(row)
            for panel in emit.loop(first, last):
                product.multiply(tasks, tasks.block(row, panel), room)

    ways: list[tuple[int, Compute]] = [(FEW, one_by_one)]
    most = narrow_bytes.most(frame)
    if most:
        least = narrow_bytes.LEAST[frame.spec.operands[1].dtype]
        of_bytes = narrow_bytes.Few(frame, tasks)

        def as_bytes(rows: Rows, first: Size, last: Size) -> None:
            enough = emit.compare("greater_equal", emit.as_index(rows.height), least)
            (possible,) = emit.either(
                enough, [enough.type], lambda: [of_bytes.begin(rows, first)], lambda: [enough]
            )
            with emit.when(possible):
                of_bytes.compute(rows, first, last)
            with emit.when(possible ^ 1):
                one_by_one(rows, first, last)

        ways = [(most, as_bytes)]
    if ways[-1][0] < TILE_ROWS and narrow_few.fits(frame):
        ways.append((TILE_ROWS, narrow_few.Few(frame, tasks, product.right).compute))
    return ways


class _Product:
    """The sums of blocks of rows."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        spec = frame.spec
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

    def stage(self, rows: Rows) -> None:
        """Puts the one row on the stack, if it is multiplied as float32."""
        if self._staged is None:
            return
        for place, mask in host.vectors(0, self._k, self._lanes):
            dtype = self._frame.spec.operands[0].dtype
            first = rows.row * self._k + place
            value = memory.load(self._frame.inputs[0], first, dtype, self._lanes, mask)
            memory.store(value, self._staged, place, "float32", mask)

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
                    self._add(tile, right, start, stop, scratch)
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

    def _add(self, tile: Tile, right: Any, start: Size, stop: Size, scratch: Any) -> None:
        """Adds the products along k from `start` to `stop - 1` to the sums."""
        count, left_at = tile.height * tile.vectors, self._left_reader(tile)
        copies = copies_of(count, DOTS if self._pairs else FLOATS)
        ahead, pace = self._groups.ahead(tile, start, stop)
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

        for first in emit.loop(start, stop, self._span):
            due = ahead + (first - start) // STEP * pace
            zeros = [self._zero] * (count * copies)
            _, *sums = emit.carry(first, first + self._span, STEP, [due, *zeros], add_step)
            scales = self._groups.scales(tile, first)
            self._groups.add(merged(sums, copies), scales, tile, scratch)

    def _left_reader(self, tile: Tile) -> Callable[[int, Any], Any]:
        """What reads elements of the tile's rows, or pairs of them, into every lane.

        A product reads one from memory itself, if no other takes the same: so each vector of a low
        tile has its own pointer to the rows, to LLVM another one.
        """
        dtype = self._frame.spec.operands[0].dtype
        group, kind = (2, "uint32") if self._pairs else (1, dtype)
        count = tile.vectors if tile.height <= LOW else 1

        def left_at(r: int, step: Any) -> Any:
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


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """With AMX a thread takes a run of panels, which share the rows on the stack.

    Twice as many beside few rows: it takes less time to go through them, and as long to begin.
    """
    if machine.tiles and "tiles" in panels.uses_of_bfloat16(spec):
        _, m, _ = panels.extents(spec)
        runs = fold("min", 2, fold("floordiv", 2 * narrow_bytes.HEIGHTS[-1], fold("max", m, 1)))
        return beside.launch(spec, together=fold("mul", products.RUN, fold("max", runs, 1)))
    return None


def supports(spec: Spec) -> str | None:
    """Whole groups of int8, of 4 bits in uint32, or of 8-bit floats; no prologue."""
    a, weights = (operand.dtype for operand in spec.operands[:2])
    if a not in ("float32", "bfloat16") or weights not in RIGHT:
        return f"wanted float32 or bfloat16 by {', '.join(RIGHT)}, got {a} by {weights}"
    return unsupported(spec)


KERNEL = Kernel(
    "quantized_matmul_packed",
    "cpu",
    emit_quantized,
    beside.launch,
    beside.supports_each(supports),
    split=beside.split,
    overwrites="epilogue",
    uses=panels.uses_of_bfloat16,
    own_launch=own_launch,
)
