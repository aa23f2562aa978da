"""What comes to a block of attention by warpgroups: queries once, keys and values in stages.

A warpgroup of its own starts the copies by TMA, a thread for each box. Where a warp that multiplies
starts them, all others wait for it at every step: on H100 it took such a warp 680 cycles of 3100.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash.wide_tiles import (
    CONSUMERS,
    CONSUMING,
    PLANS,
    ROWS,
    THREADS,
    WIDE,
    Tile,
    Tiles,
)
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.sizes import Size

_BLANKED = 3  # By barriers 1 and 2 the warpgroups take turns.
_OWN = 4  # And 5: of each alone. The other may take its turn for the next tile meanwhile.


class Layout:
    """Shared memory in bytes: panels of queries, stages of keys and of values, mbarriers.

    A panel has 64 elements of each row, in lines of 128 bytes.

    Queries are one stage, or one for each warpgroup where those have them `apart`.
    """

    def __init__(self, size: int, apart: bool) -> None:
        self.size, self.panels, self.apart = size, size // WIDE, apart
        self.keys = PLANS[size].keys
        self.key_panel = self.keys * staging.LINE
        self.counts = (CONSUMERS if apart else 1, *PLANS[size].stages)
        self.query_rows = ROWS // self.counts[0]
        self.query_panel = self.query_rows * staging.LINE
        panels = self.query_panel, self.key_panel, self.key_panel
        self.stages = [self.panels * panel for panel in panels]
        ends = [0]
        for stage, count in zip(self.stages, self.counts, strict=True):
            ends.append(ends[-1] + count * stage)
        *self.first, barriers = ends
        self.barriers = []
        for count in self.counts:
            self.barriers.append(barriers)
            barriers += instructions.ring_bytes(count)
        self.total = barriers

    def queries(self, warpgroup: Size, panel: int) -> Size:
        """Where those of a warpgroup are in a panel."""
        first = self.stages[0] if self.apart else instructions.ROWS * staging.LINE
        return warpgroup * first + panel * self.query_panel


class Block:
    """What the tiles of a block have in common: its stages, and who brings what to them."""

    def __init__(self, frame: _frame.Frame, shared: mma.DynamicShared, tiles: Tiles) -> None:
        self.frame, self.shared, self.tiles = frame, shared, tiles
        size = frame.spec.operands[0].shape[-1]
        self.layout = layout = Layout(int(size), tiles.several)  # type: ignore[arg-type]
        self.rings = [
            instructions.Ring(shared, *row)
            for row in zip(layout.counts, layout.stages, layout.barriers, strict=True)
        ]
        self.thread = pieces.word(_block.thread()) % instructions.THREADS
        self.warpgroup = _block.thread() // instructions.THREADS
        # Copies of a warp come one after another: neighbouring boxes are for different warps.
        parts = self.thread % _block.WARP, self.thread // _block.WARP
        lane, warp = map(pieces.size, parts)
        self.box = lane * instructions.WARPS + warp

    def boxes(self, operand: int) -> int:
        """Boxes of a stage."""
        return self.layout.keys // self.tiles.lines if operand else 1

    def initialise(self) -> None:
        """Makes the mbarriers, and fills lines that no row has; the block meets after it."""
        with emit.when(emit.compare("equal", _block.thread(), 0)):
            for tensor_map in self.frame.tensor_maps:
                tma.prefetch(tensor_map)
            for operand, ring in enumerate(self.rings):
                full = pieces.word(self.boxes(operand))
                readers = CONSUMERS // (1 if operand else self.layout.counts[0])
                ring.initialise(full=full, empty=pieces.word(readers))
        if self.tiles.rows < ROWS:
            panel, rows = self.layout.query_panel, self.tiles.rows
            self.blank(emit.index(0), panel, rows, _block.thread(), THREADS)

    def produce(self) -> None:
        """Brings the queries, and the keys and values of all steps, as stages get empty.

        Queries by a thread of their own, so that keys need not wait until it is their turn.
        """
        of_queries = emit.compare("equal", self.box, instructions.THREADS - 1)
        of_keys = emit.compare("less", self.box, self.boxes(1))
        roles = (of_queries, Feed.bring_queries), (of_keys, Feed.bring_keys)

        def both(*tile: Any) -> None:
            feed = Feed(self, *tile)
            for is_mine, bring in roles:
                with emit.when(is_mine):
                    bring(feed)

        if not self.tiles.several:
            self.tiles.each(both)
            return
        for is_mine, bring in roles:
            with emit.when(is_mine):
                self.tiles.each(lambda *tile, bring=bring: bring(Feed(self, *tile)))

    def blank(self, start: Size, panel: int, line: Size, thread: Size, threads: int) -> None:
        """Writes zeros to the lines of panels from `line` on, for those who multiply them."""
        chunks, lines = staging.LINE // mma.CHUNK, panel // staging.LINE
        zero = emit.constant(emit.integer(32), 0, mma.CHUNK // 4)
        for number in range(self.layout.panels):
            first = start + number * panel
            for index in emit.loop(line * chunks + thread, lines * chunks, threads):
                self.shared.store(zero, first + index * mma.CHUNK)
        tma.fence()


class Feed:
    """A tile, and all keys that its rows see, behind so many steps and tiles of the block."""

    def __init__(self, block: Block, tile: Tile, steps_before: Any, before: Any) -> None:
        self._block, self._tile, self._task = block, tile, tile.task
        self._frame, self._shared, self._layout = block.frame, block.shared, block.layout
        self._before = before * self._layout.counts[0], steps_before, steps_before
        self._reach = tile.reach
        self._second = emit.compare("equal", block.warpgroup, 1)

    def _check(self) -> None:
        """Checks the boxes of all keys that are brought, each by a thread that multiplies."""
        if self._tile.check is None:
            return
        start, count = (pieces.size(number) for number in (self._reach.start, self._reach.count))
        stop = emit.minimum(start + count * self._layout.keys, emit.as_index(self._task.length))
        lines = self._block.tiles.lines
        for key in emit.loop(start + _block.thread() * lines, stop, CONSUMING * lines):
            self._tile.check(key)

    def meet(self) -> None:
        """A barrier of the warpgroup, one of those that multiply."""
        instructions.meet(self._block.warpgroup + _OWN, instructions.THREADS)

    def _turn(self, operand: int, number: Any) -> instructions.Turn:
        """The stage of that number, of those that the tile has of an operand."""
        return self._block.rings[operand].turn(self._before[operand] + number)

    def bring_queries(self) -> None:
        """One thread brings the queries."""
        for number in range(self._layout.counts[0]):
            first = pieces.word(self._reach.first) + number * self._layout.query_rows
            self._copy(0, pieces.word(number), first)

    def bring_keys(self) -> None:
        """A thread for each box brings keys and values."""
        zero, one = pieces.word(0), pieces.word(1)
        for step in emit.loop(zero, self._reach.count, one):
            for operand in (1, 2):
                self._copy(operand, step, self._reach.start + step * self._layout.keys)

    def _copy(self, operand: int, step: Any, row: Any) -> None:
        """Each thread copies a box, of which it looks for the place while the stage is in use."""
        layout, number, turn = self._layout, emit.index(0), self._turn(operand, step)
        if self._block.boxes(operand) > 1:
            number = self._block.box
        lines, panel = self._tile.rows // layout.counts[0], layout.query_panel
        if operand:
            lines, panel = self._block.tiles.lines, layout.key_panel
        corner = self._tile.corner(operand, row + pieces.word(number) * lines)
        where = [pieces.word(place) for place in corner]
        turn.wait_until_empty()
        turn.expect(layout.panels * lines * staging.LINE)
        for across in range(layout.panels):
            start = turn.start + (layout.first[operand] + across * panel)
            tma.load(
                self._shared.at(start + number * (lines * staging.LINE)),
                self._frame.tensor_maps[operand],
                [*where, pieces.word(across * WIDE)],
                turn.full,
            )

    def _blank_values(self, number: Size) -> None:
        """Zeros in place of what the last step has behind the last key.

        Shares of 0 would not make up for values there that are infinite. The warpgroup that
        multiplies first writes them.
        """
        if self._tile.bounded:
            return
        left = pieces.word(self._task.length) - (self._reach.start + number * self._layout.keys)

        def write() -> list[Any]:
            start = self._turn(2, number).start + self._layout.first[2]
            line = pieces.size(emit.maximum(left, 0))
            thread = pieces.size(self._block.thread)
            self._block.blank(start, self._layout.key_panel, line, thread, instructions.THREADS)
            self.meet()
            instructions.arrive(_BLANKED, CONSUMING)
            return []

        def wait() -> list[Any]:
            instructions.meet(_BLANKED, CONSUMING)
            return []

        with emit.when(emit.compare("less", left, self._layout.keys)):
            emit.either(self._second, [], wait, write)
