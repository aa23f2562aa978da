"""Which products run on tensor cores, in which tiles, and their launch."""

from __future__ import annotations

from heddle.kernels.cuda import _frame, _mma, _product, _staging, _tiles
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_PROCESSORS = 132  # Of an H100 or H200: by how many tiles at a time a choice counts.
_NARROW = 1.1  # Of tiles of 128 columns: what a product costs more than in tiles of 256.


def fits(spec: Spec) -> bool:
    """Whether tensor cores multiply these dtypes, and nothing is computed before."""
    a, b, *_ = spec.operands
    return (a.dtype, b.dtype) in _mma.KINDS and spec.prologue is None


def emit_product(frame: _frame.Frame) -> None:
    """Emits the product of operands 0 and 1."""
    _tiles.emit_tiles(frame, _tile(frame.spec), _mma.DynamicShared("stages"))


def launch(spec: Spec) -> Launch:
    """A block for each tile of the result."""
    problem, columns = _product.problem(spec), _tile(spec).columns
    grid = fold("max", 1, _count(problem, columns))
    return Launch(
        (grid, 1, 1), problem.work, (_staging.THREADS, 1, 1), _tiles.shared_bytes(columns)
    )


def _tile(spec: Spec) -> _tiles.Tile:
    a, b, *_ = spec.operands
    columns = _product.SPACE.value("columns", spec, "cuda") or _columns(_product.problem(spec))
    return _tiles.Tile(_mma.KINDS[a.dtype, b.dtype], columns, spec.attr("transposed"))


def _columns(problem: _product.Problem) -> int:
    """The columns of tiles whose last wave leaves the fewest multiprocessors idle."""
    wide, narrow = (_count(problem, columns) for columns in (256, 128))
    if not isinstance(wide, int) or not isinstance(narrow, int):
        return 128
    waves = [-(-count // _PROCESSORS) for count in (wide, narrow)]
    return 256 if 2 * waves[0] <= _NARROW * waves[1] else 128


def _count(problem: _product.Problem, columns: int) -> Expr:
    tiles = [fold("ceildiv", problem.m, _tiles.ROWS), fold("ceildiv", problem.n, columns)]
    return product((*problem.batch, *tiles))
