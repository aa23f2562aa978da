"""Permutations of axes.

Where the last axis stays last, rows are copied in a sweep. Otherwise blocks move tiles of 32 x 32
between the two last axes through shared memory, so that reads and writes are both contiguous, of 16
bits of 64 x 64 and in pairs. A thread reads all that it moves before it stores the first of it. A
tile's rows are a word of 4 bytes longer, so that its columns lie in different banks.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.permutation import Permutation, offset, result_offset
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

TILE = 32


def emit_transpose(spec: Spec, machine: Machine) -> None:
    """Emits the copy that fits the permutation."""
    frame = _frame.frame(memory.as_bits(spec), machine)
    plan = Permutation.of(spec)
    shape = frame.shape(plan.shape)
    if plan.copies:
        _emit_rows(frame, plan, shape)
    else:
        with frame.unless_empty():
            _emit_tiles(frame, plan, shape)


def _emit_rows(frame: _frame.Frame, plan: Permutation, shape: tuple[Size, ...]) -> None:
    read, write = frame.reader(0), frame.writer()
    extents = tuple(shape[axis] for axis in plan.outer)

    def body(lanes: int) -> None:
        for position in _frame.sweep(sizes.product(shape), lanes):
            row, column = sizes.floordiv(position, shape[-1]), sizes.mod(position, shape[-1])
            where = dict(zip(plan.outer, sizes.split(row, extents), strict=True))
            write(read(column + offset(shape, where), lanes), position)

    _frame.in_vectors(frame, [read.inputs, write.inputs], [shape[-1]], body)


def _emit_tiles(frame: _frame.Frame, plan: Permutation, shape: tuple[Size, ...]) -> None:
    read, write = frame.reader(0), frame.writer()
    dtype = frame.spec.result.dtype
    edge, element = _edge(frame.spec), emit.memory_type(dtype)
    pitch = edge + max(1, 4 // emit.ITEM_SIZE[dtype])
    tile = _block.SharedArray("tile", element, edge * pitch)
    # Along x the input is contiguous, along y the output.
    width, y_axis = shape[-1], plan.order[-1]
    height, stride = shape[y_axis], sizes.product(shape[y_axis + 1 :])
    x_tiles, y_tiles = (sizes.ceildiv(extent, edge) for extent in (width, height))
    batch = tuple(shape[axis] for axis in plan.outer)
    within, x_tile = sizes.floordiv(_block.block(), x_tiles), sizes.mod(_block.block(), x_tiles)
    number, y_tile = sizes.floordiv(within, y_tiles), sizes.mod(within, y_tiles)
    where = dict(zip(plan.outer, sizes.split(number, batch), strict=True))
    read_start = offset(shape, where)
    write_start, step = result_offset(plan.order, shape, where)
    x_start, y_start = x_tile * edge, y_tile * edge

    def line(y: Size) -> Size:
        """Where a row of the tile begins: all even ones before the odd ones, in tiles of pairs."""
        return (y if edge == TILE else y % 2 * TILE + y // 2) * pitch

    def body(lanes: int) -> None:
        across = edge // lanes
        column, row = _block.thread() % across * lanes, _block.thread() // across
        at_once, kind = _frame.THREADS // across, emit.widen(element, lanes)
        zeros, found = emit.constant(element, 0, lanes), []
        for y in (row + first for first in range(0, edge, at_once)):
            place = read_start + (y_start + y) * stride + x_start + column

            def load(place: Size = place) -> list[Any]:
                return [convert.to_memory(read(place, lanes), dtype)]

            inside = _less(x_start + column, width) & _less(y_start + y, height)
            found += emit.either(inside, [kind], load, lambda: [zeros])
        for number, stored in enumerate(found):
            tile.store(stored, line(row + number * at_once) + column)
        _block.barrier()
        for x in (row * lanes + first for first in range(0, edge, at_once * lanes)):
            stored = [tile.load(line(column + i) + x, lanes) for i in range(lanes)]
            for i, turned in enumerate(_turned(stored)):
                inside = _less(x_start + x + i, width) & _less(y_start + column, height)
                with emit.when(inside):
                    place = write_start + (x_start + x + i) * step + y_start + column
                    write(convert.from_memory(turned, dtype), place)

    if edge == TILE:
        body(1)
    else:
        _frame.in_vectors(frame, [read.inputs, write.inputs], [width, height], body, most=2)


def _turned(rows: list[Any]) -> list[Any]:
    """One row of one element, or two of two, as columns."""
    if len(rows) == 1:
        return rows
    first, second = rows
    return [crosslane.shuffle(first, second, [i, 2 + i]) for i in range(2)]


def _edge(spec: Spec) -> int:
    """Rows and columns of a tile: twice as many of 16 bits, which move in pairs."""
    items = {emit.ITEM_SIZE[one.dtype] for one in (spec.operands[0], spec.result)}
    return 2 * TILE if items == {2} else TILE


def _less(a: Size, b: Size) -> Size:
    return emit.compare("less", a, b)


def launch(spec: Spec) -> Launch:
    """Blocks for a sweep, or one for each tile."""
    plan = Permutation.of(spec)
    work = fold("mul", product(plan.shape), 2 + bodies.work(spec.epilogue))
    grid = _frame.sweep_grid(plan.shape)
    if not plan.copies:
        turned = len(plan.shape) - 1, plan.order[-1]
        tiles = tuple(
            fold("ceildiv", size, _edge(spec)) if axis in turned else size
            for axis, size in enumerate(plan.shape)
        )
        grid = fold("max", 1, product(tiles)), 1, 1
    return Launch(grid, work, (_frame.THREADS, 1, 1))


KERNEL = Kernel("transpose", "cuda", emit_transpose, launch, bodies.unsupported_in)
