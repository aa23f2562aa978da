"""Products of many rows by weights of 8 and 4 bits, by wgmma: weights are its a, in registers.

A consumer has 64 columns of the result and all 128 rows of the tile. Its lanes read the weights of
their fragments as they came, and widen a run of them while the products of the run before are in
flight. x is b. The sums of a group are multiplied by its scales in float32, as in `_scaled`. So
rows and columns have changed places in registers, which the way out turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import (
    _block,
    _frame,
    _mma,
    _pieces,
    _staging,
    _tma,
    _warpgroup,
    _warpgroup_feed,
    _warpgroup_result,
)
from heddle.kernels.cuda._result import Place
from heddle.kernels.cuda._scaled_tile import ScaledTile
from heddle.kernels.cuda._tiles import ROWS
from heddle.kernels.cuda._warpgroup_plan import Plan
from heddle.kernels.sizes import Size

_HALVES = 2  # Rows of a fragment that a lane has, eight apart.
_RUN = 32  # Elements along k that are widened at once; groups are whole runs.


class Feed(_warpgroup_feed.Feed):
    """Who fills the stages: the panels of x, then the weights.

    The blocks of a cluster have tiles side by side: each fetches half of the rows of x for both.
    """

    def _copy(self, piece: _pieces.Piece, place: Place, first: Any) -> None:
        (x, weights, *_), tile = self.frame.tensor_maps, tile_of(self.plan)
        part = _pieces.word(self.rank) * self.plan.half
        start, row = _pieces.size(part * _staging.LINE), _pieces.word(place.row) + part
        blocks = _pieces.word(3) if self.plan.cluster > 1 else None  # Both of the cluster.
        zero, column = _pieces.word(0), _pieces.word(place.column)
        for turn, k in self._steps_of(piece, first):
            with emit.when(_warpgroup_feed.speaks()):
                turn.expect(tile.stage)
                for number in range(tile.panels):
                    target = self.shared.at(turn.start + start + number * tile.panel)
                    along = k + number * tile.panel_depth
                    _tma.load(target, x, [zero, row, along], turn.full, blocks)
                target = self.shared.at(turn.start + tile.b_place)
                _tma.load(target, weights, [zero, column, k // tile.each], turn.full)

    def _sides(self) -> tuple[_staging.Matrix, _staging.Matrix]:
        """x, and the weights as bytes."""
        frame, spec, problem = self.frame, self.plan.spec, self.plan.problem
        m, n, k = (frame.size(size) for size in (problem.m, problem.n, problem.k))
        shapes = (m, k), (n, sizes.floordiv(k, tile_of(self.plan).each))
        x, weights = (
            _staging.Matrix(pointer, operand.dtype, emit.index(0), *shape)
            for pointer, operand, shape in zip(frame.inputs, spec.operands, shapes, strict=False)
        )
        return x, weights

    def _gather(self, piece: _pieces.Piece, place: Place, first: Any) -> None:
        (x, weights), tile = self._sides(), tile_of(self.plan)
        for turn, k in self._steps_of(piece, first):
            along = _pieces.size(k)
            for number in range(tile.panels):
                at = _behind(place.row, along + number * tile.panel_depth)
                self._fill(x, turn.start + number * tile.panel, ROWS, at)
            at = _behind(place.column, along // tile.each)
            self._fill(weights, turn.start + tile.b_place, tile.columns, at, tile.line)
            self._filled(turn)


def _behind(row: Size, column: Size) -> Callable[[Size, Size], tuple[Size, Size]]:
    """Row and column of a line and an element there, behind such a place."""
    return lambda line, along: (row + line, column + along)


def tile_of(plan: Plan) -> ScaledTile:
    """The plan's tile."""
    assert isinstance(plan.tile, ScaledTile)
    return plan.tile


class Products:
    """What the consumers multiply.

    Args:
        frame: The kernel's.
        plan: Its plan.
        shared: Shared memory, with the stages of `ring`.
        release: Says that the warp does not read the stage of a step any more.
    """

    def __init__(
        self,
        frame: _frame.Frame,
        plan: Plan,
        shared: _mma.DynamicShared,
        ring: _warpgroup.Ring,
        release: Callable[[Any], None],
    ) -> None:
        self._frame, self._shared, self._ring, self._release = frame, shared, ring, release
        self._tile, problem = tile_of(plan), plan.problem
        self._units = _warpgroup.Matrices(self._tile.kind, ROWS, k_last=True)
        self._n = frame.size(problem.n)
        self._groups = sizes.floordiv(frame.size(problem.k), self._tile.group)
        thread = _block.thread()
        lane = thread % _block.WARP
        self._line = thread // _block.WARP * _warpgroup_result.WARP_ROWS + lane // 4
        self._member = _pieces.word(lane % 4)

    def __call__(self, piece: _pieces.Piece, place: Place, first: Any) -> Sequence[Any]:
        """The sums of a thread: `_warpgroup.Matrices.parts` of columns by rows of the tile."""
        scales = [
            emit.minimum(place.column + self._line + 8 * half, self._n - 1) * self._groups
            for half in range(_HALVES)
        ]

        def step(i: Any, sums: Any, *totals: Any) -> Sequence[Any]:
            factors = self._factors(scales, _pieces.size(piece.start + i))
            turn = self._ring.turn(first + i)
            turn.wait_until_full()
            found = self._add(turn, factors, sums, totals)
            self._release(first + i)
            return found

        zero, one = (emit.constant(emit.integer(32), x) for x in (0, 1))
        zeros = self._units.zeros()
        begin = [zeros, *self._units.parts(zeros)]
        _, *totals = emit.carry(zero, piece.length, one, begin, step)
        return [total * 2.0**-self._tile.weights.place for total in totals]

    def _add(
        self, turn: _warpgroup.Turn, factors: Sequence[Any], sums: Any, totals: Sequence[Any]
    ) -> Sequence[Any]:
        """`totals` and the products of a stage, by way of the registers of `sums`."""
        span = self._tile.span
        for start in range(0, self._tile.depth, _RUN):
            words = self._fragments(turn, start)
            first = start % span == 0
            if first and start:
                sums, totals = self._scaled(sums, factors[start // span - 1], totals)
            sums = self._multiply(turn, start, words, sums, adds=not first)
        sums, totals = self._scaled(sums, factors[-1], totals)
        return [sums, *totals]

    def _factors(self, rows: Sequence[Size], step: Size) -> list[list[Any]]:
        """The scales of the thread's columns, for each part of a stage.

        Beyond k they are those of the last group, of weights that meet zeros.
        """
        tile, (_, _, scales) = self._tile, self._frame.spec.operands
        found = []
        for along in range(0, tile.depth, tile.span):
            group = emit.minimum((step * tile.depth + along) // tile.group, self._groups - 1)
            pointer = self._frame.inputs[2]
            found.append([_frame.load(pointer, row + group, scales.dtype, 1) for row in rows])
        return found

    def _fragments(self, turn: _warpgroup.Turn, start: int) -> list[list[Any]]:
        """The four words of a for each slice of a run, from element `start` of a stage on."""
        tile = self._tile
        each = tile.kind.depth // tile.each // 4  # Words of memory that a slice has.
        found = []
        for chunk in range(start // tile.each, (start + _RUN) // tile.each, _mma.CHUNK):
            lines = [self._chunk(turn, chunk // _mma.CHUNK, half) for half in range(_HALVES)]
            for at in range(0, _mma.CHUNK // 4, each):
                upper, lower = (
                    tile.weights.fragment(line[at : at + each], self._member) for line in lines
                )
                found.append([word for pair in zip(upper, lower, strict=True) for word in pair])
        return found

    def _chunk(self, turn: _warpgroup.Turn, chunk: int, half: int) -> list[Any]:
        """The words of a chunk of one of the thread's lines of weights."""
        line, length = self._line + 8 * half, self._tile.line
        place = _staging.swizzled(line, chunk, length) * _mma.CHUNK
        at = turn.start + (line * length + place + self._tile.b_place)
        return _block.lanes(self._shared.load(at, emit.integer(32), _mma.CHUNK // 4))

    def _multiply(
        self,
        turn: _warpgroup.Turn,
        start: int,
        words: Sequence[Sequence[Any]],
        sums: Any,
        adds: bool,
    ) -> Any:
        """The sums of a run in the registers of `sums`, in flight; of its group if it `adds`."""
        tile, units = self._tile, self._units
        panel, along = divmod(start, tile.panel_depth)
        b = units.b(self._shared.at(turn.start + panel * tile.panel), 0)
        _warpgroup.fence()
        for i, slice_ in enumerate(words):
            right = units.b_slice(b, along // tile.kind.depth + i)
            sums = units.multiply_words(sums, slice_, right, adds=adds or i > 0)
        _warpgroup.commit()
        return sums

    def _scaled(
        self, sums: Any, factor: Sequence[Any], totals: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """Sums that were in flight, and with them `totals`, by the scale of each one's column."""
        _warpgroup.wait(0)
        parts = self._units.settled(sums)
        totals = [
            emit.fma(part, factor[i % 4 // 2], total)
            for i, (part, total) in enumerate(zip(parts, totals, strict=True))
        ]
        return self._units.whole(parts), totals
