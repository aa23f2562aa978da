"""Shared memory of a block of attention: its queries, then stages of keys and values.

Lines are rows of a head, of 16-byte chunks. They are permuted so that neither cp.async nor ldmatrix
meets a bank twice in eight lines. Keys and values of 8-bit floats lie in the stages as they are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma
from heddle.kernels.cuda.warpgroup.instructions import meet_in_warp
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

WARPS = 4
"""Warps of a block."""

THREADS = WARPS * _block.WARP

KEYS = 64
"""Keys that are split at a time: a stage, or two of wide heads."""

_WIDE = 128
"""Heads of more have stages of half as many keys: sums take more registers, and lines more room."""

_STAGES = 4
"""Stages at most."""

_ROOM, _ROOM_OF_SM_90A = 80 * 1024, 108 * 1024
"""Bytes of a block of which two fit a multiprocessor of any architecture, as they do by their
registers; and on sm_90a."""

_ROOM_OF_ONE = 160 * 1024
"""Of one that is alone on a multiprocessor, on any architecture."""

_EACH = 8  # Elements of a chunk.
_PAD = 8  # Elements between rows of results, against conflicts.


@dataclass(frozen=True)
class Lines:
    """Lines of so many chunks, of which `span` change places."""

    chunks: int

    @property
    def pairs(self) -> bool:
        """Whether there is an even number of them: ldmatrix takes two at once."""
        return self.chunks % 2 == 0

    @property
    def size(self) -> int:
        """Bytes of a line."""
        return self.chunks * mma.CHUNK

    @property
    def span(self) -> int:
        """Chunks that change places."""
        return next(count for count in (8, 4, 2) if self.chunks % count == 0)

    def at(self, line: Size, chunk: Size) -> Size:
        """The byte of a chunk behind the first of the lines."""
        return line * self.size + (self._flip(line) ^ chunk) * mma.CHUNK

    def beyond(self, place: Size, line: int, chunk: int) -> Size:
        """The byte of a chunk so many lines and chunks from that at byte `place`.

        One number of lines has to be a multiple of 2, 4 or 8 that the other is less than, and so
        have the chunks: then it takes no more than one register, whatever is added.
        """
        flip = (self._flip(line) ^ chunk % self.span) * mma.CHUNK
        far = line * self.size + chunk // self.span * self.span * mma.CHUNK
        return (place ^ flip if flip else place) + far

    def _flip(self, line: Size) -> Size:
        return line // (8 // self.span) % self.span


@dataclass(frozen=True)
class Layout:
    """Where things are in shared memory, in bytes, for heads of `size` and a tile of `rows`.

    With `stages` of keys and values, which are `narrow` where they are of 8 bits.
    """

    size: int
    rows: int
    narrow: bool
    stages: int = 2

    @staticmethod
    def deep(size: int, rows: int, narrow: bool, arch: str) -> Layout:
        """The layout with as many stages as there is room for, so that as much is on its way."""
        one = Layout(size, rows, narrow)
        room = _ROOM_OF_SM_90A if arch == "sm_90a" else _ROOM
        if Layout(size, WARPS * 16, narrow).total > room:  # What many rows take, few may have.
            room = _ROOM_OF_ONE
        count = min(_STAGES, (room - one.first_stage) // one.stage)
        return Layout(size, rows, narrow, count)

    @property
    def queries(self) -> Lines:
        """Rows of queries."""
        return Lines(self.size // _EACH)

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return WARPS

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.warps * _block.WARP

    @property
    def operands(self) -> tuple[int, ...]:
        """Those that a stage has lines of: keys, and values."""
        return 1, 2

    @property
    def columns(self) -> int:
        """Columns of values."""
        return self.size

    @property
    def is_wide(self) -> bool:
        """Whether registers of a warp have no room for its queries."""
        return self.size > _WIDE

    @property
    def step(self) -> int:
        """Keys of a stage."""
        return KEYS // 2 if self.is_wide else KEYS

    @property
    def across(self) -> int:
        """Warps that share the columns of few rows out, and attend to the same keys."""
        return 2 if self.is_wide else 1

    @property
    def keys(self) -> Lines:
        """Keys, and values."""
        return Lines(self.size * (1 if self.narrow else 2) // mma.CHUNK)

    @property
    def stage(self) -> int:
        """Bytes of a stage: keys, and values."""
        return len(self.operands) * self.half

    @property
    def copies(self) -> int:
        """Sums of 16 rows that warps have found of keys of their own, where rows are few."""
        return self.warps // self.across

    @property
    def value_offset(self) -> int:
        """Bytes from a key in its stage to its value."""
        return self.half

    @property
    def half(self) -> int:
        """Bytes of the keys of a stage, behind which are its values."""
        return self.step * self.keys.size

    @property
    def first_stage(self) -> int:
        """Where stages begin, behind the queries."""
        return self.rows * self.queries.size

    @property
    def pitch(self) -> int:
        """Elements from one row of results to the next."""
        return self.columns + _PAD

    @property
    def maxima(self) -> int:
        """Where maxima and sums of rows are, behind what each warp adds to 16 rows in float32."""
        return self.copies * 16 * self.pitch * 4

    @property
    def total(self) -> int:
        """Bytes of all; results come to lie where queries and keys were."""
        results = max(self.rows * self.pitch * 2, self.maxima + WARPS * 16 * 8)
        return max(self.first_stage + self.stages * self.stage, results)


def store_queries(
    frame: _frame.Frame,
    read: _frame.Reader,
    layout: Layout,
    shared: mma.DynamicShared,
    place: Callable[[Size], Size],
) -> None:
    """Fills the lines of queries; `place` is where the row of a line begins."""

    def body(lanes: int) -> None:
        across = layout.size // lanes
        for number in emit.loop(_block.thread(), layout.rows * across, layout.threads):
            line, column = number // across, number % across * lanes
            value = convert.to_memory(read(place(line) + column, lanes), read.dtype)
            target = layout.queries.at(line, column // _EACH) + column % _EACH * 2
            shared.store(value, target)

    _frame.in_vectors(frame, [read.inputs], [layout.size], body, most=_EACH)


@dataclass(frozen=True)
class Keys:
    """Keys and values in global memory: `place` is where the row of a key begins in all."""

    pointers: tuple[Any, ...]
    dtype: str
    place: Callable[[Size], Size]


class Stages:
    """The stages of keys and values; `alone`: a warp needs nothing but what it copies itself."""

    def __init__(self, keys: Keys, layout: Layout, shared: mma.DynamicShared, alone: bool) -> None:
        self._keys, self._size, self._shared = keys, layout.size, shared
        self.meet = meet_in_warp if alone else _block.barrier
        bits = [llvm.ptrtoint(emit.integer(64), pointer) for pointer in keys.pointers]
        loose = functools.reduce(operator.or_, bits) & (mma.CHUNK - 1)
        self._aligned = emit.compare("equal", loose, 0)
        starts = range(0, layout.stage, layout.half)
        self._halves = tuple(zip(starts, keys.pointers, strict=True))
        # So many elements are a chunk; of a line a warp copies a span of chunks at once.
        self._lines, self._item = layout.keys, emit.ITEM_SIZE[keys.dtype]
        self._each, self._together = mma.CHUNK // self._item, _block.WARP // layout.keys.span
        self._lane = _block.thread() % _block.WARP
        self._count = layout.step // layout.warps  # Keys that a warp copies.
        self._first = _block.thread() // _block.WARP * self._count
        self._line, self._chunk = self._lane // self._lines.span, self._lane % self._lines.span

    def place(self, first: Size, stop: Size) -> Any:
        """Where one of the keys from `first` on is, for each lane another, which others ask it."""
        mine = first + self._first + self._lane % self._count
        (place,) = emit.either(
            emit.compare("less", mine, stop),
            [emit.integer(64)],
            lambda: [self._keys.place(mine)],
            lambda: [emit.index(0)],
        )
        return place

    def fill(self, stage: Size, first: Size, stop: Size, place: Any) -> None:
        """Starts to fill the stage at byte `stage` with the keys from `first` on, at their `place`.

        From `stop` on, keys and values are zero, and nothing is read.
        """
        with emit.when(self._aligned):
            self._copy(stage, place, stop - first)
        self._move(stage, first, stop)

    def _copy(self, stage: Size, place: Any, count: Size) -> None:
        """Copies the lane's chunks of `count` keys, each at `place` of the lane of its number."""
        own = self._lines.at(self._first + self._line, self._chunk)
        for down in range(0, self._count, self._together):
            source = _block.shuffle_from(place, self._line + down) + self._chunk * self._each
            inside = emit.compare("less", self._first + self._line + down, count)
            for across in range(0, self._lines.chunks, self._lines.span):
                target = stage + self._lines.beyond(own, down, across)
                for behind, pointer in self._halves:
                    there = mma.byte_at(pointer, (source + across * self._each) * self._item)
                    mma.copy(self._shared.at(target + behind), there, inside)

    def _move(self, stage: Size, first: Size, stop: Size) -> None:
        """Does what `_copy` does, element by element, where pointers are not aligned."""
        size, kind = self._size, emit.memory_type(self._keys.dtype)
        zeros = [emit.constant(kind, 0)] * len(self._halves)
        total = emit.select(self._aligned, 0, emit.index(self._count * size))
        for number in emit.loop(self._lane, total, _block.WARP):
            line, column = number // size, number % size
            key = first + self._first + line

            def read(key: Size = key, column: Size = column) -> list[Any]:
                there = (self._keys.place(key) + column) * self._item
                return [
                    llvm.load(kind, mma.byte_at(pointer, there), alignment=self._item)
                    for pointer in self._keys.pointers
                ]

            inside = emit.compare("less", key, stop)
            values = emit.either(inside, [kind] * len(zeros), read, lambda: zeros)
            chunk, rest = column // self._each, column % self._each * self._item
            target = stage + self._lines.at(self._first + line, chunk) + rest
            for value, (behind, _) in zip(values, self._halves, strict=True):
                self._shared.store(value, target + behind)
