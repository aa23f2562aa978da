"""Products by wgmma, on sm_90a: one block for each multiprocessor goes from tile to tile.

Of its three warpgroups one brings operands to a ring of stages, by TMA, and two multiply, 64 rows
of a tile each. Two blocks of a cluster have tiles one above the other: each fetches half of the
columns of b for both. `products.pieces` says who makes which tiles, `result` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma, partial_sums, pieces, row_pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS
from heddle.kernels.cuda.warpgroup import (
    feed,
    instructions,
    result,
    scaled,
    scaled_feed,
    steps,
    tma,
    windows,
)
from heddle.kernels.cuda.warpgroup.plan import CONSUMERS, KEPT, REGISTERS, ROWS_TOGETHER, Plan
from heddle.kernels.row_groups import most
from heddle.kernels.sizes import Size
from heddle.kernels.spec import product


def emit_product(frame: _frame.Frame, plan: Plan) -> None:
    """Emits what a block does."""
    block = _Block(frame, plan)
    thread = _block.thread()
    with emit.when(emit.compare("equal", thread, 0)):
        block.initialise()
    block.meet()
    consumes = emit.compare("less", thread, CONSUMERS * instructions.THREADS)

    instructions.registers_at_launch(REGISTERS)
    many, few = plan.registers

    def consume() -> list[Any]:
        instructions.registers(many, "increase")
        block.consume()
        return []

    def produce() -> list[Any]:
        instructions.registers(few, "decrease")
        block.feed.produce(block.each_piece)
        return []

    emit.either(consumes, [], consume, produce)
    block.meet()


class _Block:
    """What the threads of a block have in common."""

    def __init__(self, frame: _frame.Frame, plan: Plan) -> None:
        self._frame, self._plan, tile = frame, plan, plan.tile
        problem = plan.problem
        self._m, self._n, self._k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
        self._shared = shared = mma.DynamicShared("stages")
        self._ring = instructions.Ring(shared, plan.stages, tile.stage, plan.barriers)
        self._rank = tma.rank() if plan.cluster > 1 else 0
        # Of all lanes alike: so it is in registers of the warp, and descriptors with it.
        self._warpgroup = pieces.size(
            _block.shuffle_from(pieces.word(_block.thread() // instructions.THREADS), 0)
        )
        # Few rows: the tiles of a cluster lie side by side, so that none is without rows.
        # Those that share a do, too.
        beside: Any = plan.scaled
        if plan.cluster > 1 and not plan.scaled and not isinstance(self._m, int):
            beside = emit.compare("less_equal", self._m, ROWS)
        self._beside = beside
        self._down = _chosen(beside, 1, plan.cluster)
        self._across = _chosen(beside, plan.cluster, 1)
        self._tiles_down = _ceildiv(self._m, self._down * tile.rows)
        if plan.grouped:
            self._tiles_down = pieces.word(frame.size(most(plan.spec, tile.rows)))
        self._tiles_across = _ceildiv(self._n, self._across * tile.columns)
        number = frame.size(product(problem.batch))
        tiles = self._tiles_down * self._tiles_across * pieces.word(number)
        self._steps = pieces.word(sizes.greatest(sizes.ceildiv(self._k, tile.depth), 1))
        rows = emit.minimum(pieces.word(self._m), ROWS_TOGETHER)
        kept = emit.compare("less_equal", rows * self._steps, KEPT // plan.line)
        self._pieces = pieces.Pieces(tiles, self._steps, plan.cluster, plan.cost, kept)
        stores = frame.tensor_maps[-1] if plan.stored else None
        self.feed = _feed_of(plan)(frame, plan, shared, self._ring, self._rank, self._beside)
        self._meeting = partial_sums.Meeting(
            frame,
            shared,
            plan.flags,
            tile.kind.sums,
            plan.sums,
            plan.cluster * CONSUMERS,
        )
        self._out = result.WayOut(frame, shared, plan.panels, stores)

    def initialise(self) -> None:
        """One thread makes the mbarriers, and sends for the tensor maps."""
        self.feed.prefetch()
        self._out.prefetch()
        full = pieces.word(windows.ARRIVALS if self._plan.gathers else 1)
        empty = pieces.word(self._down * CONSUMERS)
        if self._plan.scaled:  # Every warp of its own, and the consumers of the other block.
            empty = pieces.word(CONSUMERS * (instructions.WARPS + self._plan.cluster - 1))
        self._ring.initialise(full=full, empty=empty)

    def meet(self) -> None:
        """Waits for all threads that use this block's shared memory."""
        if self._plan.cluster > 1:
            tma.meet_in_cluster()
        else:
            _block.barrier()

    def _place(self, tile: Any) -> Place:
        """The place of the block's tile, in an order in which neighbours read the same memory.

        Of rows that are sorted by group, its `number` is the group, and its `m` where that ends.
        """
        each = self._tiles_down * self._tiles_across
        number, rest = tile // each, tile % each
        together = ROWS_TOGETHER // (self._plan.tile.rows * self._plan.cluster)
        group, rest = (
            rest // (self._tiles_across * together),
            rest % (self._tiles_across * together),
        )
        side_by_side = emit.minimum(self._tiles_down - group * together, together)
        row, column = group * together + rest % side_by_side, rest // side_by_side
        if self._plan.grouped:
            group, top, end = row_pieces.find(self._frame, pieces.size(row), self._plan.tile.rows)
            right = pieces.size(column * self._plan.tile.columns)
            return Place(group, top, right, end, self._n, self._k)
        row = row * self._down + _chosen(self._beside, 0, self._rank)
        column = column * self._across + _chosen(self._beside, self._rank, 0)
        return Place(
            pieces.size(number),
            pieces.size(row * self._plan.tile.rows),
            pieces.size(column * self._plan.tile.columns),
            self._m,
            self._n,
            self._k,
        )

    def each_piece(self, body: Callable[[pieces.Piece, Place, Any], None]) -> None:
        """Emits `body(piece, place, step)`, whose steps count through all pieces from `step` on."""

        def one(number: Any, step: Any) -> Sequence[Any]:
            piece = self._pieces[pieces.word(number)]
            place = self._place(piece.tile)
            if self._plan.grouped:
                exists = emit.compare("greater", piece.length, 0)
                place = replace(place, m=emit.select(exists, place.m, 0))
                some = emit.compare("greater_equal", place.number, 0)
                some = some & emit.compare("less", place.row, place.m)
                piece = replace(piece, length=emit.select(some, piece.length, 0))
            body(piece, place, step)
            return [step + piece.length]

        count = pieces.size(self._pieces.count)
        emit.carry(0, count, 1, [emit.constant(emit.integer(32), 0)], one)

    def consume(self) -> None:
        """What each of the first warpgroups does: it multiplies, and writes its rows."""
        self.each_piece(self._make)
        with emit.when(emit.compare("equal", _block.thread() % _block.WARP, 0)):
            self._out.finish()

    def _make(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        if self._plan.scaled:
            self._make_scaled(piece, place, first)
            return
        rows = self._warpgroup * (instructions.ROWS * staging.LINE)
        multiply = steps.Steps(self._plan, self._shared, self._ring, self._release)
        sums = multiply(rows, piece.length, first)
        if self._plan.grouped:  # Rows of no group are zeros.
            self._out(sums, replace(place, number=emit.index(0)))
            return

        def alone() -> list[Any]:
            self._out(sums, place)
            return []

        def together() -> list[Any]:
            some = result.has_rows(place)
            with emit.when(self._meeting.bring(piece, self._part(), sums, some)):
                total = partial(self._meeting.total, piece, self._part())
                self._out.together(len(sums), total, place)
            return []

        with emit.when(emit.compare("greater", piece.length, 0)):
            if self._plan.cut:
                whole = emit.compare("equal", piece.length, self._steps)
                emit.either(whole, [], alone, together)
            else:
                alone()

    def _part(self) -> Any:
        """The number of the warpgroup among those of a tile in the whole cluster."""
        warpgroup = pieces.word(_block.thread() // instructions.THREADS)
        return pieces.word(self._rank) * CONSUMERS + warpgroup

    def _make_scaled(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        products = scaled.Products(
            self._frame, self._plan, self._shared, self._ring, self._release_scaled
        )
        sums = products(piece, place, first)
        if self._plan.grouped:  # Rows of no group are zeros.
            self._out.turned(sums, replace(place, number=emit.index(0)))
            return
        with emit.when(emit.compare("greater", piece.length, 0)):
            complete: Any = emit.constant(emit.integer(1), 1)
            if self._plan.cut:
                complete, *sums = self._complete(piece, sums)
            with emit.when(complete):
                self._out.turned(sums, place)

    def _complete(self, piece: pieces.Piece, sums: Sequence[Any]) -> Sequence[Any]:
        """Whether the warpgroup writes its part of the tile, and the sums of all of k then."""
        types, yes = [part.type for part in sums], emit.constant(emit.integer(1), 1)

        def together() -> Sequence[Any]:
            last = self._meeting.bring(piece, self._part(), sums, yes)
            warp = _block.thread() // _block.WARP
            every = partial(self._meeting.total, piece, self._part(), warp, 0, len(sums))
            return [last, *emit.either(last, types, every, lambda: sums)]

        whole = emit.compare("equal", piece.length, self._steps)
        return emit.either(whole, [yes.type, *types], lambda: [yes, *sums], together)

    def _release_scaled(self, turn: instructions.Turn) -> None:
        """The warp does not read a stage any more; nor does its warpgroup what the cluster shares.

        What it has read itself it hands over as threads do, in the block alone.
        """
        thread = _block.thread() % instructions.THREADS
        instructions.meet_in_warp()
        with emit.when(emit.compare("equal", thread % _block.WARP, 0)):
            turn.arrive_empty()
        if self._plan.cluster > 1:
            with emit.when(emit.compare("equal", thread, 0)):
                turn.arrive_empty_at(self._rank ^ 1)

    def _release(self, turn: instructions.Turn) -> None:
        """The warpgroup does not read a stage any more, and says so to all who write it."""
        thread = _block.thread() % instructions.THREADS
        if self._plan.cluster == 1:
            with emit.when(emit.compare("equal", thread, 0)):
                turn.arrive_empty()
            return
        with emit.when(emit.compare("less", pieces.word(thread), self._down)):
            other = _chosen(self._beside, self._rank, pieces.word(thread))
            turn.arrive_empty_at(other)


def _feed_of(plan: Plan) -> type[feed.Feed]:
    if plan.scaled:
        return scaled_feed.Feed
    return windows.Feed if plan.gathers else feed.Feed


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, which may be known, else `b`; words, or known numbers."""
    if isinstance(condition, bool):
        return a if condition else b
    return emit.select(condition, pieces.word(a), pieces.word(b))


def _ceildiv(size: Size, step: Any) -> Any:
    return (pieces.word(size) + (pieces.word(step) - 1)) // pieces.word(step)
