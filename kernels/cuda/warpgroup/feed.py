"""What brings operands of products by wgmma to shared memory: one thread by TMA, or a warpgroup.

A stage has 128 lines of a along k, and behind them b: as many lines along k, or panels of lines
that are steps of k. Chunks of 16 bytes are swizzled in lines of 128, or in b's shorter ones. Where
lines of the matrices do not divide into chunks, or are not aligned, a warpgroup reads single
elements in place of TMA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import matrices, mma, pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import Tile
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.cuda.warpgroup.maps import brings
from heddle.kernels.cuda.warpgroup.plan import Plan
from heddle.kernels.cuda.warpgroup.short_plan import ShortPlan
from heddle.kernels.sizes import Size
from heddle.kernels.spec import product

EachPiece = Callable[[Callable[[pieces.Piece, Place, Any], None]], None]
"""Emits a body for each piece of a block: with its place, and the number of its first step."""

_BARRIER = 3  # The consumers have 1 and 2.


@dataclass(frozen=True)
class Feed:
    """Who fills the stages of `ring`.

    `rank` is the number of the block in its cluster; `beside`: the blocks of the cluster have tiles
    side by side, and b for themselves.
    """

    frame: _frame.Frame
    plan: Plan | ShortPlan
    shared: mma.DynamicShared
    ring: instructions.Ring
    rank: Any
    beside: Any

    def produce(self, each_piece: EachPiece) -> None:
        """What the last warpgroup does, for each piece of the block."""

        def by_tma() -> list[Any]:
            warp = _block.thread() % instructions.THREADS // _block.WARP
            with emit.when(emit.compare("equal", warp, 0)):
                each_piece(self._copy)
            return []

        def by_threads() -> list[Any]:
            each_piece(self._gather)
            return []

        if brings(self.plan.spec):
            emit.either(self._mapped(), [], by_tma, by_threads)
        else:
            by_threads()

    def prefetch(self) -> None:
        """Brings the maps of what is copied to the cache of maps; one thread calls."""
        if not brings(self.plan.spec):
            return
        with emit.when(self._mapped()):
            for tensor_map in self.frame.tensor_maps[: -1 if self.plan.stored else None]:
                tma.prefetch(tensor_map)

    def _mapped(self) -> Any:
        """Whether there are tensor maps of both sides: they are aligned, and not empty."""
        found: Any = emit.constant(emit.integer(1), 1)
        for operand in self.plan.spec.operands[:2]:
            count = emit.as_index(self.frame.size(product(operand.shape)))
            found = found & emit.compare("greater", count, 0)
        for side in self._sides(emit.index(0)):
            found = found & side.whole()
        return found

    def _sides(self, number: Size) -> Sequence[staging.Matrix]:
        """What is copied, of product `number` of a batch: a, and what lies side by side as b."""
        return staging.matrices(self.frame, number)

    def _steps_of(
        self, piece: pieces.Piece, first: Any, start: Any = None, stop: Any = None
    ) -> Iterator[tuple[instructions.Turn, Any]]:
        """Emits a loop over a piece's stages, each when it is empty; and where in k they are.

        From step `start` of the piece on; up to `stop`, if given, whose stages nobody reads yet.
        """
        zero, one = (emit.constant(emit.integer(32), x) for x in (0, 1))
        begin, end = (zero if start is None else start), (piece.length if stop is None else stop)
        for i in emit.loop(begin, end, one):
            turn = self.ring.turn(first + i)
            if stop is None:
                turn.wait_until_empty()
            yield turn, (piece.start + i) * self.plan.tile.depth

    def _copy(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        maps, tile = self.frame.tensor_maps, self.plan.tile
        a, b = self._matrices(place)
        row = pieces.word(place.row)
        for turn, k in self._steps_of(piece, first):
            with emit.when(speaks()):
                turn.expect(tile.stage)
                tma.load(self.shared.at(turn.start), maps[0], [a, row, k], turn.full)
                self._fetch_b(maps[1], turn, place, b, k)

    def _fetch_b(
        self, tensor_map: Any, turn: instructions.Turn, place: Place, number: Any, k: Any
    ) -> None:
        """Starts the copies of b, matrix `number` of the map, that are this block's."""
        tile, column = self.plan.tile, pieces.word(place.column)
        assert isinstance(tile, Tile), "weights with scales have a feed of their own"

        def half(part: Any, blocks: Any) -> None:
            lines = part * self.plan.half
            start = turn.start + (tile.b_place + pieces.size(lines * tile.b_line))
            for panel in range(1 if tile.transposed else tile.panels):
                down, right = (column + lines, k)
                if not tile.transposed:
                    down, right = k + lines, column + panel * tile.panel_columns
                target = self.shared.at(start + panel * (tile.depth * tile.b_line))
                tma.load(target, tensor_map, [number, down, right], turn.full, blocks)

        self._halves(half)

    def _matrices(self, place: Place) -> tuple[Any, Any]:
        """The numbers of the matrices of a and b."""
        if self.plan.grouped:
            return pieces.word(0), pieces.word(place.number)
        batch, operands = self.plan.problem.batch, self.plan.spec.operands
        a, b = (matrices.start(self.frame, batch, side, place.number, 1) for side in operands)
        return pieces.word(a), pieces.word(b)

    def _halves(self, half: Callable[[Any, Any], None]) -> None:
        """Emits `half(number, blocks)` for the parts of b that this block fetches."""

        def alone() -> list[Any]:
            for number in range(self.plan.cluster):
                half(pieces.word(number), None)
            return []

        def for_all() -> list[Any]:
            half(self.rank, pieces.word((1 << self.plan.cluster) - 1))
            return []

        if self.plan.cluster == 1:
            alone()
        elif isinstance(self.beside, bool):
            for_all()
        else:
            emit.either(self.beside, [], alone, for_all)

    def _gather(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        """All threads read the elements of chunks, one by one."""
        tile = self.plan.tile
        assert isinstance(tile, Tile), "weights with scales have a feed of their own"
        if self.plan.grouped:
            a, b = self._sides(emit.index(0))
            rights = [replace(b, start=place.number * emit.as_index(place.n) * place.k)]
        else:
            a, *rights = self._sides(place.number)
        lines = tile.b_lines // len(rights)

        for turn, k in self._steps_of(piece, first):
            deep = pieces.size(k)

            def of_a(line: Size, along: Size, k: Size = deep) -> tuple[Size, Size]:
                return place.row + line, k + along

            def of_b(line: Size, along: Size, k: Size = deep) -> tuple[Size, Size]:
                if tile.transposed:
                    return place.column + line, k + along
                column = place.column + line // tile.depth * tile.panel_columns
                return k + line % tile.depth, column + along

            self._fill(a, turn.start, tile.rows, of_a)
            for i, b in enumerate(rights):
                start = turn.start + (tile.b_place + i * lines * tile.b_line)
                self._fill(b, start, lines, of_b, tile.b_line)
            self._filled(turn)

    def _filled(self, turn: instructions.Turn) -> None:
        """All threads have filled the stage."""
        tma.fence()
        instructions.meet(_BARRIER, instructions.THREADS)
        with emit.when(speaks()):
            turn.arrive_full()

    def _fill(
        self,
        matrix: staging.Matrix,
        start: Size,
        lines: int,
        at: Callable[[Size, Size], tuple[Size, Size]],
        length: int = staging.LINE,
    ) -> None:
        """Fills lines of `length` bytes from byte `start` on.

        `at` a line and an element there lies a row, column.
        """
        chunks = length // mma.CHUNK
        first = _block.thread() % instructions.THREADS
        for index in emit.loop(first, lines * chunks, instructions.THREADS):
            line, chunk = index // chunks, index % chunks
            row, column = at(line, chunk * matrix.each)
            position = matrix.start + row * matrix.columns + column
            within = staging.swizzled(line, chunk, length) * mma.CHUNK
            value = matrix.elements(row, column, position)
            self.shared.store(value, start + line * length + within)


def speaks() -> Any:
    """Whether this is the thread that speaks for its warpgroup."""
    return emit.compare("equal", _block.thread() % instructions.THREADS, 0)
