"""Rows sorted by group, each group by its own b: the pieces of `matmul`, each within one group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from heddle.kernels import emit
from heddle.kernels.cuda import _frame
from heddle.kernels.cuda import matmul as matmul_
from heddle.kernels.cuda.products import (
    by_rows,
    grouped,
    matrices,
    mma,
    skinny,
    staging,
    tensor_cores,
    tiles,
)
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS, Tile
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product as warpgroup_product
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec

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
            sides = frame.reader(0), frame.reader(1)
            grouped.emit_multiply_adds(frame, sides, spec.attr("transposed"))


def _on_tensor_cores(spec: Spec) -> bool:
    return (spec.operands[0].dtype, spec.operands[1].dtype) in mma.KINDS


def _kind(spec: Spec) -> mma.Kind:
    a, b, _ = spec.operands
    return mma.KINDS[a.dtype, b.dtype]


def _ways(spec: Spec) -> list[by_rows.Way]:
    """Pieces of 16, 64 and 128 rows, by how many a group has in the mean."""
    kind, transposed, groups = _kind(spec), spec.attr("transposed"), spec.operands[1].shape[0]
    problem, found = matrices.problem(spec), []

    def way(
        limit: int | None,
        rows: int,
        columns: int,
        shared: int,
        emit_at: Callable[[_frame.Frame, mma.DynamicShared, Place, _Sides], None],
    ) -> by_rows.Way:
        body = partial(_emit_piece, emit_at)
        return grouped.way(limit, spec, rows, columns, shared, body)

    if isinstance(groups, int):
        for rows, columns in ((16, tensor_cores.narrow(problem)), (64, 64)):
            strip = skinny.Strip(kind, rows, columns, transposed)
            emit_at = partial(skinny.emit_strip_at, strip)
            found.append(way(rows * groups, rows, columns, skinny.SHARED, emit_at))
    columns = matrices.SPACE.value("columns", spec, "cuda") or _columns(problem.n)
    tile = Tile(kind, columns, transposed)

    def emit_tile(
        frame: _frame.Frame, shared: mma.DynamicShared, where: Place, sides: _Sides
    ) -> None:
        tiles.emit_tile(frame, tile, shared, where, sides)

    found.append(way(None, ROWS, columns, tiles.shared_bytes(columns), emit_tile))
    return list(by_rows.possible(spec, found))


def _columns(n: Expr) -> int:
    """Wide tiles read less for each product; n that is not known may be small."""
    return 256 if isinstance(n, int) else 128


def _emit_piece(
    emit_at: Callable[[_frame.Frame, mma.DynamicShared, Place, _Sides], None],
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    where: Place,
    group: Size,
) -> None:
    """Emits a piece of a group."""
    a, b = staging.matrices(frame, emit.index(0))
    start = group * emit.as_index(where.n) * where.k
    emit_at(frame, shared, where, (replace(a, rows=where.m), replace(b, start=start)))


def launch(spec: Spec) -> Launch:
    """A block for each piece that there may be."""
    if _on_tensor_cores(spec):
        return by_rows.launch(spec, _ways(spec))
    return grouped.launch_multiply_adds(spec)


def supports(spec: Spec) -> str | None:
    """As `matmul`, without a prologue, by integer offsets."""
    return grouped.supports(spec, matmul_.supports)


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
