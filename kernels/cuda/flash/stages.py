"""Shared memory of a block of attention: its queries, then stages of keys and values.

Lines are rows of a head, of 16-byte chunks. They are permuted so that neither cp.async nor ldmatrix
meets a bank twice in eight lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import convert, emit, memory
from heddle.kernels.cuda import _block, _float8, _frame
from heddle.kernels.cuda.products import mma
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

_ROOM = 80 * 1024
"""Bytes of a block of which two fit a multiprocessor of sm_80, as they do by their registers."""

_EACH = 8  # Elements of a chunk.
_PAD = 8  # Elements between rows of results, against conflicts.


@dataclass(frozen=True)
class Layout:
    """Where things are in shared memory, in bytes, for heads of `size` and a tile of `rows`.

    With `stages` of keys and values.
    """

    size: int
    rows: int
    stages: int = 2

    @staticmethod
    def deep(size: int, rows: int) -> Layout:
        """The layout with as many stages as there is room for, so that as much is on its way."""
        one = Layout(size, rows)
        return Layout(size, rows, min(_STAGES, (_ROOM - one.first_stage) // one.stage))

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
        return 2 * KEYS * self.line

    @property
    def first_stage(self) -> int:
        """Where stages begin, behind the queries."""
        return self.rows * self.line

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

    In shared memory they are `wide`: 8-bit floats are widened on the way.
    """

    pointers: tuple[Any, Any]
    dtype: str
    wide: str
    place: Callable[[Size], Size]


class Stages:
    """The stages of keys and values."""

    def __init__(self, keys: Keys, layout: Layout, shared: mma.DynamicShared) -> None:
        self._keys, self._layout, self._shared = keys, layout, shared
        bits = [llvm.ptrtoint(emit.integer(64), pointer) for pointer in keys.pointers]
        loose = (bits[0] | bits[1]) & (mma.CHUNK - 1)
        self._aligned = emit.compare("equal", loose, 0)
        self._halves = tuple(zip((0, KEYS * layout.line), keys.pointers, strict=True))
        self._lane = _block.thread() % _block.WARP
        self._first = _block.thread() // _block.WARP * KEYS_OF_A_WARP

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
            if self._keys.dtype == self._keys.wide:
                self._copy(stage, place, stop - first)
            else:
                self._widen(stage, place, stop - first)
        self._move(stage, first, stop)

    def _copy(self, stage: Size, place: Any, count: Size) -> None:
        """Copies the lane's chunks of `count` keys, each at `place` of the lane of its number."""
        for target, pointer, source, inside in self._chunks(stage, place, count):
            mma.copy(self._shared.at(target), mma.byte_at(pointer, source * 2), inside)

    def _widen(self, stage: Size, place: Any, count: Size) -> None:
        """The same, of 8-bit floats: all of a lane's are on their way before it widens one."""
        widen = _float8.halves if self._keys.wide == "float16" else _float8.bfloats
        word = emit.integer(32)

        def read(pointer: Any, source: Any) -> list[Any]:
            there = mma.byte_at(pointer, source)
            return [llvm.load(emit.widen(word, 2), there, alignment=_EACH)]

        found = []
        for target, pointer, source, inside in self._chunks(stage, place, count):
            load, kind = partial(read, pointer, source), [emit.widen(word, 2)]
            codes = emit.either(inside, kind, load, lambda: [emit.constant(word, 0, 2)])[0]
            found.append((target, codes))
        for target, codes in found:
            words = [pair for four in _block.lanes(codes) for pair in widen(four, self._keys.dtype)]
            self._shared.store(vector.from_elements(emit.widen(word, 4), words), target)

    def _chunks(
        self, stage: Size, place: Any, count: Size
    ) -> Iterator[tuple[Size, Any, Size, Any]]:
        """The lane's chunks: the byte of each, pointer and element it is from, if it is there."""
        layout, span = self._layout, self._layout.span
        line, chunk = self._lane // span, self._lane % span
        start = stage + layout.at(self._first + line, chunk)
        for down in range(0, KEYS_OF_A_WARP, _block.WARP // span):
            source = _block.shuffle_from(place, line + down) + chunk * _EACH
            inside = emit.compare("less", self._first + line + down, count)
            for across in range(0, layout.chunks, span):
                target = layout.beyond(start, down, across)
                for behind, pointer in self._halves:
                    yield target + behind, pointer, source + across * _EACH, inside

    def _move(self, stage: Size, first: Size, stop: Size) -> None:
        """Does what `_copy` does, element by element, where pointers are not aligned."""
        layout, keys = self._layout, self._keys
        kind = emit.memory_type(keys.wide)
        total = emit.select(self._aligned, 0, emit.index(KEYS * layout.size))
        for number in emit.loop(_block.thread(), total, THREADS):
            line, column = number // layout.size, number % layout.size
            inside = emit.compare("less", first + line, stop)

            def read(key: Size = first + line, column: Size = column) -> list[Any]:
                source = keys.place(key) + column
                found = [memory.load(pointer, source, keys.dtype) for pointer in keys.pointers]
                return [convert.to_memory(value, keys.wide) for value in found]

            values = emit.either(inside, [kind] * 2, read, lambda: [emit.constant(kind, 0)] * 2)
            target = stage + layout.at(line, column // _EACH) + column % _EACH * 2
            for value, (behind, _) in zip(values, self._halves, strict=True):
                self._shared.store(value, target + behind)
