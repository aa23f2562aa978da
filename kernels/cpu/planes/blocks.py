"""Planes turned in blocks on the stack, from which long pieces of lines go past the cache.

For tiles whose lines are parts of a line of the cache, which cost as much as whole ones there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.planes.plane import Planes
from heddle.kernels.sizes import Size

RUN = 256
"""Bytes of a line of the result that are written together."""

COLUMNS, READ = 128, 512
"""Elements of a line of the operand that are read together, and bytes of them, at most."""


def fit(planes: Planes) -> Any:
    """Whether the result goes past the cache, and both sides of a plane are long enough for it."""
    rows, columns = planes.extents
    lines = planes.whole(planes.stream.place) & planes.whole(rows)
    wide = emit.compare("greater_equal", emit.as_index(columns), planes.stream.lanes)
    return planes.stream.past & lines & wide


def turn_past(planes: Planes, ahead: int) -> list[Any]:
    """As `squares.turn_past`; but a block asks for all of the next one, whatever is `ahead`."""
    size = emit.ITEM_SIZE[planes.dtype]
    sides = (RUN // size, min(COLUMNS, READ // size))
    buffer = host.byte_buffer(RUN * (sides[1] + planes.stream.lanes))
    for plane, starts in planes.parts(sides):
        _block(planes, plane, starts, sides, buffer)
    return []


def _block(
    planes: Planes,
    plane: Mapping[int, Size],
    starts: Sequence[Size],
    sides: tuple[int, int],
    buffer: Any,
) -> None:
    """Turns one block into `buffer`, behind room for one tile, and writes its lines from there."""
    side, dtype, line, (run, columns) = planes.stream.lanes, planes.dtype, planes.line, sides
    (operand,), (result,) = planes.stream.frame.inputs, planes.stream.frame.outputs
    base, onto = planes.places(plane, *starts)
    stride, step = planes.apart
    height, width = (
        sizes.least(extent - start, most)
        for extent, start, most in zip(planes.extents, starts, sides, strict=True)
    )

    def ask(first: Any, count: int) -> None:
        """Asks for lines of the next block, of `count` from number `first` on."""
        for piece in (first + n for n in range(count)):
            row, part = piece // (columns // line), piece % (columns // line)
            place = base + row * stride + columns + part * line
            memory.prefetch(operand, place, dtype, level=2)

    # A half of the lines is asked for beside tiles, a half beside the lines that are written.
    tiles, half = run * columns // side**2, run * columns // line // 2
    for row in emit.loop(0, height, side):
        for column in emit.loop(0, width, side):
            # The last tile ends with the line: it may begin in front of the block.
            first = emit.minimum(column, emit.as_index(width) - side)
            places = (base + (row + n) * stride + first for n in range(side))
            lines = [memory.load(operand, place, dtype, side) for place in places]
            ask((row // side * (columns // side) + column // side) * (half // tiles), half // tiles)
            for n, value in enumerate(planes.turned(lines)):
                memory.store(value, buffer, (first + n + side) * run + row, dtype)
    for column in emit.loop(0, width):
        ask(half + column * (half // columns), half // columns)

        def write(rows: Iterable[Any], column: Any = column) -> list[Any]:
            for row in rows:
                value = memory.load(buffer, (column + side) * run + row, dtype, side)
                memory.store(value, result, onto + column * step + row, dtype, past=True)
            return []

        def unrolled(write: Callable[..., list[Any]] = write) -> list[Any]:
            return write(range(0, run, side))

        def rolled(write: Callable[..., list[Any]] = write) -> list[Any]:
            return write(emit.loop(0, height, side))

        emit.either(emit.compare("equal", emit.as_index(height), run), [], unrolled, rolled)
