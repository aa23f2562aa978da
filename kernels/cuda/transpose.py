"""Permutations of axes.

Where the last axis stays last, rows are copied in a sweep. Otherwise blocks move tiles of 32 x 32
between the two last axes through shared memory, so that reads and writes are both contiguous; a
tile's rows are a word of 4 bytes longer, so that its columns lie in different banks.
"""

from __future__ import annotations

from heddle.kernels import bodies, convert, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.permutation import Permutation, offset, result_offset
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

TILE = 32
_ROWS_AT_ONCE = _frame.THREADS // TILE


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
    pitch = TILE + max(1, 4 // emit.ITEM_SIZE[dtype])
    tile = _block.SharedArray("tile", emit.memory_type(dtype), TILE * pitch)
    # Along x the input is contiguous, along y the output.
    width, y_axis = shape[-1], plan.order[-1]
    height, stride = shape[y_axis], sizes.product(shape[y_axis + 1 :])
    x_tiles, y_tiles = (sizes.ceildiv(extent, TILE) for extent in (width, height))
    batch = tuple(shape[axis] for axis in plan.outer)
    column, row = _block.thread() % TILE, _block.thread() // TILE
    within, x_tile = sizes.floordiv(_block.block(), x_tiles), sizes.mod(_block.block(), x_tiles)
    number, y_tile = sizes.floordiv(within, y_tiles), sizes.mod(within, y_tiles)
    where = dict(zip(plan.outer, sizes.split(number, batch), strict=True))
    read_start = offset(shape, where)
    write_start, step = result_offset(plan.order, shape, where)
    x_start, y_start = x_tile * TILE, y_tile * TILE

    for first in range(0, TILE, _ROWS_AT_ONCE):
        x, y = x_start + column, y_start + row + first
        inside = _less(x, width) & _less(y, height)
        with emit.when(inside):
            value = read(read_start + y * stride + x, 1)
            stored = convert.to_memory(value, dtype)
            tile.store(stored, (row + first) * pitch + column)
    _block.barrier()
    for first in range(0, TILE, _ROWS_AT_ONCE):
        x, y = x_start + row + first, y_start + column
        inside = _less(x, width) & _less(y, height)
        with emit.when(inside):
            stored = tile.load(column * pitch + row + first)
            value = convert.from_memory(stored, dtype)
            write(value, write_start + x * step + y)


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
            fold("ceildiv", size, TILE) if axis in turned else size
            for axis, size in enumerate(plan.shape)
        )
        grid = fold("max", 1, product(tiles)), 1, 1
    return Launch(grid, work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Every dtype and body."""
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("transpose", "cuda", emit_transpose, launch, supports)
