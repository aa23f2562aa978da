"""Products of 17 to 64 rows by wgmma, on sm_90a, as fast as b can be read.

A tile is 64 rows by up to 256 columns, so that rows are read from the L2 cache a few times only;
the blocks of a cluster share out its steps along k. Of a block's two warpgroups one brings
operands to a ring of stages, by TMA, and one multiplies. Then each block adds up a part of the
rows, which it reads in the shared memory of all of them, always in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import beside, matrices, mma, outputs, pieces, staging
from heddle.kernels.cuda.warpgroup import feed, instructions, panels, steps, tma
from heddle.kernels.cuda.warpgroup.short_plan import ShortPlan
from heddle.kernels.sizes import Size

_BARRIER = 1  # Of the warpgroup that multiplies.


def emit_short(frame: _frame.Frame, plan: ShortPlan) -> None:
    """Emits what a block does."""
    block = _Block(frame, plan)
    with emit.when(emit.compare("equal", _block.thread(), 0)):
        block.initialise()
    _block.barrier()

    def consume() -> list[Any]:
        block.consume()
        return []

    def produce() -> list[Any]:
        block.produce()
        return []

    consumes = emit.compare("less", _block.thread(), instructions.THREADS)
    emit.either(consumes, [], consume, produce)


class _Block:
    """A block's part of a tile."""

    def __init__(self, frame: _frame.Frame, plan: ShortPlan) -> None:
        self._frame, self._plan, tile, problem = frame, plan, plan.tile, plan.problem
        self._shared = mma.DynamicShared("stages")
        self._ring = instructions.Ring(self._shared, plan.stages, tile.stage, plan.barriers)
        block = _block.block()
        self._rank, number = block % plan.parts, block // plan.parts
        self._which = which = _Which.of(frame, plan, number)
        m, k = (frame.size(x) for x in (problem.m, problem.k))
        across = which.across
        self._where = outputs.Place(
            which.tile // across, emit.index(0), which.tile % across * tile.each, m, which.n, k
        )
        every = pieces.word(sizes.greatest(sizes.ceildiv(k, tile.depth), 1))
        rank = pieces.word(self._rank)
        start, stop = (part * every // plan.parts for part in (rank, rank + 1))
        zero = pieces.word(0)
        self._piece = pieces.Piece(number, start, stop - start, zero, zero, zero, zero)
        self._feed = _Feed(frame, plan, self._shared, self._ring, zero, False, which)

    def initialise(self) -> None:
        """One thread makes the mbarriers, and sends for the tensor maps."""
        self._feed.prefetch()
        one = pieces.word(1)
        self._ring.initialise(full=one, empty=one)

    def produce(self) -> None:
        """What the warpgroup does that brings operands."""

        def this(body: Callable[[pieces.Piece, outputs.Place, Any], None]) -> None:
            body(self._piece, self._where, pieces.word(0))
            self._frame.let_next_start()

        self._feed.produce(this)
        if self._plan.parts > 1:
            tma.meet_in_cluster()  # All sums are there.
            tma.meet_in_cluster()  # Nobody reads them any more.

    def consume(self) -> None:
        """What the other does: it multiplies, and writes its share of the tile's rows."""
        plan, tile = self._plan, self._plan.tile
        self._frame.wait()
        multiply = steps.Steps(plan, self._shared, self._ring, self._release)
        parts = multiply(0, self._piece.length, pieces.word(0))
        own = outputs.SlicedSums(self._shared, tile.kind.sums, 1, panels.WARP_ROWS, tile.columns)
        each = 4 * outputs.WARP_COLUMNS // 8
        for i in range(0, len(parts), each):
            warp = _block.thread() // _block.WARP
            own.store(parts[i : i + each], warp, i // each * outputs.WARP_COLUMNS)
        if plan.parts == 1:
            instructions.meet(_BARRIER, instructions.THREADS)
            self._write(0, tile.rows, own.total)
            return
        tma.meet_in_cluster()
        rows = tile.rows // plan.parts
        numbers = map(pieces.word, range(plan.parts))
        each_part = [replace(own, shared=tma.Peer(self._shared, i)) for i in numbers]

        def total(row: Size, column: Size, lanes: int) -> Any:
            found, *others = (part.total(row, column, lanes) for part in each_part)
            return sum(others, found)

        self._write(self._rank * rows, rows, total)
        tma.meet_in_cluster()

    def _write(self, first: Size, rows: int, sums: Callable[[Size, Size, int], Any]) -> None:
        """Writes so many rows of the tile, from the first on."""
        where = replace(self._where, row=emit.as_index(first))

        def behind(row: Size, column: Size, lanes: int) -> Any:
            return sums(first + row, column, lanes)

        tile = rows, self._plan.tile.columns
        for number, frame in enumerate(self._which.frames):
            with self._which.when(number):
                own = replace(where, n=_width(frame))
                outputs.write(frame, own, tile, behind, instructions.THREADS)

    @staticmethod
    def _release(turn: instructions.Turn) -> None:
        """The warpgroup does not read a stage any more."""
        with emit.when(feed.speaks()):
            turn.arrive_empty()


def _width(frame: _frame.Frame) -> Size:
    """The columns of a product."""
    return frame.size(matrices.problem(frame.spec).n)


@dataclass(frozen=True)
class _Which:
    """Which of the products of the same rows a block's tile is of: the `frames` of all of them.

    The `tile` is that of the product, which has so many `across` in a row, and `n` columns.
    """

    frames: Sequence[_frame.Frame]
    number: Size
    tile: Size
    across: Size
    n: Size

    @staticmethod
    def of(frame: _frame.Frame, plan: ShortPlan, tile: Size) -> _Which:
        """That of tile number `tile` of all products."""
        frames, each = beside.frames(frame), [frame.size(count) for count in plan.across]
        n = [_width(one) for one in frames]
        number, first, before = emit.index(0), emit.index(0), emit.index(0)
        if len(frames) == 1:
            return _Which(frames, number, tile, *each, *n)
        for i, count in enumerate(each[:-1], 1):
            before = before + count
            behind = emit.compare("greater_equal", tile, before)
            number = emit.select(behind, emit.index(i), number)
            first = emit.select(behind, before, first)
        of_each = ([emit.as_index(size) for size in sizes] for sizes in (each, n))
        across, columns = (beside.chosen(number, sizes) for sizes in of_each)
        return _Which(frames, number, tile - first, across, columns)

    def when(self, number: int) -> AbstractContextManager[Any]:
        """For a tile of the product of that number."""
        alone = len(self.frames) == 1
        return nullcontext() if alone else emit.when(emit.compare("equal", self.number, number))


@dataclass(frozen=True)
class _Feed(feed.Feed):
    """Brings the b of a tile's product, and that of its gate: it lies behind it in a stage.

    Where the frame has yet to wait, a part of the first ring of b comes before.
    """

    which: _Which

    def _sides(self, number: Size) -> Sequence[staging.Matrix]:
        first, *others = (staging.sides(frame, number) for frame in self.which.frames)
        if not others:
            return first
        a, b = first
        pointers = [right.pointer for _, right in (first, *others)]
        right = replace(b, pointer=beside.chosen(self.which.number, pointers))
        if self.plan.tile.transposed:
            return a, replace(right, rows=self.which.n)
        return a, replace(right, columns=self.which.n)

    def _copy(self, piece: pieces.Piece, place: outputs.Place, first: Any) -> None:
        a, b = self._matrices(place)

        def of_a(turn: instructions.Turn, k: Any) -> None:
            position = [a, pieces.word(place.row), k]
            tma.load(self.shared.at(turn.start), self.frame.tensor_maps[0], position, turn.full)

        def of_b(turn: instructions.Turn, k: Any) -> None:
            turn.expect(self.plan.tile.stage)
            self._fetch_b(self.frame.tensor_maps[1], turn, place, b, k)

        early = pieces.word(0)
        if self.frame.ahead:
            early = emit.minimum(piece.length, self.ring.stages * staging.EARLY // 100)
            for turn, k in self._steps_of(piece, first, stop=early):
                with emit.when(feed.speaks()):
                    of_b(turn, k)
            self.frame.wait()
            for turn, k in self._steps_of(piece, first, stop=early):
                with emit.when(feed.speaks()):
                    of_a(turn, k)
        for turn, k in self._steps_of(piece, first, early):
            with emit.when(feed.speaks()):
                of_b(turn, k)
                of_a(turn, k)

    def _gather(self, piece: pieces.Piece, place: outputs.Place, first: Any) -> None:
        self.frame.wait()
        super()._gather(piece, place, first)

    def _fetch_b(
        self, tensor_map: Any, turn: instructions.Turn, place: outputs.Place, number: Any, k: Any
    ) -> None:
        first, *others = self.frame.tensor_maps[1:]
        if len(self.which.frames) > 1:
            for i, right in enumerate((first, *others)):
                with self.which.when(i):
                    super()._fetch_b(right, turn, place, number, k)
            return
        super()._fetch_b(first, turn, place, number, k)
        for i, gate in enumerate(others, 1):
            target = turn.start + (self.plan.tile.b_place + i * self.plan.half * staging.LINE)
            column = pieces.word(place.column)
            tma.load(self.shared.at(target), gate, [number, column, k], turn.full)
