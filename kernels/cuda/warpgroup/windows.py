"""The left side of a convolution by wgmma: windows, gathered by the threads that bring operands.

A thread has eight rows of a tile, windows of x, and one chunk of 16 bytes of each of their lines.
Where a window starts it works out once for a tile. In a step its chunk is in one tap: 16 bytes
come by cp.async from there, or zeros, where the tap is outside of x. No thread waits for its
copies, which arrive at the stage's mbarrier by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS
from heddle.kernels.cuda.warpgroup import feed, instructions, tma
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.windows import Windows

arith, nvvm, vector = (dialect(name) for name in ("arith", "nvvm", "vector"))

_CHUNKS = staging.LINE // mma.CHUNK
_ROWS = ROWS * _CHUNKS // instructions.THREADS
ARRIVALS = instructions.THREADS + 1
"""At a stage's mbarrier: of all threads that gather, and of the one that fetches weights."""

_FAR = 1 << 29  # A coordinate that is outside of any x, also with a tap's offset.


@dataclass(frozen=True)
class _Row:
    """A window: its first tap, in elements behind `Gathering._origin`, and where that is in x."""

    offset: Any
    starts: Sequence[Any]


class Gathering:
    """A tile's windows, for one thread of the warpgroup that brings operands."""

    def __init__(self, frame: _frame.Frame, shared: mma.DynamicShared, place: Place) -> None:
        self._frame, self._shared = frame, shared
        self._windows = windows = Windows.of(frame)
        self._thread = _block.thread() % instructions.THREADS
        self._chunk = self._thread % _CHUNKS
        item = windows.starts(place.row)[0]
        # The first element of the image that the tile begins in.
        self._origin = windows.place(item, [0] * len(windows.sizes))
        self._rows = [self._row(place, i) for i in range(_ROWS)]

    def _line(self, i: int) -> Any:
        return self._thread // _CHUNKS + i * (ROWS // _ROWS)

    def _row(self, place: Place, i: int) -> _Row:
        window = place.row + self._line(i)
        exists = compare("less", window, place.m)
        item, starts = self._windows.starts(window)
        offset = self._windows.place(item, starts) - self._origin
        far = [select(exists, start, _FAR) for start in starts]
        return _Row(pieces.word(offset), [pieces.word(start) for start in far])

    def copy(self, turn: instructions.Turn, k: Any) -> None:
        """Starts to fill the stage with step `k` (i32) of the windows; its copies arrive."""
        for target, place, inside in self._chunks(turn, k):
            source = mma.byte_at(self._frame.inputs[0], place * self._item)
            mma.copy(self._shared.at(target), source, inside)
        nvvm.cp_async_mbarrier_arrive(turn.full, noinc=True)

    def fill(self, turn: instructions.Turn, k: Any) -> None:
        """The same by single elements, where x is not aligned; arrives at nothing."""
        dtype = memory.raw(self._frame.spec.operands[0].dtype)
        each = mma.CHUNK // self._item
        kind = emit.widen(emit.memory_type(dtype), each)
        for target, place, inside in self._chunks(turn, k):

            def there(place: Any = place) -> list[Any]:
                pointer = self._frame.inputs[0]
                found = [memory.load(pointer, place + n, dtype) for n in range(each)]
                return [vector.from_elements(kind, found)]

            (value,) = emit.either(
                inside, [kind], there, lambda: [emit.constant(kind.element_type, 0, each)]
            )
            self._shared.store(value, target)

    def _chunks(self, turn: instructions.Turn, k: Any) -> Iterator[tuple[Size, Any, Any]]:
        """Each of the thread's chunks: its byte in shared memory, its element of x, if inside."""
        offset, reach = self._tap(k)
        for i, row in enumerate(self._rows):
            inside = emit.constant(emit.integer(1), 1)
            for start, far, size in zip(row.starts, reach, self._windows.sizes, strict=True):
                inside = inside & compare("less", start + far, size, unsigned=True)
            place = self._origin + arith.extsi(emit.integer(64), row.offset + offset)
            yield turn.start + self._target(i), place, inside

    @property
    def _item(self) -> int:
        return emit.ITEM_SIZE[self._frame.spec.operands[0].dtype]

    def _target(self, i: int) -> Size:
        line = self._line(i)
        within = staging.swizzled(line, self._chunk, staging.LINE) * mma.CHUNK
        return line * staging.LINE + within

    def _tap(self, k: Any) -> tuple[Any, list[Any]]:
        """The thread's chunk: elements behind a window's first tap, and how far along each axis.

        Beyond the last tap it is outside.
        """
        windows = self._windows
        along = k + pieces.word(self._chunk * (mma.CHUNK // self._item))
        channels = windows.channels
        tap, channel = along // channels, along % channels
        offsets = [
            offset * dilation
            for offset, dilation in zip(_split(tap, windows.kernel), windows.dilations, strict=True)
        ]
        behind: Any = pieces.word(0)
        for size, offset in zip(windows.sizes, offsets, strict=True):
            behind = behind * size + offset
        exists = compare("less", tap, prod(windows.kernel))
        reach = [select(exists, offsets[0], _FAR), *offsets[1:]]
        return behind * channels + channel, reach


class Feed(feed.Feed):
    """Who fills the stages of a convolution: all threads the windows, TMA the weights."""

    def produce(self, each_piece: feed.EachPiece) -> None:
        """What the last warpgroup does, for each piece of the block."""

        def by_copies() -> list[Any]:
            each_piece(self._copy)
            return []

        def by_threads() -> list[Any]:
            each_piece(self._gather)
            return []

        emit.either(self._mapped(), [], by_copies, by_threads)

    def _sides(self, number: Size) -> tuple[staging.Matrix, staging.Matrix]:
        """As rows of chunks: the channels of x, and the weights."""
        frame, zero = self.frame, emit.index(0)
        sides = zip(frame.inputs, frame.spec.operands, strict=False)
        left, right = (
            staging.Matrix(pointer, operand.dtype, zero, *frame.shape(operand.shape[-2:]))
            for pointer, operand in sides
        )
        return left, right

    def _copy(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        rows = Gathering(self.frame, self.shared, place)
        (weights, *_), tile = self.frame.tensor_maps, self.plan.tile
        for turn, k in self._steps_of(piece, first):
            with emit.when(feed.speaks()):
                turn.expect(tile.stage - tile.b_place)
                self._fetch_b(weights, turn, place, pieces.word(0), k)
            rows.copy(turn, k)

    def _gather(self, piece: pieces.Piece, place: Place, first: Any) -> None:
        rows, (_, weights) = Gathering(self.frame, self.shared, place), self._sides(emit.index(0))
        tile = self.plan.tile
        for turn, k in self._steps_of(piece, first):

            def of_b(line: Size, along: Size, k: Any = k) -> tuple[Size, Size]:
                return place.column + line, pieces.size(k) + along

            rows.fill(turn, k)
            self._fill(weights, turn.start + tile.b_place, tile.columns, of_b)
            tma.fence()
            turn.arrive_full()
            with emit.when(feed.speaks()):
                turn.arrive_full()


def _split(tap: Any, kernel: Sequence[int]) -> list[Any]:
    """A tap's number as its place along each axis."""
    found = []
    for size in reversed(kernel[1:]):
        found.append(tap % size)
        tap = tap // size
    return [tap, *reversed(found)]
