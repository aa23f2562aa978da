"""Neighbouring windows reduced together, channels in the lanes.

What is loaded of a column serves all windows that it is in, and so do the weights; without weights
each column is reduced first, and then the columns of each window are. bfloat16 is loaded in words
of two channels, of which either becomes float32 by one instruction. In narrow groups a result is of
several channels: each of a group's channels in turn is spread over the group's lanes, or each word
of two bfloat16 channels, which are multiplied by words of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, rows, sizes
from heddle.kernels.cpu import matmul_packed
from heddle.kernels.emit import compare
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size
from heddle.kernels.window_reduction import Combination, depth_of
from heddle.kernels.windows import Windows

vector = dialect("vector")

TOGETHER = 8
"""Windows that are reduced together, at most, where there are 32 registers; else half as many."""

VALUES = 20
"""Vectors that a loop carries, at most, where there are 32 registers; else half as many."""

MOST_WRITTEN_OUT = 16
"""Taps along a row that are written out; more of them are a loop."""


@dataclass(frozen=True)
class Place:
    """Where a tile is: windows of a row from number `first` on, channels from number `channel` on.

    Attributes:
        starts: Where the first window starts along each axis.
        ends: The first tap inside of the tensor along each axis but the last, and the one behind
            the last.
        guarded: Some taps along the row are outside, or some windows.
        mask: Of the channels; None for all.
        vectors: Consecutive ones of channels.
    """

    row: Size
    item: Size
    first: Any
    starts: Sequence[Any]
    ends: Sequence[tuple[Any, Any]]
    guarded: bool = False
    channel: Any = 0
    mask: Any = None
    vectors: int = 1


class Tiles:
    """Windows of a row that are reduced together."""

    def __init__(self, frame: host.Frame) -> None:
        spec, machine = frame.spec, frame.machine
        self._frame, self.windows = frame, Windows.of(frame)
        self._dtype, self._combination = spec.operands[0].dtype, Combination(spec)
        self._depth = depth_of(spec)
        self._lanes = max(host.lanes_for(machine, [self._dtype]), self._depth)
        self._halves = 2 if self._dtype == "bfloat16" and self._depth == 1 else 1
        # Channels of a group that are multiplied at once, as one word.
        self._word = 2 if self._dtype == "bfloat16" and self._depth > 1 else 1
        self._add = self._combination.with_tap
        if self._word == 2:
            step = matmul_packed.step_of(self._dtype, machine)
            self._add = lambda value, found, weight: step.add_all(found, weight, value)
        self._finish = rows.Finish(frame, self._lanes)
        self._weighted = self._combination.kind == "product"
        self._at_once = self.windows.kernel[-1]
        if self._at_once > MOST_WRITTEN_OUT:
            self._at_once = 1
        self._count = self._fitting(machine.vector_bytes)
        self._own = self._weighted or self._count == 1
        values = len(self._carried(self._count)) * self._halves
        self._vectors = max(1, TOGETHER * machine.vector_bytes // 64 // values)

    def _fitting(self, register: int) -> int:
        """Windows that are reduced together, as many in each tile where the row's are known."""
        along, most = self.windows.counts[-1], TOGETHER * register // 64
        while most > 1 and len(self._carried(most)) * self._halves > VALUES * register // 64:
            most -= 1
        return -(-along // -(-along // most)) if isinstance(along, int) and along else most

    def _columns(self, count: int) -> list[int]:
        """The columns that taps of so many windows are at, from where the first one starts."""
        stride, dilation = self.windows.strides[-1], self.windows.dilations[-1]
        taps = range(self._at_once)
        return sorted({w * stride + tap * dilation for w in range(count) for tap in taps})

    def _carried(self, count: int) -> list[int]:
        """Those of which values are kept: where windows start, or all if there are no weights."""
        stride = self.windows.strides[-1]
        own = self._weighted or count == 1
        return [w * stride for w in range(count)] if own else self._columns(count)

    def reduce(self, row: Size, channel: Size, length: Size) -> None:
        """Reduces a row of windows, `length` channels from `channel` on."""
        windows = self.windows
        along, axes = windows.counts[-1], range(len(windows.kernel) - 1)
        reach = (self._count - 1) * windows.strides[-1]
        reach += (windows.kernel[-1] - 1) * windows.dilations[-1]
        for first in emit.loop(0, along, self._count):
            item, starts = windows.starts(row * along + first)
            ends = [windows.taps_inside(axis, starts[axis]) for axis in axes]

            def tile(guarded: bool, place: Place) -> list[Any]:
                self._reduce(replace(place, guarded=guarded), channel, length)
                return []

            place = Place(row, item, first, starts, ends)
            inside = compare("greater_equal", starts[-1], 0)
            inside &= compare("less", starts[-1] + reach, windows.sizes[-1])
            inside &= compare("less_equal", first + self._count, along)
            emit.either(inside, [], partial(tile, False, place), partial(tile, True, place))

    def _reduce(self, tile: Place, channel: Size, length: Size) -> None:
        start = self._combination.start(self._lanes)
        for i, mask, vectors in self._channels(length):
            place = replace(tile, channel=channel + i, mask=mask, vectors=vectors)
            each, carried = vectors * self._halves, self._carried(self._count)
            self._ask(place)
            values = self._along(place, [], [start] * (len(carried) * each))
            found = [values[i : i + each] for i in range(0, len(values), each)]
            found = self._gathered(dict(zip(carried, found, strict=True)))
            for number, result in enumerate(found):
                exists = compare("less", tile.first + number, self.windows.counts[-1])
                with emit.when(exists) if tile.guarded else nullcontext():
                    self._write(place, number, result)

    def _ask(self, place: Place) -> None:
        """Prefetches the rows of the picture that the next row of windows is the first to read."""
        if len(place.starts) < 2:
            return
        windows, each = self.windows, self._lanes * self._halves
        stride, dilation = windows.strides[-2], windows.dilations[-2]
        known = (windows.kernel[-2] - 1) * dilation
        lines = [stride + tap * dilation for tap in range(windows.kernel[-2])]
        lines = [line for line in lines if line > known]
        if len(lines) > MOST_WRITTEN_OUT:
            return
        for line in lines:
            for column in self._columns(self._count):
                offsets = [*[0] * (len(place.starts) - 2), line, column]
                where = [start + i for start, i in zip(place.starts, offsets, strict=True)]
                at = windows.place(place.item, where) + place.channel
                for number in range(place.vectors):
                    memory.prefetch(self._frame.inputs[0], at + number * each, self._dtype)

    def _channels(self, length: Size) -> Iterator[tuple[Any, Any, int]]:
        """Emits the Python body of a `for channel, mask, vectors in` this."""
        each = self._lanes * self._halves
        start: Size = 0
        if self._vectors > 1:
            start = length - sizes.mod(length, each * self._vectors)
            for i in emit.loop(0, start, each * self._vectors):
                yield i, None, self._vectors
        for i, mask in host.vectors(start, length, each):
            yield i, mask, 1

    def _along(self, place: Place, taps: list[Any], values: Sequence[Any]) -> Sequence[Any]:
        """The values of all windows with the taps that begin with `taps`."""
        if len(taps) < len(place.ends):
            first, last = place.ends[len(taps)]
            return emit.carry(
                first, last, 1, values, lambda tap, *inner: self._along(place, [*taps, tap], inner)
            )
        along = self.windows.kernel[-1]
        if self._at_once == along:
            return self._with_taps(place, taps, 0, values)
        return emit.carry(
            0, along, 1, values, lambda tap, *inner: self._with_taps(place, taps, tap, inner)
        )

    def _with_taps(
        self, place: Place, outer: list[Any], first: Size, values: Sequence[Any]
    ) -> list[Any]:
        """The values with `at_once` taps of a row more, from tap `first` on."""
        windows, totals, taps = self.windows, list(values), range(self._at_once)
        dilation = windows.dilations[-1]
        carried, add = self._carried(self._count), self._add
        each = len(values) // len(carried)
        for depth in range(self._depth // self._word):
            weights = [self._weights(place, [*outer, first + tap], depth) for tap in taps]
            for offset in self._columns(self._count):
                found = self._column(place, outer, first * dilation + offset, depth)
                for tap in taps if self._own else (0,):
                    start = offset - tap * dilation
                    if start in carried:
                        i = carried.index(start) * each
                        pairs = zip(totals[i : i + each], found, weights[tap], strict=True)
                        totals[i : i + each] = [add(*pair) for pair in pairs]
        return totals

    def _gathered(self, values: dict[int, Sequence[Any]]) -> list[Sequence[Any]]:
        """The values of each window."""
        windows, found = self.windows, []
        for window in range(self._count):
            start = window * windows.strides[-1]
            result = values[start]
            if not self._own:
                for tap in range(1, self._at_once):
                    further = values[start + tap * windows.dilations[-1]]
                    pairs = zip(result, further, strict=True)
                    result = [self._combination.with_tap(*pair, None) for pair in pairs]
            found.append(result)
        return found

    def _column(self, place: Place, outer: list[Any], offset: Size, depth: int) -> list[Any]:
        """What lies `offset` columns behind a tile's start, or what counts as nothing."""
        windows = self.windows
        column = place.starts[-1] + offset
        at = windows.place(place.item, [*windows.at(place.starts[:-1], outer), column])
        inside = None
        if place.guarded:
            inside = compare("less", column, windows.sizes[-1], unsigned=True)
        if self._depth > 1:
            return self._spread(at, place, inside, depth)
        found = self._load(0, at, place, inside)
        if place.guarded and self._combination.kind == "max":
            found = [emit.select(inside, x, self._combination.start(self._lanes)) for x in found]
        return found

    def _spread(self, at: Any, place: Place, inside: Any, depth: int) -> list[Any]:
        """Channel or word number `depth` of each group of a column, over the group's lanes."""
        words = self._depth // self._word
        spread = [lane // self._depth * words + depth for lane in range(self._lanes)]
        found = self._load(0, at, place, inside)
        if self._word == 2:
            kind = ir.VectorType.get([self._lanes // 2], emit.integer(32))
            found = [vector.bitcast(kind, x) for x in found]
        return [crosslane.shuffle(x, x, spread) for x in found]

    def _weights(self, place: Place, tap: Sequence[Size], depth: int) -> list[Any]:
        if not self._weighted:
            return [None] * (place.vectors * self._halves)
        number: Size = 0
        for taps, offset in zip(self.windows.kernel, tap, strict=True):
            number = number * taps + offset
        row = number * (self._depth // self._word) + depth
        at = row * emit.as_index(self.windows.channels)
        if self._word == 1:
            return self._load(1, at, place)
        weights, lanes = self._frame.inputs[1], self._lanes
        wheres = [at + place.channel + i * lanes for i in range(place.vectors)]
        size = emit.ITEM_SIZE[self._dtype]
        return [memory.load(weights, i, "uint32", lanes, place.mask, size) for i in wheres]

    def _load(self, operand: int, at: Any, place: Place, inside: Any = None) -> list[Any]:
        """A place's channels of a column or a row of weights at element `at`; zeros if outside."""
        pointer, each = self._frame.inputs[operand], self._lanes * self._halves
        dtype = memory.raw(self._dtype) if self._halves * self._word == 2 else self._dtype
        mask = place.mask
        if inside is not None:
            wide = emit.splat(inside, each)
            mask = wide if mask is None else mask & wide
        found = []
        for number in range(place.vectors):
            where = at + place.channel + number * each
            found += self._apart(memory.load(pointer, where, dtype, each, mask))
        return found

    def _apart(self, value: Any) -> list[Any]:
        """Bits of two vectors of bfloat16 as float32: those with even numbers, and with odd ones.

        Another value is as it is.
        """
        if self._halves == 1:
            return [value]
        words = vector.bitcast(ir.VectorType.get([self._lanes], emit.integer(32)), value)
        return [convert.half(words, number) for number in range(2)]

    def _write(self, place: Place, number: int, values: Sequence[Any]) -> None:
        """Writes the values of one window."""
        windows, lanes = self.windows, self._lanes
        inside = [last - first for first, last in place.ends]
        start = place.starts[-1] + number * windows.strides[-1]
        first, last = windows.taps_inside(len(windows.kernel) - 1, start)
        inside.append(last - first if place.guarded else windows.kernel[-1])
        found = [self._combination.finished(value, inside) for value in values]
        if self._halves == 2:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [half for even, odd in pairs for half in _in_turns(even, odd)]
        out_at = self._finish.row(place.row * windows.counts[-1] + place.first + number)
        for i, value in enumerate(found):
            mask = place.mask
            if mask is not None and self._halves == 2:
                mask = crosslane.shuffle(mask, mask, range(i * lanes, (i + 1) * lanes))
            out_at(place.channel + i * lanes, mask, value)


def _in_turns(even: Any, odd: Any) -> list[Any]:
    """The lanes of two vectors in turns."""
    lanes = emit.lanes_of(even)
    turns = [lane // 2 + lane % 2 * lanes for lane in range(2 * lanes)]
    return [
        crosslane.shuffle(even, odd, turns[:lanes]),
        crosslane.shuffle(even, odd, turns[lanes:]),
    ]
