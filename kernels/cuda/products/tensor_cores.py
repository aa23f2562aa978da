"""Which products run on tensor cores, and in which pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import by_rows, matrices, mma, skinny, tiles
from heddle.kernels.cuda.products.tile import ROWS, Tile
from heddle.kernels.spec import Expr, Spec, fold, product

_ENOUGH = 97  # Blocks of 64 columns that are better than twice as many of 32: measured.
_NARROW = 1.1  # Of tiles of 128 columns: what a product costs more than in tiles of 256.


def fits(spec: Spec) -> bool:
    """Whether tensor cores multiply these dtypes, and nothing is computed before."""
    return mma.kind_of(spec) is not None and spec.prologue is None


def joins(spec: Spec) -> bool:
    """Whether one kernel computes the product and others of the same few rows."""
    return by_rows.in_strips(spec) and by_rows.may_be_few(spec)


def ways(spec: Spec) -> Sequence[by_rows.Way]:
    """The ways to compute the product of operands 0 and 1."""
    kind, transposed = mma.kind_of(spec), spec.attr("transposed")
    assert kind is not None
    problem = matrices.problem(spec)
    found = []
    if by_rows.has_strips(kind, transposed):
        wide = skinny.Strip(kind, by_rows.FEWER, 64, transposed, 2 if spec.gate else 1)
        columns = narrow(problem, spec.gate is not None, skinny.long_parts(wide, problem))
        for strip in (replace(wide, columns=columns), replace(wide, rows=by_rows.FEW)):
            blocks = skinny.way(strip, problem).blocks
            found.append(skinny.way(replace(strip, shared=_shared(strip, blocks)), problem))
    if spec.gate:  # Only what few rows have computes both.
        return by_rows.possible(spec, found)
    columns = matrices.SPACE.value("columns", spec, "cuda") or _columns(problem)
    tile = Tile(kind, columns, transposed)
    found.append(
        by_rows.Way(
            None,
            _tiles_of(problem, columns),
            tiles.shared_bytes(columns),
            partial(tiles.emit_tiles, tile),
        )
    )
    return by_rows.possible(spec, found)


def narrow(problem: matrices.Problem, gated: bool = False, parts: int = 1) -> int:
    """The columns of a block for up to 16 rows: 64 where those make blocks enough for a GPU.

    Each block reads all rows, so that wider ones ask less of the L2 cache, and fewer leave room
    for those of the next kernel. With a gate, 64 are 32 of both products. `parts`: of each strip.
    """
    many = isinstance(problem.n, int) and problem.n * parts >= 64 * _ENOUGH
    return 64 if gated or many else 32


def _shared(strip: skinny.Strip, blocks: Expr) -> int:
    """Bytes of a block's stages, so that the blocks of the next kernel fit beside all of these.

    Where only some of them do, they wait on multiprocessors that have little to do, and leave
    others with twice as much. More than 16 rows need their room for stages, and for sums.
    """
    few = isinstance(blocks, int) and _handover.PROCESSORS < blocks <= 3 * _handover.PROCESSORS // 2
    return skinny.LESS if few and strip.rows < by_rows.FEW else skinny.SHARED


def _columns(problem: matrices.Problem) -> int:
    """The columns of tiles whose last wave leaves the fewest multiprocessors idle."""
    wide, narrow = (
        -(-count // _handover.PROCESSORS) if isinstance(count, int) else None
        for count in (_tiles_of(problem, columns) for columns in (256, 128))
    )
    return 256 if wide and narrow and 2 * wide <= _NARROW * narrow else 128


def _tiles_of(problem: matrices.Problem, columns: int) -> Expr:
    down, across = (
        fold("ceildiv", size, step) for size, step in ((problem.m, ROWS), (problem.n, columns))
    )
    return product((*problem.batch, down, across))
