"""Which products run on tensor cores, in which pieces, and their launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _frame, _mma, _product, _skinny, _staging, _tiles
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_PROCESSORS = 132  # Of an H100 or H200: by how many blocks at a time a choice counts.
_NARROW = 1.1  # Of tiles of 128 columns: what a product costs more than in tiles of 256.


@dataclass(frozen=True)
class _Plan:
    """What a block makes while the product has at most `most` rows (None: any number)."""

    most: int | None
    piece: _tiles.Tile | _skinny.Strip

    def count(self, problem: _product.Problem) -> Expr:
        """The number of blocks."""
        down = fold("ceildiv", problem.m, _tiles.ROWS) if self.most is None else 1
        across = fold("ceildiv", problem.n, self.piece.columns)
        return product((*problem.batch, down, across))


def fits(spec: Spec) -> bool:
    """Whether tensor cores multiply these dtypes, and nothing is computed before."""
    a, b, *_ = spec.operands
    return (a.dtype, b.dtype) in _mma.KINDS and spec.prologue is None


def emit_product(frame: _frame.Frame) -> None:
    """Emits the product of operands 0 and 1."""
    shared = _mma.DynamicShared("stages")
    m = frame.size(_product.problem(frame.spec).m)
    _emit(frame, shared, m, _plans(frame.spec))


def _emit(frame: _frame.Frame, shared: _mma.DynamicShared, m: Size, plans: list[_Plan]) -> None:
    piece = plans[0].piece

    def this() -> list[Any]:
        if isinstance(piece, _skinny.Strip):
            _skinny.emit_strip(frame, piece, shared)
        else:
            _tiles.emit_tiles(frame, piece, shared)
        return []

    def rest() -> list[Any]:
        _emit(frame, shared, m, plans[1:])
        return []

    if len(plans) == 1:
        this()
    else:
        emit.either(emit.compare("less_equal", m, plans[0].most), [], this, rest)


def launch(spec: Spec) -> Launch:
    """A block for each piece of the result; how large they are depends on the rows of the call."""
    problem, plans = _product.problem(spec), _plans(spec)
    grid = plans[-1].count(problem)
    for plan in reversed(plans[:-1]):
        few: Expr = ("sub", 1, ("min", 1, ("floordiv", problem.m, (plan.most or 0) + 1)))
        grid = ("add", ("mul", few, plan.count(problem)), ("mul", ("sub", 1, few), grid))
    shared = max(
        _skinny.SHARED
        if isinstance(plan.piece, _skinny.Strip)
        else _tiles.shared_bytes(plan.piece.columns)
        for plan in plans
    )
    return Launch((fold("max", 1, grid), 1, 1), problem.work, (_staging.THREADS, 1, 1), shared)


def _plans(spec: Spec) -> list[_Plan]:
    """The plans of a spec by their rows; only those that its sizes leave open."""
    a, b, *_ = spec.operands
    kind, transposed = _mma.KINDS[a.dtype, b.dtype], spec.attr("transposed")
    problem = _product.problem(spec)
    columns = _product.SPACE.value("columns", spec, "cuda") or _columns(problem)
    plans = [_Plan(None, _tiles.Tile(kind, columns, transposed))]
    if kind.item == 2:
        wide = isinstance(problem.n, int) and problem.n >= 64 * 128
        shapes = {16: 64 if wide else 32, 64: 64}
        plans[:0] = [
            _Plan(rows, _skinny.Strip(kind, rows, columns, transposed))
            for rows, columns in shapes.items()
        ]
    if isinstance(problem.m, int):
        m = problem.m
        return [next(plan for plan in plans if plan.most is None or m <= plan.most)]
    return plans


def _columns(problem: _product.Problem) -> int:
    """The columns of tiles whose last wave leaves the fewest multiprocessors idle."""
    down = fold("ceildiv", problem.m, _tiles.ROWS)
    counts = [
        product((*problem.batch, down, fold("ceildiv", problem.n, columns)))
        for columns in (256, 128)
    ]
    wide, narrow = (-(-n // _PROCESSORS) if isinstance(n, int) else None for n in counts)
    return 256 if wide and narrow and 2 * wide <= _NARROW * narrow else 128
