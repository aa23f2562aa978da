"""Axes in another order.

Axes that stay neighbours are one. Where the last axis stays last, rows are copied, a few for each
task; else the result's last axis and the operand's span a plane, of which a task turns one square
in tiles held in registers. Where those have no whole lines of cache, large results are turned
in blocks on the stack, from which long pieces of lines go past the cache. Planes of a few long
lines are not turned in squares, see `_narrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.cpu import _narrow
from heddle.kernels.memory import LINE
from heddle.kernels.permutation import Permutation, offset, result_offset
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.stream import Stream
from heddle.kernels.tuning import Parameter, Space

ROWS = 16
"""Rows of a task that copies."""

SQUARE = 128
"""Bytes of the side of the square of a task that turns: with more, lines that are a power of two
apart push each other out of cache."""

RUN = 256
"""Bytes of a line of the result that are written together."""

COLUMNS, READ = 128, 512
"""Elements of a line of the operand that are read together, and bytes of them, at most."""

TILE = 16
"""The side of the largest tile in registers."""

SPACE = Space((Parameter("ahead", (0, 32, 64, 128, 256), 64),), lambda spec: _sides(spec))
"""`ahead`: how many elements ahead in a line memory is asked for, 0: not at all."""


def launch(spec: Spec) -> Launch:
    """One task for a few rows, or for each square of each plane."""
    plan = Permutation.of(spec)
    tasks = product(tuple(plan.shape[axis] for axis in plan.outer))
    narrow = _narrow.Narrow.of(plan)
    if plan.copies:
        tasks = fold("ceildiv", tasks, ROWS)
    elif narrow:
        tasks = fold("mul", tasks, fold("ceildiv", narrow.length, _narrow.LENGTH))
    else:
        for axis in (plan.order[-1], -1):
            tasks = fold("mul", tasks, fold("ceildiv", plan.shape[axis], _side(spec)))
    work = product((*spec.result.shape, 2 * emit.ITEM_SIZE[spec.result.dtype]))
    return Launch((tasks, 1, 1), work)


def emit_transpose(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks in one of the two forms."""
    frame = host.frame(spec, machine)
    plan = Permutation.of(spec)
    shape = frame.shape(plan.shape)
    lanes = host.lanes_for(machine, [memory.raw(spec.result.dtype)])
    narrow = _narrow.Narrow.of(plan)
    stream = Stream(frame, lanes if plan.copies or narrow else _tile(frame, lanes))
    if plan.copies:
        for task in stream.tasks():
            _copy(stream, plan, shape, task)
        return
    if narrow:
        for task in stream.tasks():
            _narrow.turn(stream, plan, shape, task, narrow)
        return

    # Half a line that goes past the cache costs as much as several whole ones.
    lines = stream.lanes * emit.ITEM_SIZE[spec.result.dtype] == LINE

    def squares() -> list[Any]:
        for task in emit.loop(frame.first, frame.last):
            _turn(stream, plan, shape, task, past=lines)
        return []

    if stream.past is None or lines:
        squares()
    else:
        emit.either(_lines(stream, plan, shape), [], lambda: _blocks(stream, plan, shape), squares)
    stream.fence()


def _copy(stream: Stream, plan: Permutation, shape: tuple[Size, ...], task: Any) -> None:
    """Copies a few rows of the result."""
    frame, lanes = stream.frame, stream.lanes
    dtype = memory.raw(frame.spec.result.dtype)
    extents = tuple(shape[axis] for axis in plan.outer)
    last = sizes.least((task + 1) * ROWS, sizes.product(extents))
    for row in emit.loop(task * ROWS, last):
        start = offset(shape, dict(zip(plan.outer, sizes.split(row, extents), strict=True)))
        for column, mask in stream.vectors(0, shape[-1], row * shape[-1]):
            value = memory.load(frame.inputs[0], start + column, dtype, lanes, mask)
            place = row * shape[-1] + column
            stream.store(value, frame.outputs[0], place, dtype, mask)


def _turn(
    stream: Stream, plan: Permutation, shape: tuple[Size, ...], task: Any, past: bool
) -> None:
    """Turns one square: its lines lie along `across` in the result, along the last axis before.

    `past`: large results go past the cache.
    """
    frame, side, square = stream.frame, stream.lanes, _side(stream.frame.spec)
    dtype, piece = memory.raw(frame.spec.result.dtype), _piece(frame)
    across, last = plan.order[-1], len(shape) - 1
    squares = tuple(sizes.ceildiv(shape[axis], square) for axis in (across, last))
    extents = (*(shape[axis] for axis in plan.outer), *squares)
    *place, top, left = sizes.split(task, extents)
    where = dict(zip(plan.outer, place, strict=True))
    stride = sizes.product(shape[across + 1 :])
    source = offset(shape, where)
    target, step = result_offset(plan.order, shape, where)
    ahead = SPACE.value("ahead", frame.spec, frame.machine.arch)
    bottom = sizes.least((top + 1) * square, shape[across])
    right = sizes.least((left + 1) * square, shape[last])
    # Down the rows first, so that a line of the result is written in one go.
    for column in emit.loop(left * square, right, side):
        for row in emit.loop(top * square, bottom, side):
            height, width = bottom - row, right - column
            whole = emit.compare("greater_equal", sizes.least(height, width), side)
            base = source + row * stride + column
            onto = target + column * step + row

            def full(past: bool, base: Any = base, onto: Any = onto) -> list[Any]:
                lines = []
                for n in range(side):
                    where = base + stride * n
                    lines.append(memory.load(frame.inputs[0], where, dtype, side))
                    # No two lines are neighbours in memory, so nothing else foresees the next.
                    if ahead:
                        memory.prefetch(frame.inputs[0], where + ahead, dtype)
                for n, value in enumerate(_turned(lines, piece)):
                    memory.store(value, frame.outputs[0], onto + step * n, dtype, past=past)
                return []

            def partial(
                base: Any = base, onto: Any = onto, height: Any = height, width: Any = width
            ) -> list[Any]:
                lines = []
                for n in range(side):
                    # A line outside is read nowhere: its mask is empty.
                    count = emit.select(emit.compare("greater", height, n), width, 0)
                    mask = host.first_lanes(count, side)
                    where = base + stride * n
                    lines.append(memory.load(frame.inputs[0], where, dtype, side, mask))
                for n, value in enumerate(_turned(lines, piece)):
                    count = emit.select(emit.compare("greater", width, n), height, 0)
                    mask = host.first_lanes(count, side)
                    memory.store(value, frame.outputs[0], onto + step * n, dtype, mask)
                return []

            def stored(full: Callable[[bool], list[Any]] = full) -> Sequence[Any]:
                return stream.aligned((target, step)).either(full) if past else full(False)

            emit.either(whole, [], stored, partial)


def _lines(stream: Stream, plan: Permutation, shape: tuple[Size, ...]) -> Any:
    """Whether the result goes past the cache, and both sides of a plane are long enough for it."""
    line = LINE // emit.ITEM_SIZE[stream.frame.spec.result.dtype]
    whole = stream.past
    for start in (stream.place, shape[plan.order[-1]]):
        whole = whole & emit.compare("equal", emit.as_index(start) & (line - 1), 0)
    return whole & emit.compare("greater_equal", emit.as_index(shape[-1]), stream.lanes)


def _blocks(stream: Stream, plan: Permutation, shape: tuple[Size, ...]) -> list[Any]:
    """Turns the share of all blocks that the frame's tasks are of all squares."""
    frame, dtype = stream.frame, memory.raw(stream.frame.spec.result.dtype)
    columns = _columns(frame)
    buffer = host.byte_buffer(RUN * (columns + stream.lanes))
    outer = tuple(shape[axis] for axis in plan.outer)
    plane = (shape[plan.order[-1]], shape[-1])
    side, run = _side(frame.spec), RUN // emit.ITEM_SIZE[dtype]
    squares = sizes.product((*outer, *(sizes.ceildiv(extent, side) for extent in plane)))
    tops, lefts = sizes.ceildiv(plane[0], run), sizes.ceildiv(plane[1], columns)
    blocks = sizes.product((*outer, tops, lefts))
    first, last = (sizes.floordiv(task * blocks, squares) for task in (frame.first, frame.last))
    for block in emit.loop(first, last):
        _block(stream, plan, shape, block, buffer)
    return []


def _block(
    stream: Stream, plan: Permutation, shape: tuple[Size, ...], block: Any, buffer: Any
) -> None:
    """Turns one block into `buffer`, behind room for one tile, and writes its lines from there."""
    frame, side = stream.frame, stream.lanes
    dtype, columns = memory.raw(frame.spec.result.dtype), _columns(frame)
    run, line = (size // emit.ITEM_SIZE[dtype] for size in (RUN, LINE))
    across, last = plan.order[-1], len(shape) - 1
    extents = [shape[axis] for axis in plan.outer]
    extents += [sizes.ceildiv(shape[across], run), sizes.ceildiv(shape[last], columns)]
    *place, top, left = sizes.split(block, tuple(extents))
    where = dict(zip(plan.outer, place, strict=True))
    stride = sizes.product(shape[across + 1 :])
    target, step = result_offset(plan.order, shape, where)
    base = offset(shape, where) + top * run * stride + left * columns
    onto = target + left * columns * step + top * run
    height = sizes.least(shape[across] - top * run, run)
    width = sizes.least(shape[last] - left * columns, columns)

    def ask(first: Any, count: int) -> None:
        """Asks for lines of the next block, of `count` from number `first` on."""
        for piece in (first + n for n in range(count)):
            row, part = piece // (columns // line), piece % (columns // line)
            place = base + row * stride + columns + part * line
            memory.prefetch(frame.inputs[0], place, dtype, level=2)

    # A half of the lines is asked for beside tiles, a half beside the lines that are written.
    tiles, half = run * columns // side**2, run * columns // line // 2
    for row in emit.loop(0, height, side):
        for column in emit.loop(0, width, side):
            # The last tile ends with the line: it may begin in front of the block.
            first = emit.minimum(column, emit.as_index(width) - side)
            starts = (base + (row + n) * stride + first for n in range(side))
            lines = [memory.load(frame.inputs[0], start, dtype, side) for start in starts]
            ask((row // side * (columns // side) + column // side) * (half // tiles), half // tiles)
            for n, value in enumerate(_turned(lines, _piece(frame))):
                memory.store(value, buffer, (first + n + side) * run + row, dtype)
    for column in emit.loop(0, width):
        ask(half + column * (half // columns), half // columns)

        def write(rows: Iterable[Any], column: Any = column) -> list[Any]:
            for row in rows:
                value = memory.load(buffer, (column + side) * run + row, dtype, side)
                memory.store(value, frame.outputs[0], onto + column * step + row, dtype, past=True)
            return []

        def unrolled(write: Callable[..., list[Any]] = write) -> list[Any]:
            return write(range(0, run, side))

        def rolled(write: Callable[..., list[Any]] = write) -> list[Any]:
            return write(emit.loop(0, height, side))

        emit.either(emit.compare("equal", emit.as_index(height), run), [], unrolled, rolled)


def _columns(frame: host.Frame) -> int:
    """The elements of a line of the operand that are read together."""
    return min(COLUMNS, READ // emit.ITEM_SIZE[frame.spec.result.dtype])


def _tile(frame: host.Frame, lanes: int) -> int:
    """The side of a tile: of 16 bits that whose rows are lines, if registers are."""
    pairs = lanes == 2 * TILE and frame.machine.vector_bytes == LINE
    return lanes if pairs else min(TILE, lanes)


def _turned(lines: Sequence[Any], piece: int) -> list[Any]:
    """The columns of a tile."""
    if len(lines) > TILE:
        return crosslane.transposed_in_pairs(lines)
    return crosslane.transposed(lines, piece)


def _piece(frame: host.Frame) -> int:
    """Of so many lanes are the pieces that a tile is turned in."""
    whole = frame.machine.vector_bytes == LINE
    return 1 if whole else 16 // emit.ITEM_SIZE[frame.spec.result.dtype]


def _side(spec: Spec) -> int:
    """The elements of a square's side."""
    return SQUARE // emit.ITEM_SIZE[spec.result.dtype]


def _sides(spec: Spec) -> dict[str, Expr]:
    """The sides of the plane that is turned: its axis in the result, and the operand's last."""
    plan = Permutation.of(spec)
    return {"rows": plan.shape[plan.order[-1]], "columns": plan.shape[-1]}


KERNEL = Kernel(
    "transpose", "cpu", emit_transpose, launch, memory.moves_only, moves=True, space=SPACE
)
