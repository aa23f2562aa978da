"""Products by fused multiply-adds: a thread computes 4 x 4 of its block's square.

Both tiles lie k-major in shared memory, so that a thread reads its four rows and columns as two
vectors. Floats multiply in float32 (float64 for float64) with a fused multiply-add for each k in
order; integers in int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import matrices
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

EACH = 4
"""Rows and columns of a thread; also the elements of a tile that it loads."""


class Side(Protocol):
    """What reads an operand: `lanes` elements from a position on, out of buffers."""

    @property
    def inputs(self) -> _frame.Vectors:
        """What is read."""

    def __call__(self, position: Any, lanes: int) -> Any:
        """The elements in registers."""


@dataclass(frozen=True)
class _Cut:
    """A block's square of `side` rows and columns; it has so many `threads`, `across` in a row.

    `depth` steps of k at a time make as many elements of an operand as the threads load.
    """

    side: int

    @property
    def across(self) -> int:
        return self.side // EACH

    @property
    def threads(self) -> int:
        return self.across**2

    @property
    def depth(self) -> int:
        return self.threads * EACH // self.side

    @property
    def pitch(self) -> int:
        """Four more than the square: transposing stores meet fewer bank conflicts."""
        return self.side + EACH

    @property
    def row(self) -> Any:
        """The thread's first row in the square."""
        return _block.thread() // self.across * EACH

    @property
    def column(self) -> Any:
        """The thread's first column in the square."""
        return _block.thread() % self.across * EACH


def side_of(spec: Spec) -> int:
    """Rows and columns of a block."""
    return _cut(spec).side


def _cut(spec: Spec) -> _Cut:
    return _Cut(matrices.SPACE.value("square", spec, "cuda"))


def emit_tile(frame: _frame.Frame, left: Side, right: Side, transposed: bool) -> None:
    """Emits the tile of this block; see `emit_tile_at`."""
    spec = frame.spec
    problem = matrices.problem(spec)
    m, n, k = (emit.as_index(frame.size(x)) for x in (problem.m, problem.n, problem.k))
    side = side_of(spec)
    n_tiles, m_tiles = sizes.ceildiv(n, side), sizes.ceildiv(m, side)
    rest, n_tile = _block.block() // n_tiles, _block.block() % n_tiles
    number, m_tile = rest // m_tiles, rest % m_tiles
    a_start, b_start = (
        matrices.start(frame, problem.batch, spec.operands[i], number, size)
        for i, size in ((0, m * k), (1, k * n))
    )
    where = Place(number, m_tile * side, n_tile * side, m, n, k)
    emit_tile_at(frame, (left, right), transposed, where, (a_start, b_start))


def emit_tile_at(
    frame: _frame.Frame,
    sides: tuple[Side, Side],
    transposed: bool,
    where: Place,
    starts: tuple[Size, Size],
) -> None:
    """Emits the loop over k: load two tiles, wait, multiply, wait.

    The sides read a and b, from `starts` on, in what the result is computed in; `transposed`: b is
    [..., n, k].
    """
    spec = frame.spec
    number, m, n, k, stop = where.number, where.m, where.n, where.k, where.stop
    element = emit.register_type(spec.result.dtype)
    cut = _cut(spec)
    count = cut.depth * cut.pitch
    tiles = [_block.SharedArray(name, element, count) for name in ("a_tile", "b_tile")]
    first_row, first_column = where.row, where.column
    a = _Tile(cut, sides[0], tiles[0], starts[0], m, k, first_row, True)
    b = _Tile(cut, sides[1], tiles[1], starts[1], n, k, first_column, transposed)

    write = frame.writer()

    def body(lanes: int) -> None:
        def step(depth: Any, *sums: Any) -> Sequence[Any]:
            a.fetch(depth, lanes)
            b.fetch(depth, lanes)
            _block.barrier()
            more = _multiply(cut, tiles, sums)
            _block.barrier()
            return more

        zero = emit.constant(element, 0, EACH)
        sums = emit.carry(0, k, cut.depth, [zero] * EACH, step)
        row, column = first_row + cut.row, first_column + cut.column
        for i, value in enumerate(sums):
            start = (number * m + row + i) * n + column
            for j, part in enumerate([value] if lanes == EACH else _block.lanes(value)):
                inside = emit.compare("less", row + i, m) & emit.compare("less", column + j, stop)
                with emit.when(inside):
                    write(part, start + j)

    inputs = [a.read.inputs, b.read.inputs, write.inputs]
    _frame.in_vectors(frame, inputs, [*where.rows, k], body, EACH)


class _Tile:
    """A tile of one operand, a square's rows (of b: columns) by its depth, and how it is loaded.

    With `k_last` the operand's rows run along k, and loading transposes them.
    """

    def __init__(
        self,
        cut: _Cut,
        read: Side,
        array: _block.SharedArray,
        start: Size,
        count: Size,
        k: Size,
        first: Size,
        k_last: bool,
    ) -> None:
        self.read = read
        self._cut = cut
        self._array = array
        self._start, self._count, self._k, self._first = start, count, k, first
        self._k_last = k_last

    def fetch(self, depth: Size, lanes: int) -> None:
        """Loads four elements in each thread; what lies beyond k is zero."""
        pitch = self._cut.pitch
        across = (self._cut.depth if self._k_last else self._cut.side) // EACH
        line, along = _block.thread() // across, _block.thread() % across * EACH
        for j in range(0, EACH, lanes):
            if self._k_last:
                row, column = self._first + line, depth + along + j
                at = _clamp(row, self._count, 1) * self._k + _clamp(column, self._k, lanes)
                inside = emit.compare("less", column, self._k)
                place = (along + j) * pitch + line
            else:
                row, column = depth + line, self._first + along + j
                at = _clamp(row, self._k, 1) * self._count + _clamp(column, self._count, lanes)
                inside = emit.compare("less", row, self._k)
                place = line * pitch + along + j
            value = self.read(self._start + at, lanes)
            value = emit.select(emit.splat(inside, lanes), value, 0)
            if not self._k_last:
                self._array.store(value, place)
                continue
            for i, part in enumerate(_block.lanes(value)):
                self._array.store(part, place + i * pitch)


def _clamp(index: Size, count: Size, lanes: int) -> Size:
    """The index of a vector inside of `count` elements, for threads at the edge."""
    return emit.minimum(index, count - lanes)


def _multiply(cut: _Cut, tiles: Sequence[_block.SharedArray], sums: Sequence[Any]) -> Sequence[Any]:
    """Adds the product of the two tiles to the thread's rows of sums."""
    for depth in range(cut.depth):
        rows = _block.lanes(tiles[0].load(cut.row + depth * cut.pitch, EACH))
        columns = tiles[1].load(cut.column + depth * cut.pitch, EACH)
        sums = [_add(total, columns, row) for row, total in zip(rows, sums, strict=True)]
    return sums


def _add(total: Any, columns: Any, row: Any) -> Any:
    return emit.fma(columns, row, total) if emit.float_like(total) else total + columns * row


def launch(spec: Spec) -> Launch:
    """A block for each tile of the result."""
    problem = matrices.problem(spec)
    cut = _cut(spec)
    tiles = [fold("ceildiv", size, cut.side) for size in (problem.m, problem.n)]
    grid = fold("max", 1, product((*problem.batch, *tiles)))
    return Launch((grid, 1, 1), problem.work, (cut.threads, 1, 1))
