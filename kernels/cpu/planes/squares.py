"""Planes turned in squares, each of them in tiles from registers to memory.

Each line of a tile is a store of its own. Where it is a line of the cache it can go past that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.planes.plane import Planes, side_of
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

TALL = 4
"""Tiles below each other in a square whose lines go past the cache."""

Put = Callable[[int, Any, Any], None]
"""Stores the line of this number of a turned tile, by a mask or, with None, all of it."""


def fit(planes: Planes) -> Any:
    """Whether the result goes past the cache, and its rows are as many whole lines of it."""
    return planes.stream.past & planes.whole(planes.extents[0])


def turn(planes: Planes, ahead: int) -> list[Any]:
    """Turns the frame's share of the planes; no values, as a branch.

    Memory is asked for `ahead` elements along a row.
    """
    lanes, side = planes.stream.lanes, side_of(planes.stream.frame.spec)
    for plane, starts in planes.parts((side, side)):
        bottom, right = map(sizes.least, (start + side for start in starts), planes.extents)
        # Down the rows first, so that a row of the result is written in one go.
        for column in emit.loop(starts[1], right, lanes):
            for row in emit.loop(starts[0], bottom, lanes):
                corner, extents = (row, column), (bottom - row, right - column)
                put = onto_result(planes, plane, corner, extents[1])
                tile(planes, plane, corner, extents, ahead, put)
    return []


def turn_past(planes: Planes, ahead: int) -> list[Any]:
    """As `turn`, past the cache.

    Squares are taller, and tiles begin where a line of the cache does, in the result and, if its
    rows have whole lines as well, in the operand.
    """
    stream, (_, columns) = planes.stream, planes.extents
    lanes, sides = stream.lanes, (TALL * stream.lanes, side_of(stream.frame.spec))
    address = llvm.ptrtoint(emit.integer(64), stream.frame.inputs[0])
    source = address // emit.ITEM_SIZE[planes.dtype] & (lanes - 1)
    before = [stream.place & (lanes - 1), emit.select(planes.whole(columns), source, 0)]
    for plane, starts in planes.parts(sides, before):
        behind = (start + side for start, side in zip(starts, sides, strict=True))
        bottom, right = map(sizes.least, behind, planes.extents)
        for left in emit.loop(starts[1], right, lanes):
            for top in emit.loop(starts[0], bottom, lanes):
                # The first tiles are partly in front of the plane.
                corner = sizes.greatest(top, 0), sizes.greatest(left, 0)
                ends = map(sizes.least, (top + lanes, left + lanes), planes.extents)
                extents = tuple(end - start for end, start in zip(ends, corner, strict=True))
                put = onto_result(planes, plane, corner, extents[1], past=True)
                tile(planes, plane, corner, extents, ahead, put)
    return []


def onto_result(
    planes: Planes,
    plane: Mapping[int, Size],
    corner: tuple[Size, Size],
    width: Size,
    past: bool = False,
) -> Put:
    """What stores the lines of the tile at `corner` where they belong, of which there are `width`.

    Those behind have empty masks, and the place of the first one.
    """
    (result,) = planes.stream.frame.outputs
    _, target = planes.places(plane, *corner)

    def put(n: int, value: Any, mask: Any) -> None:
        line = emit.as_index(planes.apart[1] * n)
        if mask is not None:
            line = emit.select(emit.compare("greater", width, n), line, 0)
        place = target + line
        memory.store(value, result, place, planes.dtype, mask, past=past and mask is None)

    return put


def tile(
    planes: Planes,
    plane: Mapping[int, Size],
    corner: tuple[Size, Size],
    extents: tuple[Size, Size],
    ahead: int,
    put: Put,
) -> None:
    """Turns the tile at `corner`, of which so many rows and columns are in the plane."""
    side, dtype = planes.stream.lanes, planes.dtype
    (operand,), (height, width) = planes.stream.frame.inputs, extents
    (source, _), (stride, _) = planes.places(plane, *corner), planes.apart

    def whole() -> list[Any]:
        lines = []
        for n in range(side):
            place = source + stride * n
            lines.append(memory.load(operand, place, dtype, side))
            # No two lines are neighbours in memory, so nothing else foresees the next.
            if ahead:
                memory.prefetch(operand, place + ahead, dtype, level=2)
        for n, value in enumerate(planes.turned(lines)):
            put(n, value, None)
        return []

    def partial() -> list[Any]:
        lines = []
        for n in range(side):
            # A line outside has an empty mask, and the place of the first one: even so a CPU takes
            # hundreds of cycles for it where no memory is.
            inside = emit.compare("greater", height, n)
            mask = host.first_lanes(emit.select(inside, width, 0), side)
            place = source + emit.select(inside, emit.as_index(stride * n), 0)
            lines.append(memory.load(operand, place, dtype, side, mask))
        for n, value in enumerate(planes.turned(lines)):
            count = emit.select(emit.compare("greater", width, n), height, 0)
            put(n, value, host.first_lanes(count, side))
        return []

    full = emit.compare("greater_equal", sizes.least(height, width), side)
    emit.either(full, [], whole, partial)
