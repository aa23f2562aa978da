"""Rows sorted by group, each group by its own b: the pieces of `matmul`, each within one group.

There is a block for each piece that there may be; a block looks for its own one among the offsets,
a group in each lane, and ends where it finds none. With few rows for each group a piece has few
rows: then the time is that of reading b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda import matmul as matmul_
from heddle.kernels.cuda.products import (
    by_rows,
    fma,
    matrices,
    mma,
    outputs,
    row_pieces,
    skinny,
    staging,
    tensor_cores,
    tiles,
)
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS, Tile
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product as warpgroup_product
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_groups import most
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_Sides = tuple[staging.Matrix, staging.Matrix]


def emit_grouped(spec: Spec, machine: Machine) -> None:
    """Emits the piece of this block."""
    frame = _frame.frame(spec, machine)
    plan = warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            warpgroup_product.emit_product(frame, plan)
        elif _on_tensor_cores(spec):
            by_rows.emit_ways(frame, _ways(spec))
        else:
            _emit_multiply_adds(frame)


def _on_tensor_cores(spec: Spec) -> bool:
    return (spec.operands[0].dtype, spec.operands[1].dtype) in mma.KINDS


def _kind(spec: Spec) -> mma.Kind:
    a, b, _ = spec.operands
    return mma.KINDS[a.dtype, b.dtype]


def _ways(spec: Spec) -> list[by_rows.Way]:
    """Pieces of 16, 64 and 128 rows, by how many a group has in the mean."""
    kind, transposed, groups = _kind(spec), spec.attr("transposed"), spec.operands[1].shape[0]
    problem, found = matrices.problem(spec), []

    def way(limit: int | None, rows: int, columns: int, shared: int, emit_at: Any) -> by_rows.Way:
        body = partial(_emit_piece, rows, columns, emit_at)
        return by_rows.Way(limit, _pieces(spec, rows, columns), shared, body)

    if isinstance(groups, int):
        for rows, columns in ((16, tensor_cores.narrow(problem)), (64, 64)):
            strip = skinny.Strip(kind, rows, columns, transposed)
            emit_at = partial(skinny.emit_strip_at, strip)
            found.append(way(rows * groups, rows, columns, skinny.SHARED, emit_at))
    columns = matrices.SPACE.value("columns", spec, "cuda") or _columns(problem.n)
    tile = Tile(kind, columns, transposed)

    def emit_tile(frame: _frame.Frame, shared: Any, where: Place, sides: _Sides) -> None:
        tiles.emit_tile(frame, tile, shared, where, sides)

    found.append(way(None, ROWS, columns, tiles.shared_bytes(columns), emit_tile))
    return list(by_rows.possible(spec, found))


def _columns(n: Expr) -> int:
    """Wide tiles read less for each product; n that is not known may be small."""
    return 256 if isinstance(n, int) else 128


def _pieces(spec: Spec, rows: int, columns: int) -> Expr:
    return product((most(spec, rows), fold("ceildiv", spec.result.shape[-1], columns)))


def _emit_piece(
    rows: int,
    columns: int,
    emit_at: Callable[[_frame.Frame, mma.DynamicShared, Place, _Sides], None],
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    block: Size,
) -> None:
    """Emits a piece of so many rows and columns; one of no group is zeros."""

    def body(group: Any, where: Place) -> None:
        a, b = staging.matrices(frame, emit.index(0))
        start = group * emit.as_index(where.n) * where.k
        a, b = replace(a, rows=where.m), replace(b, start=start)
        sums = emit.register_type(_kind(frame.spec).sums)

        def multiplied() -> list[Any]:
            emit_at(frame, shared, where, (a, b))
            return []

        def zeros() -> list[Any]:
            none = (rows, columns), lambda row, column, lanes: emit.constant(sums, 0, lanes)
            outputs.write(frame, where, *none)
            return []

        emit.either(compare("greater_equal", group, 0), [], multiplied, zeros)

    _in_group(frame, block, rows, columns, body)


def _emit_multiply_adds(frame: _frame.Frame) -> None:
    side = fma.side_of(frame.spec)
    readers = frame.reader(0), frame.reader(1)

    def body(group: Any, where: Place) -> None:
        n, k = emit.as_index(where.n), emit.as_index(where.k)
        start = emit.maximum(group, 0) * n * k
        k = select(compare("greater_equal", group, 0), k, 0)
        where = replace(where, n=n, k=k)
        transposed = frame.spec.attr("transposed")
        fma.emit_tile_at(frame, readers, transposed, where, (emit.index(0), start))

    _in_group(frame, _block.block(), side, side, body)


def _in_group(
    frame: _frame.Frame,
    block: Size,
    rows: int,
    columns: int,
    body: Callable[[Any, Place], None],
) -> None:
    """Emits `body(group, where)` for a block's piece, if there is one."""
    n, k = frame.shape((frame.spec.result.shape[-1], frame.spec.operands[0].shape[-1]))
    pieces = emit.as_index(frame.size(most(frame.spec, rows)))
    n_tiles = emit.as_index(sizes.ceildiv(n, columns))
    piece, column = tiles.ordered(block, pieces, n_tiles)
    group, row, end = row_pieces.find(frame, piece, rows)
    with emit.when(compare("less", row, end)):
        body(group, Place(emit.index(0), row, column * columns, end, n, k))


def launch(spec: Spec) -> Launch:
    """A block for each piece that there may be."""
    if _on_tensor_cores(spec):
        return by_rows.launch(spec, _ways(spec))
    side = fma.side_of(spec)
    grid = fold("max", 1, _pieces(spec, side, side))
    threads = fma.launch(spec).block
    return Launch((grid, 1, 1), matrices.problem(spec).work, threads)


def supports(spec: Spec) -> str | None:
    """As `matmul`, without a prologue, by integer offsets."""
    offsets = spec.operands[2].dtype
    if offsets not in ("int32", "int64"):
        return f"offsets: wanted int32 or int64, got {offsets}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return matmul_.supports(replace(spec, operands=spec.operands[:2]))


KERNEL = Kernel(
    "grouped_matmul",
    "cuda",
    emit_grouped,
    launch,
    supports,
    checks=True,
    space=matrices.SPACE,
    own_launch=warpgroup_plan.own_launch,
)
