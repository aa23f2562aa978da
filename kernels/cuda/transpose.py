"""Permutations of axes.

Where the last axis stays last, rows are copied in a sweep. Otherwise blocks move tiles of 32 x 32
between the two last axes through shared memory, so that reads and writes are both contiguous; a
tile's rows are 33 long, so that its columns lie in different banks.
"""

from __future__ import annotations

from heddle.kernels import bodies, convert, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

TILE = 32
_ROWS_AT_ONCE = _frame.THREADS // TILE


def emit_transpose(spec: Spec, machine: Machine) -> None:
    """Emits the copy that fits the permutation."""
    frame = _frame.frame(memory.as_bits(spec), machine)
    shape, order = _joined(spec)
    source = frame.shape(shape)
    strides = [sizes.product(source[axis + 1 :]) for axis in range(len(source))]
    if not order or order[-1] == len(order) - 1:
        _emit_rows(frame, source, strides, order)
    else:
        with frame.unless_empty():
            _emit_tiles(frame, source, strides, order)


def _emit_rows(
    frame: _frame.Frame, source: tuple[Size, ...], strides: list[Size], order: list[int]
) -> None:
    read, write = frame.reader(0), frame.writer()
    run = source[-1] if source else 1
    total = sizes.product(source)

    def body(lanes: int) -> None:
        for position in _frame.sweep(total, lanes):
            row, where = sizes.floordiv(position, run), sizes.mod(position, run)
            coordinates = sizes.split(row, tuple(source[axis] for axis in order[:-1]))
            for i, axis in zip(coordinates, order, strict=False):
                where = where + i * strides[axis]
            write(read(where, lanes), position)

    _frame.in_vectors(frame, [read.inputs, write.inputs], [run], body)


def _emit_tiles(
    frame: _frame.Frame, source: tuple[Size, ...], strides: list[Size], order: list[int]
) -> None:
    read, write = frame.reader(0), frame.writer()
    dtype = frame.spec.result.dtype
    tile = _block.SharedArray("tile", emit.memory_type(dtype), TILE * (TILE + 1))
    # Along x the input is contiguous, along y the output.
    x_axis, y_axis = len(source) - 1, order[-1]
    targets = [source[axis] for axis in order]
    target_strides = [sizes.product(tuple(targets[i + 1 :])) for i in range(len(order))]
    x_tiles, y_tiles = (sizes.ceildiv(source[axis], TILE) for axis in (x_axis, y_axis))
    others = [axis for axis in order if axis not in (x_axis, y_axis)]
    batch = tuple(source[axis] for axis in others)
    column, row = _block.thread() % TILE, _block.thread() // TILE
    within, x_tile = sizes.floordiv(_block.block(), x_tiles), sizes.mod(_block.block(), x_tiles)
    number, y_tile = sizes.floordiv(within, y_tiles), sizes.mod(within, y_tiles)
    read_start: Size = 0
    write_start: Size = 0
    for i, axis in zip(sizes.split(number, batch), others, strict=True):
        read_start = i * strides[axis] + read_start
        write_start = i * target_strides[order.index(axis)] + write_start
    x_start, y_start = x_tile * TILE, y_tile * TILE

    for first in range(0, TILE, _ROWS_AT_ONCE):
        x, y = x_start + column, y_start + row + first
        inside = _less(x, source[x_axis]) & _less(y, source[y_axis])
        with emit.when(inside):
            value = read(read_start + y * strides[y_axis] + x, 1)
            stored = convert.to_memory(value, dtype)
            tile.store(stored, (row + first) * (TILE + 1) + column)
    _block.barrier()
    for first in range(0, TILE, _ROWS_AT_ONCE):
        x, y = x_start + row + first, y_start + column
        inside = _less(x, source[x_axis]) & _less(y, source[y_axis])
        with emit.when(inside):
            stored = tile.load(column * (TILE + 1) + row + first)
            value = convert.from_memory(stored, dtype)
            write(value, write_start + x * target_strides[order.index(x_axis)] + y)


def _less(a: Size, b: Size) -> Size:
    return emit.compare("less", a, b)


def _joined(spec: Spec) -> tuple[tuple[Expr, ...], list[int]]:
    """The operand's shape and the permutation, axes that stay neighbours joined."""
    shape, permutation = spec.operands[0].shape, spec.attr("permutation")
    groups: list[list[int]] = []
    for axis in permutation:
        if shape[axis] == 1:
            continue
        if (
            groups
            and all(n == 1 for n in shape[groups[-1][-1] + 1 : axis])
            and axis > groups[-1][-1]
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    by_source = sorted(groups)
    joined = tuple(product(tuple(shape[axis] for axis in group)) for group in by_source)
    return joined, [by_source.index(group) for group in groups]


def launch(spec: Spec) -> Launch:
    """Blocks for a sweep, or one for each tile."""
    shape, order = _joined(spec)
    work = fold("mul", product(shape), 2 + bodies.work(spec.epilogue))
    grid = _frame.sweep_grid(shape)
    if order and order[-1] != len(order) - 1:
        tiles = [
            fold("ceildiv", size, TILE) if axis in (len(shape) - 1, order[-1]) else size
            for axis, size in enumerate(shape)
        ]
        grid = fold("max", 1, product(tuple(tiles))), 1, 1
    return Launch(grid, work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Every dtype and body."""
    return bodies.unsupported(spec.prologue) or bodies.unsupported(spec.epilogue)


KERNEL = Kernel("transpose", "cuda", emit_transpose, launch, supports)
