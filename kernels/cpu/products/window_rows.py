"""Products of windows with panels (see `panels`), where windows are read in the picture itself.

A task is some rows of windows by some panels, a register tile neighbouring windows of one row. From
window to window a tap moves by a number of elements that is known, and it goes on for all of its
channels; where the taps of a row follow one another, and all are inside, it goes on through them.

What lies in the padding is not multiplied. The taps above and below are left out for a whole row of
windows; at the ends of a row, each tap is multiplied for those windows of a tile that have it
inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.products import panels
from heddle.kernels.cpu.products.blocks import PANEL, Block, Strip, Tile
from heddle.kernels.cpu.products.panels import BLOCK
from heddle.kernels.cpu.products.results import Results
from heddle.kernels.cpu.products.tile import Step, rows_of
from heddle.kernels.cpu.products.vectors import adder
from heddle.kernels.emit import compare
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, product
from heddle.kernels.windows import Windows

LEAST, MOST = 6, 512
"""Windows of a row. Tiles of fewer would leave the processor waiting for its own sums; those of a
row have room on the stack."""

ROWS = 4
"""Rows of a picture: fewer are too few to share out."""


def fits(spec: Spec) -> bool:
    """Whether `spec` is computed so: sizes along a row are known, and pairs are within a tap."""
    *_, size, channels = spec.operands[0].shape
    _, *rows, count, _ = spec.result.shape
    groups, number = spec.operands[1].shape[0], product(tuple(rows))
    if not (isinstance(count, int) and isinstance(size, int)):
        return False
    if not (isinstance(channels, int) and isinstance(groups, int)):
        return False
    if not LEAST <= count <= MOST or (isinstance(number, int) and number < ROWS):
        return False
    return channels // groups % panels.group_of(spec) == 0


def rows_together(spec: Spec) -> int:
    """Rows of windows of a task: about as many windows as a block has rows elsewhere.

    Where they are known, rows are shared evenly if a number near that divides them.
    """
    count, number = spec.result.shape[-2], product(spec.result.shape[:-2])
    assert isinstance(count, int)
    about = max(1, BLOCK // count)
    if not isinstance(number, int) or number % about == 0:
        return about
    even = [rows for rows in range(about // 2 + 1, 2 * about) if number % rows == 0]
    return min(even, key=lambda rows: max(rows / about, about / rows), default=about)


@dataclass(frozen=True)
class _Alike:
    """Tiles number `first` to `last - 1` of a row, of `height` windows each.

    `inside` has, for each tap along the row, the windows of a tile that have it inside: the first
    one and the one behind the last.
    """

    first: int
    last: int
    height: int
    inside: tuple[tuple[int, int], ...]

    @property
    def complete(self) -> bool:
        """Whether all taps are inside."""
        return set(self.inside) == {(0, self.height)}


@dataclass(frozen=True)
class _Stretch:
    """Taps from `start` to `stop - 1` along the first axis, with which sums are `complete`, or not.

    `following` bytes behind a panel's part of it is what comes next.
    """

    start: Size
    stop: Size
    complete: Any
    following: Any


@dataclass(frozen=True)
class _Place:
    """Where a tile's windows are: they start at `column`, and along the other axes at `starts`.

    `ends` are the taps that are multiplied along these, `part` is the group of channels.
    """

    item: Size
    starts: Sequence[Any]
    column: Any
    part: Size
    ends: Sequence[tuple[Any, Any]]


class Rows:
    """The products of a kernel; make one at the function's start.

    `sums` is the dtype of the sums, `add` adds a step to them.
    """

    def __init__(self, frame: host.Frame, groups: int, added: Step) -> None:
        spec = frame.spec
        self._frame, self._added = frame, added
        sums = self._sums = added.sums
        self._lanes = host.lanes_for(frame.machine, [sums])
        self.windows = Windows.of(frame)
        self.results = Results(frame, self._lanes, sums, groups)
        self._each = self.windows.channels // groups
        self._k = self._each * prod(self.windows.kernel)
        self._joined = groups == 1 and self.windows.dilations[-1] == 1
        each = self.results.each
        self._columns = min(PANEL, each) if isinstance(each, int) else PANEL
        # A tile of one vector has room for twice the rows.
        single = 2 if self._columns <= self._lanes else 1
        self._alike = _alike(self.windows, single * rows_of(frame.machine))
        together = rows_together(spec)
        room = together * self.windows.counts[-1] * PANEL * emit.ITEM_SIZE[sums]
        self._scratch = host.byte_buffer(room)
        # A stretch is some taps along the first axis.
        group = panels.group_of(spec)
        self._step = PANEL * group * emit.ITEM_SIZE[spec.operands[1].dtype]
        self._taps = self.windows.kernel[0]
        self._each_tap = self._k // group // self._taps
        stretch = panels.SPACE.value("stretch", spec, frame.machine.arch) << 10
        self._most = max(1, min(self._taps, stretch // (self._each_tap * self._step)))

    def multiply(self, first: Size, height: Size, part: Size, panel: Size) -> None:
        """Emits `height` rows of windows from number `first` on by a panel of a group, `part`."""
        results, count = self.results, self.windows.counts[-1]
        packed, column = part * results.panels + panel, part * results.each + panel * PANEL
        block = Block(first * count, height * count, packed, column)
        last = compare("equal", panel, results.panels - 1)
        for start in emit.loop(0, self._taps, self._most):
            stop = sizes.least(start + self._most, self._taps)
            complete = compare("equal", emit.as_index(stop), self._taps)
            # Behind the last stretch of a group comes the first one.
            back = emit.index(0) - ((results.panels - 1) * self._taps + start)
            following = emit.select(last & complete, back, self._most)
            stretch = _Stretch(start, stop, complete, following * (self._each_tap * self._step))
            for row in emit.loop(0, height):
                self._row(block, first + row, row * count, part, stretch)

    def _row(self, block: Block, row: Size, top: Size, part: Size, stretch: _Stretch) -> None:
        """Adds a stretch to a row of windows, whose first one is number `top` of the block."""
        windows, results, lanes = self.windows, self.results, self._lanes
        axes = len(windows.kernel) - 1
        item, starts = windows.starts(row, axes)
        ends = [windows.taps_inside(axis, starts[axis]) for axis in range(axes)]
        low, high = ends[0]
        ends[0] = emit.maximum(low, stretch.start), emit.minimum(high, stretch.stop)
        tiles = self._alike[-1].last
        for first in range(0, self._columns, 2 * lanes):
            with results.reached(block, first):
                for number in emit.loop(0, tiles):
                    begin, end = (
                        _first_of(windows.counts[-1], tiles, i) for i in (number, number + 1)
                    )
                    strip = Strip(block, top + begin, top + end, first)
                    column = begin * windows.strides[-1] - windows.before[-1]
                    place = _Place(item, starts, column, part, ends)
                    results.ask_strip(strip, stretch.complete)
                    for alike in self._alike:
                        here = compare("greater_equal", number, alike.first)
                        with emit.when(here & compare("less", number, alike.last)):
                            self._strip(strip, alike, place, stretch)
                    results.write_strip(strip, self._scratch, stretch.complete)

    def _strip(self, strip: Strip, alike: _Alike, place: _Place, stretch: _Stretch) -> None:
        """Adds a stretch to a strip, by as many vectors as have columns."""
        block = strip.block
        where = block.row + strip.top, strip.top, alike.height, block.height, block.panel
        for vectors, is_so in self.results.widths(strip):
            with nullcontext() if is_so is True else emit.when(is_so):
                self._tile(Tile(*where, strip.part, vectors), alike, place, stretch)

    def _tile(self, tile: Tile, alike: _Alike, place: _Place, stretch: _Stretch) -> None:
        places, lanes = tile.places(self._lanes), self._lanes
        # The sums before the first stretch are zero, whatever lies in memory.
        kept = emit.select(compare("greater", stretch.start, 0), emit.index(lanes), 0)
        mask = host.first_lanes(kept, lanes)
        values: Sequence[Any] = [
            memory.load(self._scratch, at, self._sums, lanes, mask) for at in places
        ]

        def along(taps: list[Any], values: Sequence[Any]) -> Sequence[Any]:
            if len(taps) == len(place.ends):
                return self._with_taps(tile, alike, place, taps, stretch.following, values)
            first, last = place.ends[len(taps)]
            return emit.carry(
                first, last, 1, values, lambda tap, *inner: along([*taps, tap], inner)
            )

        for at, value in zip(places, along([], values), strict=True):
            memory.store(value, self._scratch, at, self._sums)

    def _with_taps(
        self,
        tile: Tile,
        alike: _Alike,
        place: _Place,
        outer: list[Any],
        following: Any,
        values: Sequence[Any],
    ) -> list[Any]:
        """The sums with the taps of one row of the picture."""
        windows, group = self.windows, panels.group_of(self._frame.spec)
        taps = windows.kernel[-1]
        base = windows.place(place.item, [*windows.at(place.starts, outer), place.column])
        base = base + place.part * self._each
        number: Size = 0
        for size, tap in zip(windows.kernel, outer, strict=False):
            number = number * size + tap
        each = self._each // group
        if self._joined and alike.complete:
            first = emit.as_index(number * (taps * each))
            return self._multiply(tile, base, first, taps * each, following, values)
        totals = list(values)
        for tap, (low, high) in enumerate(alike.inside):
            if low < high:
                some = replace(tile, row=tile.row + low, top=tile.top + low, height=high - low)
                inner = slice(low * tile.vectors, high * tile.vectors)
                away = (tap * windows.dilations[-1] + low * windows.strides[-1]) * windows.channels
                first = emit.as_index((number * taps + tap) * each)
                totals[inner] = self._multiply(
                    some, base + away, first, each, following, totals[inner]
                )
        return totals

    def _multiply(
        self, tile: Tile, base: Any, first: Any, steps: int, following: Any, before: Sequence[Any]
    ) -> list[Any]:
        """The sums with so many steps from `first` on: the elements of x from `base` on."""
        frame, dtype = self._frame, self._frame.spec.operands[0].dtype
        group = panels.group_of(frame.spec)
        x = memory.at(frame.inputs[0], base, dtype, inside=False)
        apart = self.windows.strides[-1] * self.windows.channels

        def left(tile: Tile, r: int, place: Any) -> Any:
            return memory.at(x, place - first * group + r * apart, dtype, inside=False)

        add = adder(frame, self._added, self._k, left, following)
        return add(tile, first, first + steps, before)


def _alike(windows: Windows, most: int) -> list[_Alike]:
    """The tiles of a row: as few as have room for it, sizes differing by one, larger ones first."""
    size, count = windows.sizes[-1], windows.counts[-1]
    stride, dilation, before = windows.strides[-1], windows.dilations[-1], windows.before[-1]
    tiles = -(-count // most)
    found: list[_Alike] = []
    window = 0
    for number in range(tiles):
        height = -(-(count - window) // (tiles - number))
        inside = []
        for tap in range(windows.kernel[-1]):
            first = before - tap * dilation
            ends = (-(-first // stride), -(-(first + size) // stride))
            low, high = (min(max(end - window, 0), height) for end in ends)
            inside.append((low, max(low, high)))
        one = _Alike(number, number + 1, height, tuple(inside))
        if found and replace(one, first=found[-1].first) == replace(found[-1], last=one.last):
            found[-1] = replace(found[-1], last=one.last)
        else:
            found.append(one)
        window += height
    return found


def _first_of(count: int, tiles: int, number: Any) -> Any:
    """The first window of tile `number` of a row."""
    small, larger = divmod(count, tiles)
    return number * small + emit.minimum(number, larger)
