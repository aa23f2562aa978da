"""What windows of bfloat16 see, on the stack for AMX tiles (see `windows`).

Pixels that are as many apart as windows are lie side by side, in phases: so that a tap of
neighbouring windows is a tile with one distance between its rows. It goes on over the end of a row
of windows, through the pixels that only taps reach; around the picture lie zeros.

Where a pixel's channels do not fill steps, the taps along the last axis follow one another as they
do in the picture, and a step is a part of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as all_of
from math import prod
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx.sides import ALONG, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold
from heddle.kernels.windows import Windows

PICTURE = 256 << 10
"""Bytes of pixels on the stack, which the second cache holds."""

LEAST = 12
"""Elements of a step at least: fewer fill too little of a tile."""

MOST = 32
"""Phases at most: each has its own code."""

ITEM = emit.ITEM_SIZE["bfloat16"]


@dataclass(frozen=True)
class Grid:
    """How the pixels that the windows of a block see lie on the stack.

    Attributes:
        rows: Windows along the first axis.
        items: Pictures of the batch, of which a block has whole ones if it has several.
        phases: For each axis, which pixels of each stride are there.
        extents: Places of windows along each axis, in each phase.
        offsets: Where each run of a window lies, in places from its own.
        channels: Of a pixel on the stack: those of a group.
        evened: One of them is a zero behind the others, which are odd.
        joined: A run is the taps along the last axis, else a single one.
        pitch: Bytes from the place of a window to the next.
        along: Elements of a run.
        step: Elements of a step along k.
    """

    rows: int
    items: int
    phases: tuple[tuple[int, ...], ...]
    extents: tuple[int, ...]
    offsets: tuple[int, ...]
    channels: int
    evened: bool
    joined: bool
    pitch: int
    along: int
    step: int

    @staticmethod
    def of(spec: Spec) -> Grid | None:
        """That of a kernel; None if sizes are not known, or it would not be worth it."""
        batch, *inner, channels = spec.operands[0].shape
        groups = spec.operands[1].shape[0]
        known = [size for size in (*inner, *spec.result.shape[1:-1]) if isinstance(size, int)]
        if not isinstance(channels, int) or not isinstance(groups, int) or 0 in known:
            return None
        counts = known[len(inner) :]
        kernel, strides, dilations = (spec.attr(n) for n in ("kernel", "strides", "dilations"))
        if len(counts) < len(kernel) or channels < groups:
            return None
        each = channels // groups
        reached = [
            [divmod(tap * dilation, stride) for tap in range(taps)]
            for taps, stride, dilation in zip(kernel, strides, dilations, strict=True)
        ]
        reach = [max(place for place, _ in axis) for axis in reached]
        joined, evened = each % ALONG > 0, each % 2 > 0
        pitch, along, step = each * ITEM, each, ALONG
        if joined:
            each += evened
            pitch, along = strides[-1] * each * ITEM, kernel[-1] * each
            reach[-1], reached[-1] = -(-kernel[-1] // strides[-1]) - 1, [(0, 0)]
            step = max(n for n in range(2, ALONG + 1, 2) if along % n == 0)
            if step < LEAST or (kernel[-1] > 1 and dilations[-1] > 1):
                return None
        elif pitch > TILE_ROW:
            # Rows of a tile that are a power of two apart would share a few sets of a cache.
            pitch += TILE_ROW
        phases = tuple(tuple(sorted({phase for _, phase in axis})) for axis in reached)
        across = [count + more for count, more in zip(counts[1:], reach[1:], strict=True)]
        row = prod((*across, *map(len, phases))) * pitch
        most = PICTURE // row - reach[0]
        if most < 1 or prod(map(len, phases)) > MOST:
            return None
        rows = -(-counts[0] // -(-counts[0] // most))
        extents = (rows + reach[0], *across)
        items = PICTURE // (extents[0] * row) if rows == counts[0] else 1
        items = max(1, min(items, batch) if isinstance(batch, int) else items)
        offsets = []
        for taps in all_of(*reached):
            number = place = 0
            for (ahead, phase), there, extent in zip(taps, phases, extents, strict=True):
                number = number * len(there) + there.index(phase)
                place = place * extent + ahead
            offsets.append(number * prod(extents) + place)
        how = each, evened, joined, pitch, along, step
        return Grid(rows, items, phases, extents, tuple(offsets), *how)

    @property
    def places(self) -> int:
        """Of windows of a picture, in all phases."""
        return prod((*self.extents, *map(len, self.phases)))

    @property
    def across(self) -> int:
        """Places from a window to the next along the first axis."""
        return prod(self.extents[1:])

    @property
    def steps(self) -> int:
        """Along k."""
        return len(self.offsets) * (self.along // self.step)

    @property
    def panel(self) -> int:
        """Bytes of a panel of b, as steps read it."""
        return self.steps * self.step * PANEL * ITEM

    def blocks(self, spec: Spec) -> tuple[Expr, int]:
        """How many there are along the batch, and of the rows of a picture."""
        count = spec.result.shape[1]
        assert isinstance(count, int)
        return fold("ceildiv", spec.operands[0].shape[0], self.items), -(-count // self.rows)


class Pictures:
    """The pixels of a block on the stack; made in the function's entry block."""

    def __init__(self, frame: host.Frame, windows: Windows, grid: Grid, groups: int) -> None:
        self._frame, self._windows, self._grid = frame, windows, grid
        self._each = grid.channels - grid.evened
        self._whole = grid.joined and groups == 1 and not grid.evened
        # A tile reads up to its last row, though its windows end before, and its taps at a place.
        room = (grid.items * grid.places + PAIR) * grid.pitch + grid.along * ITEM
        self._data = host.byte_buffer(room)
        steps = grid.along // grid.step
        self._places = host.byte_buffer(8 * grid.steps)
        for run, offset in enumerate(grid.offsets):
            for step in range(steps):
                place = emit.index(offset * grid.pitch + step * grid.step * ITEM)
                memory.store(place, self._places, run * steps + step, "int64")

    def pair(self, rows: Rows, top: Size) -> Callable[[Any], tuple[list[Any], Any]]:
        """`at(step)`: pointers to both tiles of windows, and how far their rows lie apart."""
        grid = self._grid
        base = bytes_at(self._data, (rows.row + top) * grid.pitch)

        def at(step: Any) -> tuple[list[Any], Any]:
            first = bytes_at(base, memory.load(self._places, step, "int64"))
            return [first, bytes_at(first, TILE_ROWS * grid.pitch)], emit.index(grid.pitch)

        return at

    def put(self, item: Size, items: Size, row: Size, part: Size) -> None:
        """Puts the pixels of some items on the stack that the windows from row `row` on see."""
        grid = self._grid
        inner = grid.extents[:-1]
        for number in emit.loop(0, items):
            for combination, phases in enumerate(all_of(*grid.phases)):
                place = number * grid.places + combination * prod(grid.extents)
                for line in emit.loop(0, prod(inner)):
                    at = list(sizes.split(line, inner))
                    if at:
                        at[0] = at[0] + row
                    start = 0 if at else row
                    base = (place + line * grid.extents[-1]) * grid.pitch
                    self._put_line(item + number, at, start, part, phases, base)

    def _put_line(
        self,
        item: Size,
        at: Sequence[Size],
        start: Size,
        part: Size,
        phases: Sequence[int],
        base: Size,
    ) -> None:
        """Puts the pixels of a line, from its place `start` on, at byte `base`.

        It is at `at` along the other axes.
        """
        grid, windows = self._grid, self._windows
        *firsts, first = (
            phase - before for phase, before in zip(phases, windows.before, strict=True)
        )
        *strides, stride = windows.strides
        source = [n * by + one for n, by, one in zip(at, strides, firsts, strict=True)]
        inside, size = windows.inside(source), windows.sizes[-1]
        # Pixel n of the line is at `first + (start + n) * stride` of the picture.
        count, pixel = grid.extents[-1], grid.pitch
        if grid.joined:
            start, count, pixel, stride = start * stride, count * stride, pixel // stride, 1
        low = sizes.least(sizes.greatest(-(first // stride) - start, 0), count)
        high = sizes.greatest(sizes.least(-(-(size - first) // stride) - start, count), low)
        low, high = (emit.select(inside, emit.as_index(end), 0) for end in (low, high))
        begin = windows.place(item, [*source, emit.index(first)]) + part * self._each
        begin = begin + start * (stride * windows.channels)
        for number in emit.loop(0, low):
            self._put(None, base + number * pixel)
        if self._whole:
            self._put(begin + low * self._each, base + low * pixel, (high - low) * self._each)
        else:
            for number in emit.loop(low, high):
                self._put(begin + number * (stride * windows.channels), base + number * pixel)
        for number in emit.loop(high, count):
            self._put(None, base + number * pixel)

    def _put(self, source: Any, place: Any, count: Any = None) -> None:
        """Puts a pixel at byte `place`, or `count` elements: those from `source` on, or zeros."""
        grid, x = self._grid, self._frame.inputs[0]
        target = bytes_at(self._data, place)
        lanes = min(ALONG, sizes.power_of_two(grid.channels)) if count is None else ALONG
        for step, mask in host.vectors(0, grid.channels if count is None else count, lanes):
            if source is None:
                value = emit.constant(emit.integer(16), 0, lanes)
            else:
                there = mask
                if grid.evened:
                    there = host.first_lanes(self._each - step, lanes)
                value = memory.load(x, source + step, "uint16", lanes, there)
            memory.store(value, target, step, "uint16", mask)
