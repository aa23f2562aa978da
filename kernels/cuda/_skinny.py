"""Products of few rows on tensor cores, as fast as b can be read.

A block makes few columns, so that there are blocks for all multiprocessors, and has many small
stages of b on their way (`_staging`). Of each stage a warp multiplies one slice of k. The sums of
the warps are added up in shared memory, always in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame, _mma, _product, _result, _staging
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")

SHARED = 96 * 1024
"""Bytes of a block's stages at most: two blocks fit a multiprocessor of sm_90a."""

WARP_COLUMNS = 32
_WARPS = _staging.THREADS // _block.WARP
_SLICE = 2 * _mma.CHUNK  # Bytes along k of one mma.sync.


@dataclass(frozen=True)
class Strip:
    """A block's `rows`, all that there are, and `columns`; `transposed`: b is [n, k]."""

    kind: _mma.Kind
    rows: int
    columns: int
    transposed: bool

    @property
    def warps_along_k(self) -> int:
        return _WARPS * WARP_COLUMNS // self.columns

    @property
    def deep(self) -> int:
        """Bytes along k of a stage: a slice for each warp."""
        return self.warps_along_k * _SLICE

    @property
    def depth(self) -> int:
        """Elements along k of a stage."""
        return self.deep // self.kind.item

    @property
    def b_place(self) -> int:
        """Where b begins in a stage."""
        return self.rows * self.deep

    @property
    def b_line(self) -> int:
        """Bytes of a line of b."""
        return self.deep if self.transposed else self.columns * self.kind.item

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return (self.rows + self.columns) * self.deep

    @property
    def stages(self) -> int:
        return SHARED // self.stage

    @property
    def pitch(self) -> int:
        """Elements between two rows of sums in shared memory: eight more, against conflicts."""
        return self.columns + 8


def emit_strip(frame: _frame.Frame, strip: Strip, shared: _mma.DynamicShared) -> None:
    """Emits the strip of this block."""
    problem = _product.problem(frame.spec)
    m, n, k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
    strips = sizes.ceildiv(n, strip.columns)
    column = _block.block() % strips * strip.columns
    where = _result.Place(_block.block() // strips, emit.index(0), column, m, n, k)
    a, b = _staging.matrices(frame, where.number)
    parts = [
        _staging.Lines(a, 0, strip.rows, strip.deep, strip.depth, where.row, True),
        _staging.Lines(
            b,
            strip.b_place,
            strip.columns if strip.transposed else strip.depth,
            strip.b_line,
            strip.depth,
            column,
            strip.transposed,
        ),
    ]
    sums = _multiplied(strip, shared, parts, sizes.ceildiv(k, strip.depth))
    _mma.wait(0)
    _block.barrier()  # The stages are free.
    _store(strip, shared, sums)
    _block.barrier()
    element = emit.register_type(strip.kind.sums)

    def total(row: Size, column: Size, lanes: int) -> Any:
        parts = [
            shared.load(((i * strip.rows + row) * strip.pitch + column) * 4, element, lanes)
            for i in range(strip.warps_along_k)
        ]
        return sum(parts[1:], parts[0])

    _result.write(frame, where, (strip.rows, strip.columns), total)


def _warp(strip: Strip) -> tuple[Size, Size, Size]:
    """The lane, the warp's slice of k, and its first column."""
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    across = strip.columns // WARP_COLUMNS
    return lane, warp // across, warp % across * WARP_COLUMNS


def _multiplied(
    strip: Strip, shared: _mma.DynamicShared, parts: Sequence[_staging.Lines], steps: Size
) -> Sequence[Any]:
    """The sums of a warp: for each 16 x 8 of them, row by row, four registers."""
    a_places, b_places = _places(strip)
    ahead = strip.stages - 1

    def fill(step: Size) -> None:
        for part in parts:
            part.fill(shared, emit.as_index(step) % strip.stages * strip.stage, step)
        _mma.commit()

    def step(number: Size, *sums: Any) -> Sequence[Any]:
        _mma.wait(ahead - 1)
        _block.barrier()  # The stage is there, and nobody reads the one before it any more.
        fill(number + ahead)
        stage = number % strip.stages * strip.stage
        a = [_mma.load_matrices(shared.at(stage + place), False) for place in a_places]
        b: list[Any] = []
        for place in b_places:
            b += _mma.load_matrices(shared.at(stage + place), not strip.transposed)
        return _products(strip.kind, a, b, sums)

    for number in range(ahead):
        fill(number)
    zero = emit.constant(emit.register_type(strip.kind.sums), 0)
    count = strip.rows // 16 * (WARP_COLUMNS // 8) * 4
    return emit.carry(0, steps, 1, [zero] * count, step)


def _products(
    kind: _mma.Kind, a: Sequence[Sequence[Any]], b: Sequence[Any], sums: Sequence[Any]
) -> list[Any]:
    """`sums` plus the products of the fragments a, of 16 rows each, and b, of 8 columns each."""
    found: list[Any] = []
    for rows in a:
        for j in range(0, len(b), 2):
            before = sums[len(found) : len(found) + 4]
            found += _mma.multiply(kind, rows, b[j : j + 2], before)
    return found


def _places(strip: Strip) -> tuple[list[Size], list[Size]]:
    """Where in a stage the warp's matrices are: of a for 16 rows each, of b for 16 columns each."""
    lane, slice_, column = _warp(strip)

    def byte(line: Size, chunk: Size, length: int) -> Size:
        return line * length + _staging.swizzled(line, chunk, length) * _mma.CHUNK

    a = [
        byte(lane % 16 + 16 * i, slice_ * 2 + lane // 16, strip.deep)
        for i in range(strip.rows // 16)
    ]
    if strip.transposed:
        line = column + lane % 8 + lane // 16 * 8
        chunk = slice_ * 2 + lane // 8 % 2
        b = [byte(line + 16 * j, chunk, strip.b_line) for j in range(WARP_COLUMNS // 16)]
    else:
        line = slice_ * strip.kind.depth + lane % 16
        chunk = column // strip.kind.each + lane // 16
        b = [byte(line, chunk + 2 * j, strip.b_line) for j in range(WARP_COLUMNS // 16)]
    return a, [strip.b_place + place for place in b]


def _store(strip: Strip, shared: _mma.DynamicShared, sums: Sequence[Any]) -> None:
    """Puts a warp's sums into shared memory, those of each slice of k behind each other."""
    element = emit.register_type(strip.kind.sums)
    lane, slice_, column = _warp(strip)
    row = slice_ * strip.rows + lane // 4
    across = WARP_COLUMNS // 8
    for position in range(0, len(sums), 2):
        number, half = position // 4, position % 4 // 2
        down, right = number // across * 16 + half * 8, number % across * 8
        pair = vector.from_elements(emit.widen(element, 2), list(sums[position : position + 2]))
        place = (row + down) * strip.pitch + column + lane % 4 * 2 + right
        shared.store(pair, place * 4)
