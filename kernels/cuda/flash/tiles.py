"""Tiles of ragged rows: which tile of which sequence a block has.

A sequence is a row of the batch, or the tokens before the first row or after the last one, which
see no keys. Tiles of all sequences follow one another, those that see most keys first, so that
what is left at the end is short; each block looks for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash import keys as flash_keys
from heddle.kernels.cuda.flash import split as flash_split
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans, group_of
from heddle.kernels.sizes import Size

arith = dialect("arith")

_LONG = (8192, 2048, 512)
"""Tiles that see so many keys come before all that see fewer; the last ones are parts of keys."""

_FAR = 1 << 40  # More keys than there can be.
_SLOT = 1 << 32  # A slot in a sum of slots and tiles.

Band = tuple[Size, Size]
"""Tiles that see at least so many keys, and fewer than so many."""


class Tiles:
    """The sequences, 0 to the number of offsets, and their tiles: of so many rows, or of keys.

    `in_order`: the longest come first, which takes a while to find out.
    """

    def __init__(
        self,
        frame: _frame.Frame,
        keys: Keys,
        spans: RowSpans,
        rows: int,
        in_order: bool,
    ) -> None:
        self._spec, self._keys, self._spans = frame.spec, keys, spans
        self.splits = frame.counters is not None  # Else no sequence has keys for two blocks.
        self._group, self._rows = group_of(frame.spec), rows
        limits = [emit.index(keys) for keys in (_FAR, *(_LONG if in_order else ()), -_FAR)]
        self._bands = list(zip(limits[1:], limits[:-1], strict=True))
        self._tokens = emit.as_index(frame.size(frame.spec.operands[0].shape[0]))
        self._count = emit.as_index(frame.size(frame.spec.operands[QUERY_OFFSETS].shape[0]))
        pointer = frame.inputs[QUERY_OFFSETS]
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
        few = emit.compare("less_equal", rows, flash_split.FEW) & emit.compare("greater", rows, 0)
        return emit.select(few, flash_keys.stages(self._spec, self._group, queries, length), 0)

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
            every = _block.over_all(stages) * key_heads
            self.length_of_parts = flash_split.found_length_of_parts(every)

        def add(number: Size, *before: Any) -> Sequence[Any]:
            *sums, wrong = before
            *more, here = self._counts(lane * each + number)
            return [*(a + b for a, b in zip(sums, more, strict=True)), wrong | here]

        start = [none] * (len(self._bands) + 1) + [emit.constant(emit.integer(1), 0)]
        *counts, own_slots, wrong = emit.carry(0, each, 1, start, add)
        left, own, band = self._band_of(wanted, counts)

        def look(number: Size, left: Size, slots: Size, *found: Size) -> Sequence[Any]:
            here = lane * each + number
            first, tiles, more = self._tiles(here, band)
            is_here = emit.compare("less", left, tiles) & emit.compare("greater_equal", left, 0)
            # The last tile of causal attention has the most keys: it comes first.
            pairs = zip((here, first + tiles - 1 - left, slots), found, strict=True)
            return [
                left - tiles,
                slots + more,
                *(emit.select(is_here, now, before) for now, before in pairs),
            ]

        # Both sums are below 2 ** 32, as tiles are blocks of the grid, and every slot is a tile.
        before = _sum_before("tiles", own_slots * _SLOT + own if self.splits else own, lane)
        start = [left - before % _SLOT, before // _SLOT, nothing, nothing, nothing]
        _, _, sequence, tile, slots = emit.carry(0, each, 1, start, look)
        wrong = _block.of_all(arith.extui(emit.integer(64), wrong))
        sequence = emit.select(emit.compare("equal", wrong, 0), _block.of_all(sequence), -1)
        return sequence, _block.of_all(tile), _block.of_all(slots)

    def _band_of(self, wanted: Size, counts: Sequence[Size]) -> tuple[Size, Size, Band]:
        """Which tile of its band a tile is, how many of those are the lane's own, and the band."""
        left, own, band = wanted, counts[0], self._bands[0]
        before: Size = 0
        for number in range(1, len(self._bands)):
            before = before + _block.over_all(counts[number - 1])
            behind = emit.compare("greater_equal", wanted, before)
            left = emit.select(behind, wanted - before, left)
            own = emit.select(behind, counts[number], own)
            first, end = zip(self._bands[number], band, strict=True)
            band = emit.select(behind, *first), emit.select(behind, *end)
        return left, own, band

    def _stages(self, sequence: Size) -> Size:
        """Stages of keys that may be split."""
        kinds = [emit.integer(64)]
        found = self._of(sequence, kinds, lambda queries, keys, _: [self.stages(queries, keys)])
        return found[0]

    def _counts(self, sequence: Size) -> Sequence[Any]:
        """How many tiles a sequence has in each band; its slots; whether it is wrong."""

        def count(queries: Size, length: Size, wrong: Any) -> list[Any]:
            found = [self._in(band, queries, length) for band in self._bands]
            return [*(tiles for _, tiles, _ in found), found[-1][-1], wrong]

        kinds = [emit.integer(64)] * (len(self._bands) + 1) + [emit.integer(1)]
        return self._of(sequence, kinds, count)

    def _tiles(self, sequence: Size, band: Band) -> Sequence[Any]:
        """The first tile of a sequence in a band, how many there are; and all its slots."""
        kinds = [emit.integer(64)] * 3
        return self._of(sequence, kinds, lambda queries, length, _: self._in(band, queries, length))

    def _of(
        self,
        sequence: Size,
        kinds: Sequence[Any],
        found: Callable[[Size, Size, Any], Sequence[Any]],
    ) -> Sequence[Any]:
        """`found` of a sequence's queries, its keys and whether it is wrong; zeros of none."""

        def of_one() -> Sequence[Any]:
            start, stop, wrong = self.span(sequence)
            return found(stop - start, self._keys.length(self.row(sequence)), wrong)

        here = emit.compare("less_equal", sequence, self._count)
        return emit.either(here, kinds, of_one, lambda: [emit.constant(kind, 0) for kind in kinds])

    def _in(self, band: Band, queries: Size, length: Size) -> list[Any]:
        """What `products.tiles` gives; a sequence that is split has its parts in the last band."""
        first, end = (self._below(limit, queries, length) for limit in band)
        if not self.splits:
            return [first, end - first, emit.index(0)]
        parts = flash_split.count(self.stages(queries, length), self.length_of_parts)
        split = emit.compare("greater", parts, 1)
        here = emit.select(emit.compare("less", band[0], 0), parts, 0)
        return [
            emit.select(split, 0, first),
            emit.select(split, here, end - first),
            emit.select(split, parts, 0),
        ]

    def _below(self, keys: Size, queries: Size, length: Size) -> Size:
        """The tiles of a sequence that see fewer than so many keys: its first ones."""
        if self._spec.attr("causal"):
            hidden = keys - 1 - (length - queries)
            hidden = emit.minimum(emit.maximum(hidden, 0), queries)
        else:
            hidden = emit.select(emit.compare("less", length, keys), queries, 0)
        # One that is not full is among them where all rows see fewer.
        more = emit.select(emit.compare("equal", hidden, queries), emit.index(self._rows - 1), 0)
        return (hidden * self._group + more) // self._rows


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
