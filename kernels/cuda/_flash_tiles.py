"""Tiles of ragged rows: which tile of which sequence a block has.

A sequence is a row of the batch, or the tokens before the first row or after the last one, which
see no keys. Tiles of all sequences follow one another, and each block looks for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _flash_keys, _flash_split, _frame
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import Keys, RowSpans, group_of
from heddle.kernels.sizes import Size

arith = dialect("arith")


class Tiles:
    """The sequences, 0 to the number of offsets, and their tiles: of so many rows, or of keys."""

    def __init__(
        self, frame: _frame.Frame, keys: Keys, spans: RowSpans, offsets: int, rows: int
    ) -> None:
        self._spec, self._keys, self._spans = frame.spec, keys, spans
        self.splits = frame.counters is not None  # Else no sequence has keys for two blocks.
        self._group, self._rows = group_of(frame.spec), rows
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

    def row(self, sequence: Size) -> Size:
        """The row of the batch, -1 for what is none."""
        return emit.select(self.is_row(sequence), sequence - 1, -1)

    def stages(self, queries: Size, length: Size) -> Size:
        """Stages of keys of a sequence of few rows; none of one with many or without any."""
        rows = queries * self._group
        few = emit.compare("less_equal", rows, _flash_split.FEW) & emit.compare("greater", rows, 0)
        return emit.select(few, _flash_keys.stages(self._spec, self._group, queries, length), 0)

    def find(self, wanted: Size) -> tuple[Size, Size, Size]:
        """The sequence of tile number `wanted`, which of its tiles, and slots of those before it.

        The sequence is -1 where there is none, or where a row is wrong: rows may then overlap.
        Each lane of a warp looks at its part of the sequences, first at their keys and tiles, then
        for the tile. Every row is looked at by every block, so that each finds what is wrong.
        """
        lane = _block.thread() % _block.WARP
        each = (self._count + _block.WARP) // _block.WARP  # There is one more than offsets.
        nothing, none = emit.index(-1), emit.index(0)
        if self.splits:

            def measure(number: Size, before: Size) -> Sequence[Any]:
                return [before + self._stages(lane * each + number)]

            (stages,) = emit.carry(0, each, 1, [none], measure)
            key_heads = self._spec.operands[1].shape[-2]
            self.length_of_parts = _flash_split.length_of_parts(_block.over_all(stages), key_heads)

        def add(number: Size, before: Size, slots: Size, wrong: Any) -> Sequence[Any]:
            tiles, more, here = self._tiles(lane * each + number)
            return [before + tiles, slots + more, wrong | here]

        start = [none, none, emit.constant(emit.integer(1), 0)]
        own, own_slots, wrong = emit.carry(0, each, 1, start, add)

        def look(number: Size, left: Size, slots: Size, *found: Size) -> Sequence[Any]:
            here = lane * each + number
            tiles, more, _ = self._tiles(here)
            is_here = emit.compare("less", left, tiles) & emit.compare("greater_equal", left, 0)
            # The last tile of causal attention has the most keys: it comes first.
            pairs = zip((here, tiles - 1 - left, slots), found, strict=True)
            return [
                left - tiles,
                slots + more,
                *(emit.select(is_here, now, before) for now, before in pairs),
            ]

        start = [wanted - _sum_before("tiles", own, lane), none, nothing, nothing, nothing]
        if self.splits:
            start[1] = _sum_before("slots", own_slots, lane)
        _, _, sequence, tile, slots = emit.carry(0, each, 1, start, look)
        wrong = _block.of_all(arith.extui(emit.integer(64), wrong))
        sequence = emit.select(emit.compare("equal", wrong, 0), _block.of_all(sequence), -1)
        return sequence, _block.of_all(tile), _block.of_all(slots)

    def _stages(self, sequence: Size) -> Size:
        """Stages of keys that may be split."""

        def count() -> list[Any]:
            start, stop, _ = self.span(sequence)
            return [self.stages(stop - start, self._keys.length(self.row(sequence)))]

        here = emit.compare("less_equal", sequence, self._count)
        return emit.either(here, [emit.integer(64)], count, lambda: [emit.index(0)])[0]

    def _tiles(self, sequence: Size) -> Sequence[Any]:
        """How many a sequence has, none if there is no such one; its slots; whether it is wrong."""

        def count() -> list[Any]:
            start, stop, wrong = self.span(sequence)
            tiles = ((stop - start) * self._group + (self._rows - 1)) // self._rows
            if not self.splits:
                return [tiles, emit.index(0), wrong]
            parts = _flash_split.count(self._stages(sequence), self.length_of_parts)
            split = emit.compare("greater", parts, 1)
            return [emit.select(split, parts, tiles), emit.select(split, parts, 0), wrong]

        return emit.either(
            emit.compare("less_equal", sequence, self._count),
            [*[emit.integer(64)] * 2, emit.integer(1)],
            count,
            lambda: [emit.index(0), emit.index(0), emit.constant(emit.integer(1), 0)],
        )


def _sum_before(name: str, value: Any, lane: Size) -> Any:
    """The sum over the lanes before this one, in every warp the same; the whole block calls.

    Through shared memory: a shuffle between loops is one that the assembler guards, see
    `_block.of_all`.
    """
    shared = _block.SharedArray(name, emit.integer(64), _block.WARP)
    with emit.when(emit.compare("less", _block.thread(), _block.WARP)):
        shared.store(value, lane)
    _block.barrier()

    def add(number: Size, total: Size) -> Sequence[Any]:
        before = emit.compare("less", number, lane)
        return [total + emit.select(before, shared.load(number), 0)]

    return emit.carry(0, _block.WARP, 1, [emit.index(0)], add)[0]
