"""Shared memory of a block of attention: its queries, then stages of keys and values.

Lines are rows of a head, of 16-byte chunks. They are permuted so that neither cp.async nor ldmatrix
meets a bank twice in eight lines. Keys and values of 8-bit floats lie in the stages as they are,
and are widened when their turn comes: first the keys, then the values in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _float8, _frame
from heddle.kernels.cuda.products import mma
from heddle.kernels.cuda.warpgroup.instructions import meet_in_warp
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm, vector = dialect("llvm"), dialect("vector")

WARPS = 4
"""Warps of a block."""

THREADS = WARPS * _block.WARP

KEYS = 64
"""Keys of a stage."""

KEYS_OF_A_WARP = KEYS // WARPS
"""Those that a warp copies, and that it attends to where all warps have the same queries."""

_STAGES = 4
"""Stages at most."""

_ROOM, _ROOM_OF_SM_90A = 80 * 1024, 108 * 1024
"""Bytes of a block of which two fit a multiprocessor of any architecture, as they do by their
registers; and on sm_90a."""

_EACH = 8  # Elements of a chunk.
_PAD = 8  # Elements between rows of results, against conflicts.


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
        count = min(_STAGES, (room - one.first_stage) // one.stage)
        return Layout(size, rows, narrow, count)

    @property
    def line(self) -> int:
        """Bytes of a line, a row of elements."""
        return 2 * self.size

    @property
    def chunks(self) -> int:
        """Of a line."""
        return self.size // _EACH

    @property
    def stage(self) -> int:
        """Bytes of a stage: keys and values."""
        return 2 * self.half

    @property
    def half(self) -> int:
        """Bytes of the keys of a stage."""
        return KEYS * self.size if self.narrow else KEYS * self.line

    @property
    def wide(self) -> int:
        """Where narrow keys and values are widened to, behind the queries."""
        return self.rows * self.line

    @property
    def first_stage(self) -> int:
        """Where stages begin."""
        return self.wide + (KEYS * self.line if self.narrow else 0)

    @property
    def values(self) -> int:
        """How far values are behind the keys for whoever multiplies."""
        return 0 if self.narrow else self.half

    @property
    def pitch(self) -> int:
        """Elements from one row of results to the next."""
        return self.size + _PAD

    @property
    def maxima(self) -> int:
        """Where maxima and sums of rows are, behind what each warp adds to 16 rows in float32."""
        return WARPS * 16 * self.pitch * 4

    @property
    def total(self) -> int:
        """Bytes of all; results come to lie where queries and keys were."""
        results = max(self.rows * self.pitch * 2, self.maxima + WARPS * 16 * 8)
        return max(self.first_stage + self.stages * self.stage, results)

    @property
    def span(self) -> int:
        """Chunks that change places."""
        return 8 if self.chunks % 8 == 0 else 4

    def at(self, line: Size, chunk: Size) -> Size:
        """The byte of a chunk behind the first of the lines."""
        return line * self.line + (self._flip(line) ^ chunk) * mma.CHUNK

    def beyond(self, place: Size, line: int, chunk: int) -> Size:
        """The byte of a chunk so many lines and chunks from that at byte `place`.

        One number of lines has to be a multiple of 2, 4 or 8 that the other is less than, and so
        have the chunks: then it takes no more than one register, whatever is added.
        """
        flip = (self._flip(line) ^ chunk % self.span) * mma.CHUNK
        far = line * self.line + chunk // self.span * self.span * mma.CHUNK
        return (place ^ flip if flip else place) + far

    def _flip(self, line: Size) -> Size:
        return line % 8 if self.span == 8 else line // 2 % 4


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
        for number in emit.loop(_block.thread(), layout.rows * across, THREADS):
            line, column = number // across, number % across * lanes
            value = convert.to_memory(read(place(line) + column, lanes), read.dtype)
            shared.store(value, layout.at(line, column // _EACH) + column % _EACH * 2)

    _frame.in_vectors(frame, [read.inputs], [layout.size], body, most=_EACH)


@dataclass(frozen=True)
class Keys:
    """Keys and values in global memory: `place` is where the row of a key begins in both.

    Those of 8 bits are multiplied as float16.
    """

    pointers: tuple[Any, Any]
    dtype: str
    place: Callable[[Size], Size]


class Stages:
    """The stages of keys and values; `alone`: a warp needs nothing but what it copies itself."""

    def __init__(self, keys: Keys, layout: Layout, shared: mma.DynamicShared, alone: bool) -> None:
        self._keys, self._layout, self._shared = keys, layout, shared
        self.meet = meet_in_warp if alone else _block.barrier
        bits = [llvm.ptrtoint(emit.integer(64), pointer) for pointer in keys.pointers]
        loose = (bits[0] | bits[1]) & (mma.CHUNK - 1)
        self._aligned = emit.compare("equal", loose, 0)
        self._halves = tuple(zip((0, layout.half), keys.pointers, strict=True))
        # So many elements are a chunk, so many chunks a line, of which a warp copies a span.
        self._item = 1 if layout.narrow else 2
        self._each = mma.CHUNK // self._item
        self._chunks = layout.size // self._each
        self._span = layout.span // 2 if layout.narrow else layout.span
        self._lines = _block.WARP // self._span
        self._lane = _block.thread() % _block.WARP
        self._first = _block.thread() // _block.WARP * KEYS_OF_A_WARP
        self._line, self._chunk = self._lane // self._span, self._lane % self._span

    def fill(self, stage: Size, first: Size, stop: Size) -> None:
        """Starts to fill the stage at byte `stage` with the keys from `first` on.

        From `stop` on, keys and values are zero, and nothing is read.
        """
        # A lane looks for the place of one key, and the others ask it.
        mine = first + self._first + self._lane % KEYS_OF_A_WARP
        (place,) = emit.either(
            emit.compare("less", mine, stop),
            [emit.integer(64)],
            lambda: [self._keys.place(mine)],
            lambda: [emit.index(0)],
        )
        with emit.when(self._aligned):
            self._copy(stage, place, stop - first)
        self._move(stage, first, stop)

    def keys(self, stage: Size) -> Size:
        """Where the keys of the stage at byte `stage` can be multiplied."""
        return self._widened(stage) if self._layout.narrow else stage

    def values(self, stage: Size) -> Size:
        """The same of its values, `Layout.values` bytes behind; the keys are not there any more."""
        if not self._layout.narrow:
            return stage
        self.meet()
        return self._widened(stage + self._layout.half)

    def _copy(self, stage: Size, place: Any, count: Size) -> None:
        """Copies the lane's chunks of `count` keys, each at `place` of the lane of its number."""
        for down in range(0, KEYS_OF_A_WARP, self._lines):
            source = _block.shuffle_from(place, self._line + down) + self._chunk * self._each
            inside = emit.compare("less", self._first + self._line + down, count)
            for across in range(0, self._chunks, self._span):
                target = stage + self._own(down, across)
                for behind, pointer in self._halves:
                    there = mma.byte_at(pointer, (source + across * self._each) * self._item)
                    mma.copy(self._shared.at(target + behind), there, inside)

    def _own(self, down: int, across: int) -> Size:
        """The byte in a stage of the lane's chunk so many lines and chunks from its first.

        Nobody but the lane reads what is narrow: its chunks are where no bank is met twice.
        """
        if self._layout.narrow:
            number = down // self._lines * (self._chunks // self._span) + across // self._span
            start = self._first * self._layout.size
            return start + (self._lane + number * _block.WARP) * mma.CHUNK
        start = self._layout.at(self._first + self._line, self._chunk)
        return self._layout.beyond(start, down, across)

    def _widened(self, half: Size) -> Size:
        """Widens what the lane has copied of the keys or values at byte `half`; where it is."""
        layout, word = self._layout, emit.integer(32)
        start = layout.wide + layout.at(self._first + self._line, self._chunk * 2)
        for down in range(0, KEYS_OF_A_WARP, self._lines):
            for across in range(0, self._chunks, self._span):
                codes = self._shared.load(half + self._own(down, across), word, 4)
                fours, dtype = _block.lanes(codes), self._keys.dtype
                words = [pair for four in fours for pair in _float8.halves(four, dtype)]
                for i in range(2):
                    chunk = vector.from_elements(emit.widen(word, 4), words[4 * i :][:4])
                    self._shared.store(chunk, layout.beyond(start, down, across * 2 + i))
        self.meet()
        return emit.index(layout.wide)

    def _move(self, stage: Size, first: Size, stop: Size) -> None:
        """Does what `_copy` does, element by element, where pointers are not aligned."""
        size, kind = self._layout.size, emit.memory_type(self._keys.dtype)
        zero = emit.constant(kind, 0)
        total = emit.select(self._aligned, 0, emit.index(KEYS_OF_A_WARP * size))
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
            values = emit.either(inside, [kind] * 2, read, lambda: [zero] * 2)
            target = stage + self._element(line, column)
            for value, (behind, _) in zip(values, self._halves, strict=True):
                self._shared.store(value, target + behind)

    def _element(self, line: Size, column: Size) -> Size:
        """The byte in a stage of an element of one of the warp's lines, see `_own`."""
        chunk, rest = column // self._each, column % self._each * self._item
        if not self._layout.narrow:
            return self._layout.at(self._first + line, chunk) + rest
        lane = line % self._lines * self._span + chunk % self._span
        number = line // self._lines * (self._chunks // self._span) + chunk // self._span
        start = self._first * self._layout.size
        return start + (lane + number * _block.WARP) * mma.CHUNK + rest
