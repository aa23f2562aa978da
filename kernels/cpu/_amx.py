"""Products by panels of 32 columns in tiles of 16 rows by 64 bytes (Intel AMX).

Tasks are taken in runs that share a block of rows. 512 bytes of each row are put on the stack, tile
by tile (rows that lie a power of two apart would share a few sets of the cache), and multiplied
with all panels of the run, whose sums wait on the stack for the next 512. A step along k loads two
tiles of each side for four products: those of a from the first cache, where two tiles of rows stay
for all panels, those of b from the second.

Rows beyond the last are computed and dropped, and what lies beyond k is zero on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _amx_tiles as tiles
from heddle.kernels.cpu._amx_tiles import TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu._blocks import PANEL, Rows
from heddle.kernels.cpu._panels import BLOCK, LINE, Tasks
from heddle.kernels.sizes import Size

WORD = 4
"""Bytes along k that lie together in b: a pair of bfloat16 or four of int8."""

PANEL_ROW = PANEL * WORD
"""Bytes of a row of a panel, and of a row of sums."""

STEP = 2 * TILE
"""Bytes that a step along k takes of a panel, and of a pair of tiles of a."""

CHUNK = 8
"""Steps before the next panel of a run: what they take of two tiles of rows stays in the first
cache, beside as much of a panel, which comes from the second one, and the sums of both."""

RUN = 16
"""Panels of a run at most: putting a block's rows in tiles costs little beside as many products."""


@dataclass(frozen=True)
class Sides:
    """Rows of `k` elements of `dtype` from `a` on, and panels from `b` on."""

    a: Any
    b: Any
    dtype: str
    k: Size

    @property
    def words(self) -> Size:
        """Rows of a panel."""
        return sizes.ceildiv(self.k * emit.ITEM_SIZE[self.dtype], WORD)

    @property
    def steps(self) -> Size:
        """Tiles along k; the last one may have fewer words."""
        return sizes.ceildiv(self.words, TILE_ROWS)

    @property
    def whole(self) -> Size:
        """Tiles along k that are full of words."""
        return sizes.floordiv(self.words, TILE_ROWS)

    @property
    def ends_within(self) -> bool:
        """Whether the last tile along k may have fewer words."""
        return not isinstance(self.words, int) or self.words % TILE_ROWS > 0


def emit_runs(frame: host.Frame, dtype: str, kind: type[Tasks] = Tasks) -> None:
    """Emits the loop over tasks, whose rows are cut by `kind`; sums are of `dtype`."""
    spec = frame.spec
    k = frame.size(spec.operands[0].shape[-1])
    sides = Sides(frame.inputs[0], frame.inputs[1], spec.operands[0].dtype, k)
    tasks = kind(frame, host.lanes_for(frame.machine, [dtype]), dtype)
    run = Run(sides, tasks)
    for rows, first, last in tasks.runs():
        run.compute(rows, first, last)


class Run:
    """The sums of a block of rows by several panels; made in the function's entry block."""

    def __init__(self, sides: Sides, tasks: Tasks) -> None:
        self.sides, self.tasks = sides, tasks
        m, panels = tasks.m, tasks.panels
        self.panels = min(RUN, panels) if isinstance(panels, int) else RUN
        self.chunk = min(CHUNK, sides.steps) if isinstance(sides.steps, int) else CHUNK
        self.height = min(BLOCK, _whole_pairs(m)) if isinstance(m, int) else BLOCK
        self.left = host.byte_buffer(self.height * self.chunk * TILE_ROW)
        self.scratch = host.byte_buffer(self.panels * self.height * PANEL_ROW)
        if sides.ends_within:
            self.right = host.byte_buffer(STEP)
            _clear(self.right, STEP)

    def compute(self, rows: Rows, first: Size, last: Size) -> None:
        """Emits the results of the rows by their panels from `first` to `last - 1`."""
        for panel in emit.loop(first, last, self.panels):
            count = sizes.least(emit.index(self.panels), last - panel)
            self.multiply(rows, panel, count)
            for other in emit.loop(0, count):
                self.tasks.write(self.tasks.block(rows, panel + other), self.sums(other))

    def sums(self, number: Size) -> Any:
        """The sums of the run's panel `number`, in rows of 32."""
        return bytes_at(self.scratch, number * (self.height * PANEL_ROW))

    def multiply(self, rows: Rows, panel: Size, count: Size) -> None:
        """Emits the sums of the rows by `count` of their panels, from number `panel` on."""
        steps = rows.steps(self.sides.steps)

        def add(start: Size, stop: Size, first: bool) -> None:
            self._pack(rows, start, stop)
            for top in emit.loop(0, rows.height, 2 * TILE_ROWS):
                for number in emit.loop(0, count):
                    block = self.tasks.block(rows, panel + number)
                    if first:
                        with emit.when(emit.compare("equal", top, 0)):
                            self.tasks.ask(block)
                    base = block.panel * self.sides.words * PANEL_ROW
                    self._fill_up(base, stop)
                    self._add_tiles(number, top, rows.height - top, base, start, stop, first)

        add(0, sizes.least(steps, self.chunk), True)
        if not isinstance(steps, int) or steps > self.chunk:
            for start in emit.loop(self.chunk, steps, self.chunk):
                add(start, sizes.least(start + self.chunk, steps), False)

    def _pack(self, rows: Rows, start: Size, stop: Size) -> None:
        """Puts a part of the rows on the stack, tile by tile, zero beyond k."""
        sides = self.sides
        dtype = memory.raw(sides.dtype)
        lanes = TILE_ROW // emit.ITEM_SIZE[dtype]
        full = sizes.least(stop, sizes.floordiv(sides.k, lanes))

        for r in emit.loop(0, rows.height):
            source = (rows.row + r) * sides.k
            place = bytes_at(self.left, self.packed(r))

            def copy(step: Any, mask: Any, source: Any = source, place: Any = place) -> None:
                value = memory.load(sides.a, source + step * lanes, dtype, lanes, mask)
                target = bytes_at(place, (step - start) * STEP)
                memory.store(value, target, 0, dtype, alignment=TILE_ROW)

            for step in emit.loop(start, full):
                copy(step, None)
            if not isinstance(sides.k, int) or sides.k % lanes:
                for step in emit.loop(full, stop):
                    copy(step, host.first_lanes(sides.k - step * lanes, lanes))

    def packed(self, r: Size) -> Size:
        """At which byte on the stack row `r` of the block begins; its tiles are `STEP` apart."""
        pair, inside = r // (2 * TILE_ROWS), r % (2 * TILE_ROWS)
        return pair * (self.chunk * STEP) + inside * TILE_ROW

    def _fill_up(self, base: Size, stop: Size) -> None:
        """Copies the last words of the panel at `base` to where zeros follow, if they come now."""
        sides = self.sides
        if not sides.ends_within:
            return
        last = sides.whole * TILE_ROWS
        now = emit.compare("greater", emit.as_index(stop), sides.whole)
        for r in emit.loop(0, emit.select(now, emit.as_index(sides.words - last), 0)):
            for half in (0, TILE_ROW):
                source = bytes_at(sides.b, base + (last + r) * PANEL_ROW + half)
                value = memory.load(source, 0, "uint32", TILE_ROW // WORD)
                target = bytes_at(self.right, r * PANEL_ROW + half)
                memory.store(value, target, 0, "uint32", alignment=TILE_ROW)

    def _add_tiles(
        self, number: Any, top: Any, height: Size, base: Size, start: Size, stop: Size, first: bool
    ) -> None:
        """Adds the products of the steps from `start` to `stop - 1` to two or four tiles of sums.

        They are those of the rows from `top` on, of which `height` are left, by panel `number`.
        """
        sides = self.sides
        packed = bytes_at(self.left, self.packed(top))
        sums = bytes_at(self.sums(number), top * PANEL_ROW)

        def add(count: int, ask: bool) -> None:
            def step_of(step: Any, *before: Any) -> list[Any]:
                pair = bytes_at(packed, (step - start) * STEP)
                left = [tiles.load(bytes_at(pair, i * TILE), TILE_ROW) for i in range(count)]
                panel = bytes_at(sides.b, base + step * STEP)
                if sides.ends_within:
                    panel = emit.select(emit.compare("equal", step, sides.whole), self.right, panel)
                right = [tiles.load(bytes_at(panel, j * TILE_ROW), PANEL_ROW) for j in range(2)]
                if ask:
                    _ask(sides.b, base + sides.words * PANEL_ROW + step * STEP)
                return [
                    tiles.multiply(sides.dtype, total, left[i // 2], right[i % 2])
                    for i, total in enumerate(before)
                ]

            places = [
                bytes_at(sums, i * (TILE_ROWS * PANEL_ROW) + j * TILE_ROW)
                for i in range(count)
                for j in range(2)
            ]
            totals = [tiles.zero() if first else tiles.load(place, PANEL_ROW) for place in places]
            totals = emit.carry(start, stop, 1, totals, step_of)
            for place, total in zip(places, totals, strict=True):
                tiles.store(total, place, PANEL_ROW)

        # The first rows ask for the next panel; those below find it in the second cache.
        for ask, at in ((True, "equal"), (False, "greater")):
            with emit.when(emit.compare(at, top, 0)):
                for count, left in ((2, "greater"), (1, "less_equal")):
                    with emit.when(emit.compare(left, emit.as_index(height), TILE_ROWS)):
                        add(count, ask)


def _whole_pairs(count: int) -> int:
    """Rows of as many pairs of tiles as `count` rows need."""
    return -(-count // (2 * TILE_ROWS)) * (2 * TILE_ROWS)


def bytes_at(base: Any, offset: Size) -> Any:
    """The pointer to byte `offset`."""
    return memory.at(base, offset, "int8")


def _clear(base: Any, size: int) -> None:
    lanes = TILE_ROW // WORD
    zero = emit.constant(emit.integer(32), 0, lanes)
    for place in range(0, size // WORD, lanes):
        memory.store(zero, base, place, "uint32", alignment=TILE_ROW)


def _ask(base: Any, offset: Size) -> None:
    """Prefetches what a step takes of a panel, which need not exist.

    To the second cache: the first one holds the rows.
    """
    for line in range(0, STEP, LINE):
        memory.prefetch(base, offset + line, "int8", level=2)
