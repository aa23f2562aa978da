"""What a transpose turns: planes of the operand's last axis and of the one that becomes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.memory import LINE
from heddle.kernels.permutation import Permutation, offset, result_offset
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec
from heddle.kernels.stream import Stream

SQUARE = 128
"""Bytes of the side of the square of a task that turns: with more, lines that are a power of two
apart push each other out of cache."""

TILE = 16
"""The side of the largest tile in registers."""


def side_of(spec: Spec) -> int:
    """The elements of a square's side."""
    return SQUARE // emit.ITEM_SIZE[spec.result.dtype]


def tile_of(frame: host.Frame, lanes: int) -> int:
    """The side of a tile: of 16 bits that whose rows are lines, if registers are."""
    pairs = lanes == 2 * TILE and frame.machine.vector_bytes == LINE
    return lanes if pairs else min(TILE, lanes)


@dataclass(frozen=True)
class Planes:
    """All planes of one transpose, which are turned in tiles of `stream.lanes` lines.

    Rows and columns are the operand's. `shape`: the sizes of the `plan`.
    """

    stream: Stream
    plan: Permutation
    shape: tuple[Size, ...]

    @property
    def dtype(self) -> str:
        """The type that elements are moved as."""
        return memory.raw(self.stream.frame.spec.result.dtype)

    @property
    def line(self) -> int:
        """The elements of a line of the cache."""
        return LINE // emit.ITEM_SIZE[self.dtype]

    def whole(self, elements: Size) -> Any:
        """Whether so many elements are as many whole lines of the cache."""
        return emit.compare("equal", emit.as_index(elements) & (self.line - 1), 0)

    @property
    def extents(self) -> tuple[Size, Size]:
        """The rows and the columns of a plane."""
        return self.shape[self.plan.order[-1]], self.shape[-1]

    @property
    def apart(self) -> tuple[Size, Size]:
        """From a row of the operand, and of the result, to the next one: elements."""
        _, step = result_offset(self.plan.order, self.shape, {})
        return sizes.product(self.shape[self.plan.order[-1] + 1 :]), step

    def parts(
        self, sides: tuple[int, int], before: Sequence[Size] | None = None
    ) -> Iterator[tuple[Mapping[int, Size], list[Size]]]:
        """Emits the body of a `for` over parts of planes, with so many rows and columns.

        Yields the plane, by coordinates of the other axes, and the row and the column at which the
        part begins; the first one of a plane so many `before` it. The parts are that share of all
        that the frame's tasks are of all squares.
        """
        frame, side = self.stream.frame, side_of(self.stream.frame.spec)
        outer = tuple(self.shape[axis] for axis in self.plan.outer)
        squares = (*outer, *(sizes.ceildiv(extent, side) for extent in self.extents))
        first, last, grid = frame.first, frame.last, squares
        if before is not None or sides != (side, side):
            ends = [n + apart for n, apart in zip(self.extents, before or (0, 0), strict=True)]
            grid = (*outer, *(sizes.ceildiv(end, n) for end, n in zip(ends, sides, strict=True)))
            tasks, count = sizes.greatest(sizes.product(squares), 1), sizes.product(grid)
            first, last = (sizes.floordiv(task * count, tasks) for task in (first, last))
        for part in emit.loop(first, last):
            *place, top, left = sizes.split(part, grid)
            starts = [top * sides[0], left * sides[1]]
            if before is not None:
                starts = [start - apart for start, apart in zip(starts, before, strict=True)]
            yield dict(zip(self.plan.outer, place, strict=True)), starts

    def places(self, plane: Mapping[int, Size], row: Size, column: Size) -> tuple[Size, Size]:
        """An element of a plane in the operand and in the result."""
        target, _ = result_offset(self.plan.order, self.shape, plane)
        stride, step = self.apart
        source = offset(self.shape, plane)
        return source + row * stride + column, target + column * step + row

    def turned(self, lines: Sequence[Any]) -> list[Any]:
        """The columns of a tile."""
        if len(lines) > TILE:
            return crosslane.transposed_in_pairs(lines)
        # Registers of 32 bytes have no instruction that exchanges elements of their halves.
        whole = self.stream.frame.machine.vector_bytes == LINE
        return crosslane.transposed(lines, 1 if whole else 16 // emit.ITEM_SIZE[self.dtype])
