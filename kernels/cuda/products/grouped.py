"""Rows sorted by group, each group by a matrix of its own: pieces of rows and columns.

There is a block for each piece that there may be; a block looks for its own one among the offsets,
a group in each lane, and ends where it finds none. With few rows for each group a piece has few
rows: then the time is that of reading the group's matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from heddle.kernels import emit, row_groups, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import by_rows, fma, matrices, mma, outputs, row_pieces, tiles
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.emit import compare, select
from heddle.kernels.row_groups import most
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

Body = Callable[[_frame.Frame, mma.DynamicShared, Place, Size], None]
"""Emits the piece at a place, of the rows of a group."""


def way(
    limit: int | None, spec: Spec, rows: int, columns: int, shared: int, body: Body
) -> by_rows.Way:
    """The way to compute up to `limit` rows in all by pieces of so many rows and columns."""
    emit_block = partial(_emit_piece, rows, columns, body)
    return by_rows.Way(limit, _pieces(spec, rows, columns), shared, emit_block)


def _pieces(spec: Spec, rows: int, columns: int) -> Expr:
    return product((most(spec, rows), fold("ceildiv", spec.result.shape[-1], columns)))


def _emit_piece(
    rows: int,
    columns: int,
    emit_at: Body,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    block: Size,
) -> None:
    """Emits a piece of so many rows and columns; one of no group is zeros."""

    def body(group: Any, where: Place) -> None:
        sums = emit.register_type("float32")

        def multiplied() -> list[Any]:
            emit_at(frame, shared, where, group)
            return []

        def zeros() -> list[Any]:
            none = (rows, columns), lambda row, column, lanes: emit.constant(sums, 0, lanes)
            outputs.write(frame, where, *none)
            return []

        emit.either(compare("greater_equal", group, 0), [], multiplied, zeros)

    _in_group(frame, block, rows, columns, body)


def emit_multiply_adds(frame: _frame.Frame, sides: tuple[fma.Side, fma.Side], turns: bool) -> None:
    """Emits the piece of this block by fused multiply-adds; b `turns` where it is [groups, n, k].

    The sides read x, and the matrices of all groups.
    """
    side = fma.side_of(frame.spec)

    def body(group: Any, where: Place) -> None:
        n, k = emit.as_index(where.n), emit.as_index(where.k)
        start = emit.maximum(group, 0) * n * k
        k = select(compare("greater_equal", group, 0), k, 0)
        place = Place(where.number, where.row, where.column, where.m, n, k)
        fma.emit_tile_at(frame, sides, turns, place, (emit.index(0), start))

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


def supports(spec: Spec, product: Callable[[Spec], str | None]) -> str | None:
    """As the `product` of a group, without a prologue, by integer offsets."""
    if reason := row_groups.unsupported(spec):
        return reason
    if spec.prologue is not None:
        return "it takes no prologue"
    others = list(spec.operands)
    del others[row_groups.offsets(spec)]
    return product(replace(spec, operands=tuple(others)))


def launch_multiply_adds(spec: Spec) -> Launch:
    """A block for each piece that there may be, without tensor cores."""
    side = fma.side_of(spec)
    grid = fold("max", 1, _pieces(spec, side, side))
    threads = fma.launch(spec).block
    return Launch((grid, 1, 1), matrices.problem(spec).work, threads)
