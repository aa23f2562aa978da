"""Products of few rows on tensor cores, as fast as b can be read.

A block makes few columns, so that there are blocks for all multiprocessors, and has many small
stages of b on their way (`staging`). Of each stage a warp multiplies one slice of k. The sums of
the warps are added up in shared memory, always in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import by_rows, matrices, mma, outputs, staging, strip_parts
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, fold, product

SHARED = 96 * 1024
"""Bytes of a block's stages at most: two blocks fit a multiprocessor of sm_90a."""

LESS = 64 * 1024
"""As `SHARED`, where three are to fit."""

WARPS = staging.THREADS // _block.WARP
"""Warps of a block."""

_LONG = 8  # Rings of a part that is long: bringing parts together takes the time of two.
_SLICE = 2 * mma.CHUNK  # Bytes along k of one mma.sync.


@dataclass(frozen=True)
class Strip:
    """A block's `rows`, all that there are, and `columns`; `transposed`: b is [n, k].

    Where there are two `products`, the first half of its columns is of one, the second of its gate.
    """

    kind: mma.Kind
    rows: int
    columns: int
    transposed: bool
    products: int = 1
    shared: int = SHARED

    @property
    def each(self) -> int:
        """Columns of each product."""
        return self.columns // self.products

    @property
    def warps_along_k(self) -> int:
        """Warps that share the steps along k of one column."""
        return WARPS * outputs.WARP_COLUMNS // self.columns

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
        return self.deep if self.transposed else self.each * self.kind.item

    @property
    def b_lines(self) -> int:
        """Lines of b of each product."""
        return self.each if self.transposed else self.depth

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return (self.rows + self.columns) * self.deep

    @property
    def stages(self) -> int:
        """As many as there is room for."""
        return self.shared // self.stage


def way(strip: Strip, problem: matrices.Problem) -> by_rows.Way:
    """The way to compute a product of no more rows than the strip has."""
    strips, steps = _counts(strip, problem)
    parts = strip_parts.count(strips, steps, strip.stages)
    return strip_parts.way(strip.rows, strip, strips, steps, strip.shared, _emit_strip, parts)


def long_parts(strip: Strip, problem: matrices.Problem) -> int:
    """Parts of each strip where they have so many steps that bringing them together is little."""
    strips, steps = _counts(strip, problem)
    parts = strip_parts.count(strips, steps, strip.stages)
    return parts if isinstance(steps, int) and steps // parts >= _LONG * strip.stages else 1


def _counts(strip: Strip, problem: matrices.Problem) -> tuple[Expr, Expr]:
    """How many strips there are, and steps of each."""
    strips = product((*problem.batch, fold("ceildiv", problem.n, strip.each)))
    return strips, fold("ceildiv", problem.k, strip.depth)


def _emit_strip(
    strip: Strip,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    number: Size,
    part: strip_parts.Part | None,
) -> None:
    problem = matrices.problem(frame.spec)
    m, n, k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
    strips = sizes.ceildiv(n, strip.each)
    column = number % strips * strip.each
    where = outputs.Place(number // strips, emit.index(0), column, m, n, k)
    sides = staging.sides(frame, where.number)

    emit_strip_at(strip, frame, shared, where, sides, part)


def emit_strip_at(
    strip: Strip,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    where: outputs.Place,
    sides: Sequence[staging.Matrix],
    part: strip_parts.Part | None = None,
) -> None:
    """Emits the strip at `where`, or a part of it, of the products of one left side and others."""
    a, *right = sides
    rows = staging.Lines(a, 0, strip.rows, strip.deep, strip.depth, where.row, True)
    columns = [
        staging.Lines(
            b,
            strip.b_place + i * strip.b_lines * strip.b_line,
            strip.b_lines,
            strip.b_line,
            strip.depth,
            where.column,
            strip.transposed,
        )
        for i, b in enumerate(right)
    ]
    lane, slice_, first = _warp(strip)
    a_places, b_places = _places(strip, lane, slice_, first)

    def multiply(step: Size, stage: Size, sums: Sequence[Any]) -> Sequence[Any]:
        fragments = [mma.load_matrices(shared.at(stage + place), False) for place in a_places]
        others: list[Any] = []
        for place in b_places:
            others += mma.load_matrices(shared.at(stage + place), not strip.transposed)
        return products(strip.kind, fragments, others, sums)

    element = emit.register_type(strip.kind.sums)
    zeros = [emit.constant(element, 0)] * (strip.rows // 16 * (outputs.WARP_COLUMNS // 8) * 4)
    ring = staging.Ring(shared, strip.stages, strip.stage)
    steps = strip_parts.steps(sizes.ceildiv(where.k, strip.depth), part)
    sums = ring.stream(frame, [rows], columns, steps, zeros, multiply)
    result = outputs.SlicedSums(
        shared, strip.kind.sums, strip.warps_along_k, strip.rows, strip.columns
    )
    result.store(sums, slice_, first)
    _block.barrier()
    strip_parts.write(frame, where, result, part)


def _warp(strip: Strip) -> tuple[Size, Size, Size]:
    """The lane, the warp's slice of k, and its first column."""
    lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
    across = strip.columns // outputs.WARP_COLUMNS
    return lane, warp // across, warp % across * outputs.WARP_COLUMNS


def products(
    kind: mma.Kind, a: Sequence[Sequence[Any]], b: Sequence[Any], sums: Sequence[Any]
) -> list[Any]:
    """`sums` plus the products of the fragments a, of 16 rows each, and b, of 8 columns each."""
    found: list[Any] = []
    for rows in a:
        for j in range(0, len(b), 2):
            before = sums[len(found) : len(found) + 4]
            found += mma.multiply(kind, rows, b[j : j + 2], before)
    return found


def _places(strip: Strip, lane: Size, slice_: Size, column: Size) -> tuple[list[Size], list[Size]]:
    """Where in a stage the warp's matrices are: of a for 16 rows each, of b for 16 columns each."""

    def byte(line: Size, chunk: Size, length: int) -> Size:
        return line * length + staging.swizzled(line, chunk, length) * mma.CHUNK

    a = [
        byte(lane % 16 + 16 * i, slice_ * 2 + lane // 16, strip.deep)
        for i in range(strip.rows // 16)
    ]
    if strip.transposed:
        line = column + lane % 8 + lane // 16 * 8
        chunk = slice_ * 2 + lane // 8 % 2
        b = [byte(line + 16 * j, chunk, strip.b_line) for j in range(outputs.WARP_COLUMNS // 16)]
    else:
        line = column // strip.each * strip.depth + slice_ * strip.kind.depth + lane % 16
        chunk = column % strip.each // strip.kind.each + lane // 16
        b = [byte(line, chunk + 2 * j, strip.b_line) for j in range(outputs.WARP_COLUMNS // 16)]
    return a, [strip.b_place + place for place in b]
