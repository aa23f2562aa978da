"""Products on tensor cores: eight warps make a tile of 128 rows by 128 or 256 columns.

Operands go through three stages of shared memory (`staging`), each 128 bytes along k. A warp makes
64 rows by a quarter of the columns by mma.sync; the fragments of the next slice of k are on their
way to registers while one is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import crosslane, emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import matrices, mma, outputs, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ACROSS, ROWS, Tile
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm, vector = dialect("llvm"), dialect("vector")

STAGES = 3
SLICES = staging.LINE // (2 * mma.CHUNK)
"""Of k in a stage, as deep as one mma.sync each."""

_WARP_ROWS = 64
_GROUP = 8  # Tiles along m that run side by side: their columns of b stay in the L2 cache.


def shared_bytes(columns: int) -> int:
    """Dynamic shared memory of a block; the sums fit as well."""
    return STAGES * (ROWS + columns) * staging.LINE


def place(frame: _frame.Frame, tile: Tile, block: Size) -> Place:
    """The place of a block, by its number."""
    problem = matrices.problem(frame.spec)
    m, n, k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
    m_tiles = emit.as_index(sizes.ceildiv(m, ROWS))
    n_tiles = emit.as_index(sizes.ceildiv(n, tile.columns))
    number, rest = block // (m_tiles * n_tiles), block % (m_tiles * n_tiles)
    row, column = ordered(rest, m_tiles, n_tiles)
    return Place(number, row * ROWS, column * tile.columns, m, n, k)


def ordered(number: Size, m_tiles: Any, n_tiles: Any) -> tuple[Size, Size]:
    """Row and column of a tile, in an order in which neighbours read the same memory."""
    group, rest = number // (n_tiles * _GROUP), number % (n_tiles * _GROUP)
    side_by_side = emit.minimum(m_tiles - group * _GROUP, _GROUP)
    return group * _GROUP + rest % side_by_side, rest // side_by_side


def emit_tiles(tile: Tile, frame: _frame.Frame, shared: mma.DynamicShared, block: Size) -> None:
    """Emits the tile of the block of that number."""
    frame = frame.wait()
    where = place(frame, tile, block)
    emit_tile(frame, tile, shared, where, staging.matrices(frame, where.number))


def emit_tile(
    frame: _frame.Frame,
    tile: Tile,
    shared: mma.DynamicShared,
    where: Place,
    sides: tuple[staging.Matrix, staging.Matrix],
) -> None:
    """Emits the tile at `where` of the product of both sides."""
    a, b = sides
    line, across = staging.LINE, (where.column, tile.transposed, tile.width)
    parts = [
        staging.Lines(a, 0, ROWS, line, tile.depth, where.row, True),
        staging.Lines(b, tile.b_place, tile.columns, line, tile.depth, *across),
    ]
    sums = _multiplied(tile, shared, parts, sizes.ceildiv(where.k, tile.depth))
    mma.wait(0)
    _block.barrier()  # The stages are free.
    _store(tile, shared, sums)
    _block.barrier()
    write(frame, tile, shared, where)


def _multiplied(
    tile: Tile, shared: mma.DynamicShared, parts: Sequence[staging.Lines], steps: Size
) -> Sequence[Any]:
    """The sums of a warp: for each 16 x 8 of them, row by row, four registers."""
    fragments = _Fragments(tile, shared)

    def fill(step: Size) -> None:
        for part in parts:
            part.fill(shared, emit.as_index(step) % STAGES * tile.stage, step)
        mma.commit()

    def arrived() -> None:
        """The next stage is there, and nobody reads the one before it any more."""
        mma.wait(STAGES - 2)
        _block.barrier()

    def step(number: Size, *carried: Any) -> Sequence[Any]:
        sums, now = list(carried[:tile_sums]), list(carried[tile_sums:])
        stage = number % STAGES * tile.stage
        for i in range(SLICES):
            if i == 0:
                fill(number + (STAGES - 1))
            if i < SLICES - 1:
                following = fragments.load(stage, i + 1)
            else:
                arrived()
                following = fragments.load((number + 1) % STAGES * tile.stage, 0)
            sums = fragments.multiply(now, sums)
            now = following
        return [*sums, *now]

    for number in range(STAGES - 1):
        fill(number)
    arrived()
    zero = emit.constant(emit.register_type(tile.kind.sums), 0)
    tile_sums = fragments.sums
    start = [*[zero] * tile_sums, *fragments.load(emit.index(0), 0)]
    return emit.carry(0, steps, 1, start, step)[:tile_sums]


class _Fragments:
    """What a warp holds of a slice of k, and where it lies in a stage."""

    def __init__(self, tile: Tile, shared: mma.DynamicShared) -> None:
        self._tile, self._shared = tile, shared
        self._down, self._across = _WARP_ROWS // 16, tile.warp_columns // 8
        self.sums = self._down * self._across * 4
        lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
        row, column = warp // ACROSS * _WARP_ROWS, warp % ACROSS * tile.warp_columns
        self._a = _along_k(row + lane % 16, lane // 16)
        if tile.transposed:
            line = column + lane % 8 + lane // 16 * 8
            self._b = _along_k(line, lane // 8 % 2)
        else:
            self._b = self._across_k(column, lane)

    def _across_k(self, column: Size, lane: Size) -> list[Size]:
        """The byte of each ldmatrix, in lines that are steps of k: of 16 columns.

        Of words, which are read one by one: those of both registers of 8 columns.
        """
        each, length = self._tile.kind.each, staging.LINE
        if self._tile.words_across:
            places = []
            for j in range(self._across):
                at = column + 8 * j + lane // 4
                panel, chunk = at // self._tile.depth, at % self._tile.depth // each
                for line in (lane % 4, lane % 4 + 4):
                    turned = staging.swizzled(line, chunk, length, self._tile.width)
                    where = turned * mma.CHUNK + at % each * 4
                    places.append((panel * self._tile.depth + line) * length + where)
            return places
        panel, chunk = column // self._tile.depth, column % self._tile.depth // each
        if self._tile.bytes_across:
            matrix, row = lane // 8, lane % 8
            line = matrix // 2 * 16 + matrix % 2 * 2 + row // 2 * 4 + row % 2
            chunks = [chunk + j for j in range(self._across // 2)]
        else:
            line = lane % 16
            chunks = [chunk + lane // 16 + 2 * j for j in range(self._across // 2)]
        base = (panel * self._tile.depth + line) * length
        return [base + staging.swizzled(line, at, length) * mma.CHUNK for at in chunks]

    def load(self, stage: Size, i: int) -> list[Any]:
        """The registers of slice `i` of the stage at byte `stage`: a's, then b's."""
        line, place = staging.LINE, stage + self._tile.b_place
        a = [stage + self._a[i] + 16 * line * j for j in range(self._down)]
        if self._tile.transposed:
            b = [place + self._b[i] + 16 * line * j for j in range(self._across // 2)]
        else:
            b = [place + offset + self._tile.kind.depth * line * i for offset in self._b]
        found = []
        for offset in a:
            found += mma.load_matrices(self._shared.at(offset), transposed=False)
        if self._tile.words_across:
            return found + [self._shared.load(offset, emit.integer(32), 1) for offset in b]
        for offset in b:
            words = mma.load_matrices(self._shared.at(offset), transposed=not self._tile.transposed)
            found += _sorted_bytes(words) if self._tile.bytes_across else words
        return found

    def multiply(self, registers: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """`sums` plus the products of a slice."""
        sums = list(sums)
        a, b = registers[: 4 * self._down], registers[4 * self._down :]
        for i in range(self._down):
            for j in range(self._across):
                here = slice(4 * (i * self._across + j), 4 * (i * self._across + j) + 4)
                sums[here] = mma.multiply(
                    self._tile.kind, a[4 * i : 4 * i + 4], b[2 * j : 2 * j + 2], sums[here]
                )
        return sums


def _sorted_bytes(words: Sequence[Any]) -> list[Any]:
    """The fragments of 8 even and of 8 odd columns, from ldmatrix of pairs of columns.

    It transposes pairs of bytes: a word has two columns of two steps of k, the next word those of
    the next two steps.
    """
    four, word = emit.widen(emit.integer(8), 4), emit.integer(32)
    steps = [llvm.bitcast(four, value) for value in words]
    return [
        llvm.bitcast(word, crosslane.shuffle(steps[i], steps[i + 1], range(parity, 8, 2)))
        for parity in range(2)
        for i in (0, 2)
    ]


def _along_k(line: Size, half: Size) -> list[Size]:
    """The byte of a chunk of each slice, in a line that runs along k."""
    return [
        line * staging.LINE + staging.swizzled(line, half + 2 * i, staging.LINE) * mma.CHUNK
        for i in range(SLICES)
    ]


def _store(tile: Tile, shared: mma.DynamicShared, sums: Sequence[Any]) -> None:
    """Puts a warp's sums into shared memory."""
    element = emit.register_type(tile.kind.sums)
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    row = warp // ACROSS * _WARP_ROWS + lane // 4
    column = warp % ACROSS * tile.warp_columns
    across, each = tile.warp_columns // 8, 4 if tile.bytes_across else 2
    places = [lane % 4 * each ^ outputs.turn(lane // 4, column + first) for first in (0, 32)]
    for number in range(0, len(sums) // 4, 2):
        down, right = number // across * 16, number % across * 8
        for half in range(2):
            a, b = (
                list(sums[4 * i + 2 * half : 4 * i + 2 * half + 2]) for i in (number, number + 1)
            )
            place = places[right // 32]
            if tile.bytes_across:
                parts = [(place, [a[0], b[0], a[1], b[1]])]
            else:
                parts = [(place, a), (place + 8, b)]
            for place, values in parts:
                value = vector.from_elements(emit.widen(element, len(values)), values)
                line = (row + down + 8 * half) * tile.pitch
                shared.store(value, (line + column + right + place) * 4)


def write(frame: _frame.Frame, tile: Tile, shared: mma.DynamicShared, where: Place) -> None:
    """Writes the tile whose sums lie in shared memory, rows of `tile.pitch`; 256 threads call."""

    def sums(row: Size, column: Size, lanes: int) -> Any:
        place = column ^ outputs.turn(row, column)
        return outputs.load_sums(shared, tile.kind.sums, row * tile.pitch, place, lanes)

    outputs.write(frame, where, (ROWS, tile.columns), sums)
