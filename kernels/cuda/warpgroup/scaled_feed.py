"""Who brings operands to products by weights of 8 and 4 bits: x, and weights as bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda.products import pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.scaled_tile import ScaledTile
from heddle.kernels.cuda.warpgroup import feed, tma
from heddle.kernels.cuda.warpgroup.plan import Plan
from heddle.kernels.cuda.warpgroup.short_plan import ShortPlan
from heddle.kernels.sizes import Size


class Feed(feed.Feed):
    """Who fills the stages: the panels of x, then the weights.

    The blocks of a cluster have tiles side by side: each fetches half of the rows of x for both.
    """

    def _copy(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        (x, weights, *_), tile = self.frame.tensor_maps, tile_of(self.plan)
        part = pieces.word(self.rank) * self.plan.half
        start, row = pieces.size(part * staging.LINE), pieces.word(place.row) + part
        blocks = pieces.word(3) if self.plan.cluster > 1 else None  # Both of the cluster.
        zero, column = pieces.word(0), pieces.word(place.column)
        matrix = pieces.word(place.number) if self.plan.grouped else zero
        for turn, k in self._steps_of(piece, first):
            with emit.when(feed.speaks()):
                turn.expect(tile.brought)
                for number in range(tile.panels):
                    target = self.shared.at(turn.start + start + number * tile.panel)
                    along = k + number * tile.panel_depth
                    tma.load(target, x, [zero, row, along], turn.full, blocks)
                target = self.shared.at(turn.start + tile.b_place)
                tma.load(target, weights, [matrix, column, k // tile.each], turn.full)

    def _sides(self, number: Size) -> tuple[staging.Matrix, staging.Matrix]:
        """x, and the weights as bytes."""
        frame, spec, problem = self.frame, self.plan.spec, self.plan.problem
        m, n, k = (frame.size(size) for size in (problem.m, problem.n, problem.k))
        shapes = (m, k), (n, sizes.floordiv(k, tile_of(self.plan).each))
        x, weights = (
            staging.Matrix(pointer, operand.dtype, emit.index(0), *shape)
            for pointer, operand, shape in zip(frame.inputs, spec.operands, shapes, strict=False)
        )
        return x, weights

    def _gather(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        (x, weights), tile = self._sides(emit.index(0)), tile_of(self.plan)
        if self.plan.grouped:
            weights = replace(weights, start=place.number * weights.rows * weights.columns)
        for turn, k in self._steps_of(piece, first):
            along = pieces.size(k)
            for number in range(tile.panels):
                at = _behind(place.row, along + number * tile.panel_depth)
                self._fill(x, turn.start + number * tile.panel, tile.rows, at)
            at = _behind(place.column, along // tile.each)
            self._fill(weights, turn.start + tile.b_place, tile.columns, at, tile.b_line)
            self._filled(turn)


def _behind(row: Size, column: Size) -> Callable[[Size, Size], tuple[Size, Size]]:
    """Row and column of a line and an element there, behind such a place."""
    return lambda line, along: (row + line, column + along)


def tile_of(plan: Plan | ShortPlan) -> ScaledTile:
    """The plan's tile."""
    assert isinstance(plan.tile, ScaledTile)
    return plan.tile
