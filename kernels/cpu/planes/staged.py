"""Planes turned by way of the stack, where lines of the result share sets of the first cache.

Lines that are a multiple of 2 KiB apart have one set of it, or two. A tile stores so many that they
push each other out before the next tile comes to the lines behind them. So a few tiles below each
other are put on the stack, and pieces of lines are written from there one after another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.planes.plane import Planes
from heddle.kernels.cpu.planes.squares import tile
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size

APART, APART_OF_NARROW = 2048, 4096
"""Bytes between lines of the result, and between those of numbers of up to 16 bits."""

RUN = 512
"""Bytes of a line of the result that are written together."""


def fit(planes: Planes) -> Any:
    """Whether lines of the result are so far apart; a bool where that is known."""
    size = emit.ITEM_SIZE[planes.dtype]
    between, most = planes.apart[1] * size, APART if size > 2 else APART_OF_NARROW
    if isinstance(between, int):
        return between % most == 0
    return emit.compare("equal", between & (most - 1), 0)


def turn(planes: Planes) -> list[Any]:
    """As `squares.turn`, without asking: tiles beside each other read lines in a row."""
    side, dtype, size = planes.stream.lanes, planes.dtype, emit.ITEM_SIZE[planes.dtype]
    run, wide = sides = RUN // size, LINE // size
    pitch = run + wide  # an odd number of lines
    buffer = host.byte_buffer(wide * pitch * size)
    for plane, starts in planes.parts(sides):
        height, width = (
            sizes.least(extent - start, most)
            for extent, start, most in zip(planes.extents, starts, sides, strict=True)
        )
        for row in emit.loop(0, height, side):
            for column in emit.loop(0, width, side):

                def put(n: int, value: Any, _: Any, row: Any = row, column: Any = column) -> None:
                    memory.store(value, buffer, (column + n) * pitch + row, dtype)

                corner = starts[0] + row, starts[1] + column
                tile(planes, plane, corner, (height - row, width - column), 0, put)
        _write(planes, planes.places(plane, *starts)[1], buffer, pitch, (height, width))
    return []


def _write(
    planes: Planes, target: Size, buffer: Any, pitch: int, extents: tuple[Size, Size]
) -> None:
    """Writes so many elements of so many lines, `pitch` elements apart in `buffer`."""
    dtype, (result,), (height, width) = planes.dtype, planes.stream.frame.outputs, extents
    lanes = host.lanes_for(planes.stream.frame.machine, [dtype])
    run = RUN // emit.ITEM_SIZE[dtype]
    full = emit.compare("equal", emit.as_index(height), run)
    for line in emit.loop(0, width):

        def move(place: Size, mask: Any, line: Any = line) -> None:
            value = memory.load(buffer, line * pitch + place, dtype, lanes, mask)
            memory.store(value, result, target + planes.apart[1] * line + place, dtype, mask)

        def whole(move: Callable[..., None] = move) -> list[Any]:
            for place in range(0, run, lanes):
                move(place, None)
            return []

        def partial(move: Callable[..., None] = move) -> list[Any]:
            for place, mask in host.vectors(0, height, lanes):
                move(place, mask)
            return []

        emit.either(full, [], whole, partial)
