"""The way out of a product on tensor cores: from sums in shared memory to the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, crosslane, emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma, staging
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

WARP_COLUMNS = 32
"""Columns of a warp in `SlicedSums`."""


@dataclass(frozen=True)
class Place:
    """Where a block's tile is: the product's number in the batch, its first row and column.

    `m`, `n` and `k` are the sizes of the product. Where columns are in groups of `each`, which is
    not 0 then, the tile ends with its group.
    """

    number: Size
    row: Size
    column: Size
    m: Size
    n: Size
    k: Size
    each: Size = 0

    @property
    def stop(self) -> Size:
        """The column with which the tile ends at the latest."""
        if isinstance(self.each, int) and self.each == 0:
            return self.n
        return (sizes.floordiv(self.column, self.each) + 1) * self.each

    @property
    def rows(self) -> list[Size]:
        """What vectors of the result divide."""
        return [self.n] if isinstance(self.each, int) and self.each == 0 else [self.n, self.each]


def turn(row: Size, column: Size) -> Size:
    """What `^` moves a column of sums by, around that of a tile's row.

    In every second 32 columns, of the next row in the others, fours change places: threads that
    read eight neighbours each, in two vectors, would else meet the same banks.
    """
    return (row + column // 32) % 2 * 4


def load_sums(shared: mma.DynamicShared, dtype: str, start: Size, column: Size, lanes: int) -> Any:
    """Neighbouring sums of 4 bytes, at most 8, of the row that begins at element `start`.

    `column` is that of the first where `turn` has moved it.
    """
    element = emit.register_type(dtype)
    found = [
        shared.load((start + (column ^ i)) * 4, element, min(lanes, 4)) for i in range(0, lanes, 4)
    ]
    return found[0] if lanes <= 4 else crosslane.shuffle(found[0], found[1], range(lanes))


@dataclass(frozen=True)
class SlicedSums:
    """The sums of a tile in `dtype`, `count` times in shared memory: each from a slice of k.

    A warp holds 32 columns of `rows` rows in the registers of mma.sync: for each 16 x 8 of them,
    row by row, four.
    """

    shared: mma.DynamicShared
    dtype: str
    count: int
    rows: int
    columns: int

    @property
    def pitch(self) -> int:
        """Elements between two rows: eight more than columns, against conflicts."""
        return self.columns + 8

    def store(self, sums: Sequence[Any], number: Size, column: Size) -> None:
        """Puts a warp's sums to the others of slice `number`, from `column` on."""
        lane = _block.thread() % _block.WARP
        row, element = number * self.rows + lane // 4, emit.register_type(self.dtype)
        along = column + (lane % 4 * 2 ^ turn(lane // 4, column))
        across = WARP_COLUMNS // 8
        for position in range(0, len(sums), 2):
            tile, half = position // 4, position % 4 // 2
            down, right = tile // across * 16 + half * 8, tile % across * 8
            pair = vector.from_elements(emit.widen(element, 2), sums[position : position + 2])
            place = (row + down) * self.pitch + along + right
            self.shared.store(pair, place * 4)

    def store_turned(self, sums: Sequence[Any], number: Size, column: Size) -> None:
        """As `store`, of eight rows, where mma.sync's tiles are 16 columns x 8 rows."""
        lane = _block.thread() % _block.WARP
        for position, value in enumerate(sums):
            right, below = position // 2 * 8, position % 2
            row = number * self.rows + lane % 4 * 2 + below
            along = column + (lane // 4 ^ turn(below, column)) + right
            self.shared.store(value, (row * self.pitch + along) * 4)

    def total(self, row: Size, column: Size, lanes: int) -> Any:
        """Neighbouring sums of all slices, added up in their order."""
        place = column ^ turn(row, column)
        first, *others = (
            load_sums(self.shared, self.dtype, (i * self.rows + row) * self.pitch, place, lanes)
            for i in range(self.count)
        )
        return sum(others, first)


def write(
    frame: _frame.Frame,
    where: Place,
    tile: tuple[int, int],
    sums: Callable[[Size, Size, int], Any],
    threads: int = staging.THREADS,
) -> None:
    """Writes a tile of so many rows and columns through the epilogue; the first `threads` call.

    `sums(row, column, lanes)` are neighbouring ones of the tile; where the spec has a gate, the
    second half of its columns has the gate's. Neighbouring threads write next to each other.
    """
    finish, stop = frame.writer(), where.stop
    gates = [(product, product.writer()) for product in frame.products()[1:]]
    rows, columns = tile[0], tile[1] // (1 + len(gates))

    def gated(row: Size, column: Size, lanes: int, position: Size) -> list[Any]:
        found = []
        for product, through in gates:
            (value,) = through.results(sums(row, columns + column, lanes), position)
            found.append(convert.rounded(value, product.spec.outputs[0].dtype))
        return found

    def body(lanes: int) -> None:
        across = columns // lanes
        for index in emit.loop(_block.thread(), rows * across, threads):
            row, column = index // across, index % across * lanes
            inside = emit.compare("less", where.row + row, where.m)
            inside = inside & emit.compare("less", where.column + column, stop)
            with emit.when(inside):
                line = where.number * where.m + where.row + row
                position = line * where.n + where.column + column
                gate = gated(row, column, lanes, position)
                finish(sums(row, column, lanes), position, gate)

    inputs = [finish.inputs, *(through.inputs for _, through in gates)]
    _frame.in_vectors(frame, inputs, where.rows, body, most=8)
