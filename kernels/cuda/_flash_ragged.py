"""Attention of ragged rows on tensor cores: which tile of which row a block has.

A sequence is a row of the batch, or the tokens before the first row or after the last one, which
see no keys. Tiles of all sequences follow one another, and each block looks for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _flash, _flash_stages, _frame
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold

arith, nvvm = (dialect(name) for name in ("arith", "nvvm"))

fits = _flash.fits
"""Whether tensor cores take a spec; heads of ragged rows are static."""


def emit_ragged(frame: _frame.Frame, keys: Keys, spans: RowSpans, offsets: int) -> None:
    """Emits a block's tile; operand `offsets` holds where the queries of each row begin."""
    spec = frame.spec
    _, heads, size = frame.shape(spec.operands[0].shape)
    key_heads, group = frame.size(spec.operands[1].shape[-2]), group_of(spec)
    head = _block.block() % key_heads
    tiles = _Tiles(frame, spans, offsets)
    sequence, tile = tiles.find(_block.block() // key_heads)
    with emit.when(emit.compare("greater_equal", sequence, 0)):
        row = emit.select(tiles.is_row(sequence), sequence - 1, -1)
        found = (*tiles.span(sequence)[:2], keys.length(row))
        start, stop, length = (_of_all(value) for value in found)

        def query(number: Size, member: Size) -> Size:
            return ((start + number) * heads + head * group + member) * size

        def key(number: Size) -> Size:
            return (keys.place(row, number)[0] * key_heads + head) * size

        task = _flash.Task(group, stop - start, length, query, key)
        _flash.emit_tile(frame, task, tile)


def launch(spec: Spec, offsets: int, work: Expr) -> Launch:
    """As many blocks as there may be tiles: each sequence may begin one that it does not fill."""
    sequences = fold("add", spec.operands[offsets].shape[0], 1)
    tiles = fold("add", _flash.tiles(spec, spec.operands[0].shape[0], group_of(spec)), sequences)
    grid = fold("mul", tiles, spec.operands[1].shape[-2])
    return Launch((grid, 1, 1), work, (_flash_stages.THREADS, 1, 1), _flash.shared_bytes(spec))


class _Tiles:
    """The sequences, 0 to the number of offsets, and their tiles."""

    def __init__(self, frame: _frame.Frame, spans: RowSpans, offsets: int) -> None:
        self._spans = spans
        self._group, self._rows = group_of(frame.spec), _flash.rows(frame.spec)
        self._tokens = emit.as_index(frame.size(frame.spec.operands[0].shape[0]))
        self._count = emit.as_index(frame.size(frame.spec.operands[offsets].shape[0]))
        pointer = frame.inputs[offsets]
        self._first, self._last = emit.either(
            emit.compare("greater", self._count, 0),
            [emit.integer(64)] * 2,
            lambda: [memory.load(pointer, at, "int64") for at in (0, self._count - 1)],
            lambda: [self._tokens] * 2,
        )

    def is_row(self, sequence: Size) -> Any:
        """Whether it is row `sequence - 1` of the batch."""
        inside = emit.compare("less", sequence, self._count)
        return inside & emit.compare("greater", sequence, 0)

    def span(self, sequence: Size) -> tuple[Size, Size, Any]:
        """Where a sequence starts and ends, and whether its row is wrong, which is reported."""
        leads = emit.compare("equal", sequence, 0)
        start, stop, wrong = emit.either(
            self.is_row(sequence),
            [*[emit.integer(64)] * 2, emit.integer(1)],
            lambda: self._spans.ends(sequence - 1),
            lambda: [
                emit.select(leads, 0, self._last),
                emit.select(leads, self._first, self._tokens),
                emit.constant(emit.integer(1), 0),
            ],
        )
        start, stop = (emit.minimum(emit.maximum(end, 0), self._tokens) for end in (start, stop))
        return start, emit.maximum(start, stop), wrong

    def find(self, wanted: Size) -> tuple[Size, Size]:
        """The sequence of tile number `wanted`, and which of its tiles.

        The sequence is -1 where there is none, or where a row is wrong: rows may then overlap.
        Each lane of a warp looks at its part of the sequences, first at how many tiles they have,
        then for the tile. Every row is looked at by every block, so that each finds what is wrong.
        """
        lane = _block.thread() % _block.WARP
        each = (self._count + _block.WARP) // _block.WARP  # There is one more than offsets.

        def add(number: Size, before: Size, wrong: Any) -> Sequence[Any]:
            tiles, here = self._tiles(lane * each + number)
            return [before + tiles, wrong | here]

        start = [emit.index(0), emit.constant(emit.integer(1), 0)]
        own, wrong = emit.carry(0, each, 1, start, add)

        def look(number: Size, left: Size, sequence: Size, tile: Size) -> Sequence[Any]:
            here = lane * each + number
            tiles, _ = self._tiles(here)
            found = emit.compare("less", left, tiles) & emit.compare("greater_equal", left, 0)
            return [
                left - tiles,
                emit.select(found, here, sequence),
                emit.select(found, left, tile),
            ]

        nothing = emit.index(-1)
        start = [wanted - _sum_before(own, lane), nothing, nothing]
        _, sequence, tile = emit.carry(0, each, 1, start, look)
        wrong = _of_all(arith.extui(emit.integer(64), wrong))
        sequence = emit.select(emit.compare("equal", wrong, 0), _of_all(sequence), -1)
        return sequence, _of_all(tile)

    def _tiles(self, sequence: Size) -> Sequence[Any]:
        """How many a sequence has, none if there is no such one, and whether its row is wrong."""

        def count() -> list[Any]:
            start, stop, wrong = self.span(sequence)
            return [((stop - start) * self._group + (self._rows - 1)) // self._rows, wrong]

        return emit.either(
            emit.compare("less_equal", sequence, self._count),
            [emit.integer(64), emit.integer(1)],
            count,
            lambda: [emit.index(0), emit.constant(emit.integer(1), 0)],
        )


def _of_all(value: Any) -> Any:
    """The greatest of the lanes, of less than 32 bits.

    After redux.sync the assembler knows that all lanes have the same. Of what was loaded or
    shuffled it does not: for sm_80 it guards the shuffles of all that depends on it, and spills.
    """
    word, members = emit.integer(32), emit.constant(emit.integer(32), -1)
    most = nvvm.ReductionKind.MAX
    found = nvvm.redux_sync(arith.trunci(word, value), most, members, results=[word])
    return arith.extsi(emit.integer(64), found)


def _sum_before(value: Any, lane: Size) -> Any:
    """The sum over the lanes before this one, in every warp the same; the whole block calls.

    Through shared memory: a shuffle between loops is one that the assembler guards, see above.
    """
    shared = _block.SharedArray("sums", emit.integer(64), _block.WARP)
    with emit.when(emit.compare("less", _block.thread(), _block.WARP)):
        shared.store(value, lane)
    _block.barrier()

    def add(number: Size, total: Size) -> Sequence[Any]:
        before = emit.compare("less", number, lane)
        return [total + emit.select(before, shared.load(number), 0)]

    return emit.carry(0, _block.WARP, 1, [emit.index(0)], add)[0]
