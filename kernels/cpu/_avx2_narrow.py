"""Products by weights of 8 and 4 bits on AVX2: rows and weights become float32.

Rows do so on the stack, from where one instruction spreads an element over a register. For up to
four rows weights are widened in registers, of a whole panel at a time or of half of one. For more
those of a group are widened on the stack, where they stay in the first cache for all tiles: up to 6
rows by half a panel. A sum takes its products one after another, in the order of k, at any height:
a row's bits do not depend on the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu._blocks import PANEL, Block, Rows, Shares, Tile, heights
from heddle.kernels.cpu._narrow_weights import RIGHT, STEP, Reader
from heddle.kernels.cpu._panels import BLOCK, LINE, SPACE, Tasks
from heddle.kernels.cpu._tile import add_rows, rows_of
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

ROOM = 2**15
"""Elements of rows on the stack, beside what lies between rows."""

SPAN = 128
"""Elements along k whose sums are scaled at once, at most: 16 KiB of widened weights."""

FEW, WHOLE = 4, 2
"""Rows that weights are widened for in registers, and of them those that take whole panels."""

TOGETHER = 4
"""Steps along k of a loop."""

WORD = emit.ITEM_SIZE["float32"]


def emit_blocks(frame: host.Frame) -> None:
    """Emits the products of all blocks of one product."""
    product = _Product(frame, host.lanes_for(frame.machine, ["float32"]))
    for rows, first, last in product.tasks.runs():
        product.compute(rows, first, last)


class _Product:
    """The sums of blocks of rows; made in the function's entry block."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        spec = frame.spec
        a, weights, scales = spec.operands
        self.tasks = Tasks(frame, lanes, "float32")
        self._frame, self._lanes, self._rows = frame, lanes, rows_of(frame.machine)
        self._k, self._groups = frame.size(a.shape[-1]), frame.size(scales.shape[1])
        self._group = spec.attr("group")
        self._span = math.gcd(self._group, SPAN) if self._group > SPAN else self._group
        self._right: Reader = RIGHT[weights.dtype](frame, lanes)
        self._soon = SPACE.value("ahead", spec, frame.machine.arch) << 10
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)
        self._sums = host.byte_buffer(self.tasks.most * PANEL * WORD, shared="sums")
        self._left = host.byte_buffer(ROOM * WORD + BLOCK * LINE, shared="left")
        self._widened = host.byte_buffer(self._span * PANEL * WORD, shared="widened")

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        depth = self._depth(sizes.greatest(emit.as_index(rows.height), 1))
        # Rows that fit all at once stay on the stack for all panels.
        fit = emit.compare("less_equal", emit.as_index(self._k), depth)
        self._stage(rows, emit.select(fit, emit.as_index(rows.height), 0), depth, 0, self._k)
        staged = emit.select(fit, 0, emit.as_index(rows.height))
        for panel in emit.loop(first, last):
            self._multiply(self.tasks.block(rows, panel), depth, staged)

    def _depth(self, height: Size) -> Size:
        """Elements along k, in whole spans, for which so many rows have room."""
        return sizes.floordiv(ROOM, height) // self._span * self._span

    def _stage(self, rows: Rows, height: Size, depth: Size, start: Size, stop: Size) -> None:
        """Puts the elements from `start` to `stop - 1` of rows on the stack, as float32."""
        source, dtype = self._frame.inputs[0], self._frame.spec.operands[0].dtype
        for r in emit.loop(0, height):
            first, target = (rows.row + r) * self._k, r * _apart(depth) - start
            for k in emit.loop(start, stop, self._lanes):  # groups are whole vectors
                value = memory.load(source, first + k, dtype, self._lanes)
                memory.store(value, self._left, target + k, "float32")

    def _multiply(self, block: Block, depth: Size, staged: Size) -> None:
        """Emits the sums of a block, and what writes them."""
        for place in emit.loop(0, block.height * PANEL, self._lanes):
            memory.store(self._zero, self._sums, place, "float32")
        height = emit.as_index(block.height)
        for start in emit.loop(0, self._k, depth):
            stop = sizes.least(start + depth, self._k)
            self._stage(block, staged, depth, start, stop)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            end = emit.select(complete, height, 0)
            self.tasks.ask(block, 0, end)
            for rows in range(1, FEW + 1):
                with emit.when(emit.compare("equal", height, rows)):
                    self._add_few(block, rows, start, stop)
            with emit.when(emit.compare("greater", height, FEW)):
                self._add_many(block, depth, start, stop)
            self.tasks.write(block, self._sums, 0, end)

    def _add_few(self, block: Block, height: int, start: Size, stop: Size) -> None:
        """Adds the products along k from `start` to `stop - 1`, a whole panel at a time."""
        parts = 1 if height <= WHOLE else 2
        width, share = PANEL // parts, self._right.bytes // parts
        vectors = width // self._lanes
        apart = _apart(self._depth(height))

        # `due` is carried: computed from k, it would take registers that LLVM lacks.
        def add_step(tile: Tile, k: Any, due: Any, *sums: Any) -> list[Any]:
            for line in range(0, share, LINE):
                memory.prefetch(self._frame.inputs[1], due + line, "int8")
            self._right.start(tile, k)

            def left_at(r: int, k: Any) -> Any:
                return self._spread(apart * r + k - start)

            added = add_rows(sums, k, left_at, map(self._right.row, range(STEP)), 1)
            return [due + self._right.bytes, *added]

        for first in emit.loop(start, stop, self._span):
            for part in range(0, PANEL, width):
                tile = Tile(block.row, 0, height, height, block.panel, part, vectors)
                zeros = [self._zero] * (height * vectors)
                before = [self._place(block, first) + self._soon + part // width * share, *zeros]
                add = partial(add_step, tile)
                _, *sums = emit.carry(first, first + self._span, STEP, before, add)
                self._add_scaled(sums, block, range(height), first, part, vectors)

    def _add_many(self, block: Block, depth: Size, start: Size, stop: Size) -> None:
        """Adds the products along k from `start` to `stop - 1`, tile by tile for each group."""
        shares = Shares(block.height, self._rows)
        for first in emit.loop(start, stop, self._span):
            self._widen(block, first)
            for _, top, bottom in shares.spans(some=True):
                for height in heights(self._rows, range(FEW + 1, BLOCK + 1)):
                    with emit.when(emit.compare("equal", bottom - top, height)):
                        self._add_tile(block, top, height, depth, first - start, first)

    def _widen(self, block: Block, first: Size) -> None:
        """Puts the weights of a span on the stack, as float32."""
        tile = Tile(block.row, 0, self._rows, block.height, block.panel, 0, PANEL // self._lanes)
        for k in emit.loop(0, self._span, STEP):
            self._right.start(tile, first + k)
            for number in range(STEP):
                for i, value in enumerate(self._right.row(number)):
                    place = (k + number) * PANEL + i * self._lanes
                    memory.store(value, self._widened, place, "float32")

    def _add_tile(
        self, block: Block, top: Size, height: int, depth: Size, done: Size, first: Size
    ) -> None:
        """Adds the sums of a tile with a span, `done` elements behind those on the stack."""
        vectors = PANEL // self._lanes // 2
        origin, apart = top * _apart(depth) + done, _apart(depth)
        # Each tile asks for its share of what comes soon, beside both halves alike.
        rows, size = emit.as_index(block.height), self._right.bytes * self._span // STEP
        asked = self._place(block, first) + self._soon + size * top // rows
        share = emit.index(size * height // 2) // rows
        pace = share * TOGETHER // self._span
        lines = range(-(-TOGETHER * PANEL // 2 // LINE))

        def left_at(r: int, k: Any) -> Any:
            return self._spread(origin + apart * r + k)

        for part in emit.loop(0, PANEL, PANEL // 2):

            def right_at(k: Any, part: Any = part) -> list[Any]:
                places = (k * PANEL + part + i * self._lanes for i in range(vectors))
                return [memory.load(self._widened, at, "float32", self._lanes) for at in places]

            def add_steps(k: Any, due: Any, *sums: Any) -> list[Any]:
                for _ in lines:
                    memory.prefetch(self._frame.inputs[1], due, "int8")
                right = map(right_at, (k + i for i in range(TOGETHER)))
                return [due + pace, *add_rows(sums, k, left_at, right, 1)]

            before = [asked + part // (PANEL // 2) * share, *[self._zero] * (height * vectors)]
            _, *sums = emit.carry(0, self._span, TOGETHER, before, add_steps)
            numbers = [top + r for r in range(height)]
            self._add_scaled(sums, block, numbers, first, part, vectors)

    def _spread(self, place: Size) -> Any:
        """An element of the rows on the stack, in every lane."""
        return emit.splat(memory.load(self._left, place, "float32"), self._lanes)

    def _place(self, block: Block, k: Size) -> Size:
        """At which byte of the weights the elements from `k` on begin."""
        return (block.panel * self._k + k) // STEP * self._right.bytes

    def _add_scaled(
        self,
        sums: Sequence[Any],
        block: Block,
        rows: Sequence[Size],
        k: Size,
        part: Size,
        vectors: int,
    ) -> None:
        """Adds sums of the group of element `k` times its scales to the totals of some rows.

        The scales of the groups that are asked for next are asked for, too.
        """
        scales, dtype = self._frame.inputs[2], self._frame.spec.operands[2].dtype
        place = (block.panel * self._groups + k // self._group) * PANEL + part
        groups = max(1, self._soon // (self._group // STEP * self._right.bytes))
        for line in range(0, vectors * self._lanes, LINE // emit.ITEM_SIZE[dtype]):
            memory.prefetch(scales, place + (groups * PANEL + line), dtype)
        columns = range(0, vectors * self._lanes, self._lanes)
        found = [memory.load(scales, place + i, dtype, self._lanes) for i in columns]
        aligned = self._lanes * WORD
        for number, value in enumerate(sums):
            row, i = divmod(number, vectors)
            # Volatile: LLVM would keep totals in registers that it lacks, and spill them.
            at = memory.at(self._sums, rows[row] * PANEL + part + columns[i], "float32")
            total = llvm.load(value.type, at, alignment=aligned, volatile_=True)
            total = emit.fma(value, found[i], total)
            llvm.store(total, at, alignment=aligned, volatile_=True)


def _apart(depth: Size) -> Size:
    """Elements from row to row on the stack: no power of two."""
    return depth + LINE // WORD
