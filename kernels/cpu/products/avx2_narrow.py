"""Products by weights of 8 and 4 bits on AVX2: rows and weights become float32.

Rows do so on the stack (see `avx2_rows`). Up to five rows, and seven to ten in two tiles, take
weights that are widened in registers (see `avx2_weights`): of half a panel, for two rows of a
whole one, for one row of two. For others, and where widening takes many instructions, those of a
group are widened on the stack, where they stay in the first cache for all tiles: up to 6 rows by
half a panel. A sum takes its products one after another, in the order of k, at any height: a row's
bits do not depend on the other rows, by 4 bits from three rows on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products.avx2_rows import FEWEST, WORD, Left
from heddle.kernels.cpu.products.avx2_weights import WEIGHTS, Weights
from heddle.kernels.cpu.products.blocks import PANEL, Block, Rows, Shares, heights
from heddle.kernels.cpu.products.narrow_weights import STEP
from heddle.kernels.cpu.products.panels import BLOCK, SPACE, Tasks
from heddle.kernels.cpu.products.tile import add_rows, rows_of
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

SPAN = 128
"""Elements along k whose sums are scaled at once, at most: 16 KiB of widened weights."""

TOGETHER = 4
"""Steps along k of a loop over widened weights."""

Column = tuple[int, int]
"""The number of a panel, and the first of a vector's columns in it."""


def emit_blocks(frame: host.Frame, tasks: type[Tasks]) -> None:
    """Emits the products of all blocks of `tasks`."""
    product = _Product(frame, host.lanes_for(frame.machine, ["float32"]), tasks)
    for rows, first, last in product.tasks.runs():
        product.compute(rows, first, last)


@dataclass(frozen=True)
class _Part:
    """`height` rows from `top` on, of `all_rows`, of which `depth` elements fit on the stack.

    Those there begin with element `start`.
    """

    top: Size
    height: int
    all_rows: Size
    depth: Size
    start: Size


class _Product:
    """The sums of blocks of rows; made in the function's entry block."""

    def __init__(self, frame: host.Frame, lanes: int, tasks: type[Tasks]) -> None:
        spec = frame.spec
        a, weights, scales = spec.operands[:3]
        self.tasks = tasks(frame, lanes, "float32")
        self._frame, self._lanes, self._rows = frame, lanes, rows_of(frame.machine)
        self._k, self._groups = frame.size(a.shape[-1]), frame.size(scales.shape[-2])
        self._group = spec.attr("group")
        self._span = math.gcd(self._group, SPAN) if self._group > SPAN else self._group
        self._right: Weights = WEIGHTS[weights.dtype](frame, lanes)
        self._left = Left(frame, lanes, self._right, self._span)
        self._soon = SPACE.value("ahead", spec, frame.machine.arch) << 10
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)
        self._sums = host.byte_buffer((self.tasks.most + 1) * PANEL * WORD, shared="sums")
        self._widened = host.byte_buffer(self._span * PANEL * WORD, shared="widened")

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        height = emit.as_index(rows.height)
        depth = self._left.depth(sizes.greatest(height, 1))
        # Rows that fit all at once stay on the stack for all panels.
        fit = emit.compare("less_equal", emit.as_index(self._k), depth)
        self._left.stage(rows, emit.select(fit, height, 0), depth, 0, self._k)
        staged = emit.select(fit, 0, height)
        parts: list[tuple[int, Size, Size]] = [(1, first, last)]
        if self._right.twice:  # one row has too few sums in a panel: they would wait for themselves
            one = emit.compare("equal", height, 1)
            pairs = sizes.floordiv(sizes.greatest(last - first, 0), 2) * 2
            single = first + emit.select(one, emit.as_index(pairs), 0)
            parts = [(2, first, single), (1, single, last)]
        for count, begin, end in parts:
            for panel in emit.loop(begin, end, count):
                blocks = [self.tasks.block(rows, panel + i) for i in range(count)]
                self._multiply(blocks, depth, staged)

    def _multiply(self, blocks: Sequence[Block], depth: Size, staged: Size) -> None:
        """Emits the sums of a block, or of one row by several panels, and what writes them."""
        block, height = blocks[0], emit.as_index(blocks[0].height)
        for place in emit.loop(0, (height + (len(blocks) - 1)) * PANEL, self._lanes):
            memory.store(self._zero, self._sums, place, "float32")
        for start in emit.loop(0, self._k, depth):
            stop = sizes.least(start + depth, self._k)
            self._left.stage(block, staged, depth, start, stop)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            end = emit.select(complete, height, 0)
            for one in blocks:
                self.tasks.ask(one, 0, end)
            if len(blocks) > 1:
                self._add_few(blocks, 1, start, stop)
            else:
                self._add(block, depth, start, stop)
            for number, one in enumerate(blocks):
                sums = memory.at(self._sums, number * PANEL, "float32")
                self.tasks.write(one, sums, 0, end)

    def _add(self, block: Block, depth: Size, start: Size, stop: Size) -> None:
        """Adds the products of a block of any height along k from `start` to `stop - 1`."""
        height, few = emit.as_index(block.height), self._right.few
        for rows in range(1, few + 1):
            with emit.when(emit.compare("equal", height, rows)):
                self._add_few([block], rows, start, stop)
        several = emit.compare("greater", height, few)
        if self._right.twice:
            apart = emit.compare("greater", height, self._rows)
            apart = apart & emit.compare("less_equal", height, 2 * few)
            with emit.when(apart):
                self._add_twice(block, depth, start, stop)
            several = several & (apart ^ 1)
        with emit.when(several):
            self._add_many(block, depth, start, stop)

    def _add_few(self, blocks: Sequence[Block], height: int, start: Size, stop: Size) -> None:
        """Adds the products of a tile alone."""
        tile = _Part(0, height, height, self._left.depth(height), start)
        for first in emit.loop(start, stop, self._span):
            self._add_widening(tile, blocks, first)

    def _add_twice(self, block: Block, depth: Size, start: Size, stop: Size) -> None:
        """Adds the products of two tiles, each of which widens the weights."""
        few = self._right.few
        shares = Shares(block.height, few)
        for first in emit.loop(start, stop, self._span):
            for _, top, bottom in shares.spans(some=True):
                for height in heights(few, range(self._rows + 1, 2 * few + 1)):
                    with emit.when(emit.compare("equal", bottom - top, height)):
                        tile = _Part(top, height, block.height, depth, start)
                        self._add_widening(tile, [block], first)

    def _add_widening(self, tile: _Part, blocks: Sequence[Block], first: Size) -> None:
        """Adds the sums of a tile with the span of element `first`, widened in registers."""
        height, panel = tile.height, blocks[0].panel
        exact = height > FEWEST
        parts = 2 if exact else 1
        width, apart = PANEL // parts, sizes.floordiv(self._k, STEP) * self._right.bytes
        left_at = self._left.reader(tile.top, tile.depth)
        # The words of two panels stay in registers one after another, for half of a step.
        each = STEP if len(blocks) == 1 else STEP // 2
        due, share = self._asked(tile, panel, first, parts)
        if len(blocks) > 1:  # behind a panel comes the other one, which is not asked for
            skipped = emit.compare("greater_equal", due, self._place(panel + 1, 0))
            due = due + emit.select(skipped, emit.as_index(apart), 0)
        pace = share * STEP // self._span

        # `due` is carried: computed from k, it would take registers that LLVM lacks.
        def add_step(columns: Sequence[Column], k: Any, due: Any, *sums: Any) -> list[Any]:
            for number in range(len(blocks)):
                for line in range(0, self._right.bytes // parts, LINE):
                    place = due + apart * number + line
                    memory.prefetch(self._frame.inputs[1], place, "int8")
            words = [self._right.words(panel + i, k, column) for i, column in columns]
            total, together = list(sums), len(words) if each == STEP else 1
            for at in range(0, STEP, each):
                for i in range(0, len(words), together):
                    some, own = words[i : i + together], slice(i, i + together * height)
                    right = ([self._right.row(w, at + n, exact) for w in some] for n in range(each))
                    total[own] = add_rows(total[own], k + at - tile.start, left_at, right, 1)
            return [due + pace, *total]

        for part in range(0, PANEL, width):
            inside = range(part, part + width, self._lanes)
            columns = [(i, column) for i in range(len(blocks)) for column in inside]
            before = [due + share * (part // width), *[self._zero] * (height * len(columns))]
            add = partial(add_step, columns)
            _, *sums = emit.carry(first, first + self._span, STEP, before, add)
            self._add_scaled(sums, tile, panel, first, columns)

    def _add_many(self, block: Block, depth: Size, start: Size, stop: Size) -> None:
        """Adds the products of other numbers of rows, tile by tile for each group."""
        shares = Shares(block.height, self._rows)
        least = 2 * self._right.few if self._right.twice else self._right.few
        for first in emit.loop(start, stop, self._span):
            self._widen(block, first)
            for _, top, bottom in shares.spans(some=True):
                for height in heights(self._rows, range(least + 1, BLOCK + 1)):
                    with emit.when(emit.compare("equal", bottom - top, height)):
                        tile = _Part(top, height, block.height, depth, start)
                        self._add_widened(tile, block.panel, first)

    def _widen(self, block: Block, first: Size) -> None:
        """Puts the weights of a span on the stack, as float32."""
        for k in emit.loop(0, self._span, STEP):
            for column in range(0, PANEL, self._lanes):
                words = self._right.words(block.panel, first + k, column)
                for number in range(STEP):
                    value = self._right.row(words, number, True)
                    place = (k + number) * PANEL + column
                    memory.store(value, self._widened, place, "float32")

    def _add_widened(self, tile: _Part, panel: Size, first: Size) -> None:
        """Adds the sums of a tile with the span of element `first`, widened on the stack."""
        width, done = PANEL // 2, first - tile.start
        left_at = self._left.reader(tile.top, tile.depth)
        asked, share = self._asked(tile, panel, first, 2)
        pace = share * TOGETHER // self._span
        lines = range(-(-TOGETHER * PANEL // 2 // LINE))
        columns = range(0, width, self._lanes)
        zeros = [self._zero] * (tile.height * len(columns))

        for part in emit.loop(0, PANEL, width):

            def right_at(k: Any, part: Any = part) -> list[Any]:
                places = (k * PANEL + part + i for i in columns)
                return [memory.load(self._widened, at, "float32", self._lanes) for at in places]

            def add_steps(k: Any, due: Any, *sums: Any) -> list[Any]:
                for _ in lines:
                    memory.prefetch(self._frame.inputs[1], due, "int8")
                right = map(right_at, (k + i for i in range(TOGETHER)))
                return [due + pace, *add_rows(sums, k + done, left_at, right, 1)]

            before = [asked + part // width * share, *zeros]
            _, *sums = emit.carry(0, self._span, TOGETHER, before, add_steps)
            self._add_scaled(sums, tile, panel, first, [(0, part + i) for i in columns])

    def _asked(self, tile: _Part, panel: Size, first: Size, parts: int) -> tuple[Any, Any]:
        """From which byte on a tile asks for weights, and for how many beside each part of a panel.

        Each tile asks for its share of what comes soon, beside all parts alike.
        """
        rows, size = emit.as_index(tile.all_rows), self._right.bytes * self._span // STEP
        due = self._place(panel, first) + self._soon + emit.as_index(tile.top) * size // rows
        return due, emit.index(size * tile.height // parts) // rows

    def _place(self, panel: Size, k: Size) -> Size:
        """At which byte of the weights the elements of a panel from `k` on begin."""
        return sizes.floordiv(panel * self._k + k, STEP) * self._right.bytes

    def _add_scaled(
        self,
        sums: Sequence[Any],
        tile: _Part,
        panel: Size,
        k: Size,
        columns: Sequence[tuple[int, Size]],
    ) -> None:
        """Adds sums of the span of element `k` times its scales to the totals of a tile.

        The scales of the groups that are asked for next are asked for, too.
        """
        scales, dtype = self._frame.inputs[2], self._frame.spec.operands[2].dtype
        ahead = max(1, self._soon // (self._group // STEP * self._right.bytes)) * PANEL
        each, found = LINE // emit.ITEM_SIZE[dtype] // self._lanes, []
        for number, (i, column) in enumerate(columns):
            group = (panel + i) * self._groups + sizes.floordiv(k, self._group)
            place = group * PANEL + column
            if number % each == 0:
                memory.prefetch(scales, place + ahead, dtype)
            found.append(memory.load(scales, place, dtype, self._lanes))
        rows, aligned = [tile.top + r for r in range(tile.height)], self._lanes * WORD
        above = self._left.above(tile.height, k - tile.start)
        for number, value in enumerate(sums):
            row, i = divmod(number, len(columns))
            # Volatile: LLVM would keep totals in registers that it lacks, and spill them.
            place = (rows[row] + columns[i][0]) * PANEL + columns[i][1]
            at = memory.at(self._sums, place, "float32")
            total = llvm.load(value.type, at, alignment=aligned, volatile_=True)
            if above:  # apart from the sum, which is not complete yet
                total = emit.fma(above[row], found[i], total)
            total = emit.fma(value, found[i], total)
            llvm.store(total, at, alignment=aligned, volatile_=True)
