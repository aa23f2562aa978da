"""Tiles of ragged rows: which tile of which sequence a block has.

A sequence is a row of the batch, or the tokens before the first row or after the last one, which
see no keys. Tiles of all sequences follow one another, those that see most keys first, so that
what is left at the end is short; each block looks for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame, _scan
from heddle.kernels.cuda.flash import keys as flash_keys
from heddle.kernels.cuda.flash import split as flash_split
from heddle.kernels.cuda.flash import stages
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans
from heddle.kernels.sizes import Size

arith = dialect("arith")

_LONG = (8192, 2048, 512)
"""Tiles that see so many keys come before all that see fewer; the last ones are parts of keys."""

THREADS = stages.THREADS
"""Threads of a block that look for its tile; it may have more."""

_FAR = 1 << 40  # More keys than there can be.

Band = tuple[Size, Size]
"""Tiles that see at least so many keys, and fewer than so many."""

Span = tuple[Size, Size, Size]
"""Where the tokens of a sequence start and stop, and how many keys it has."""

_FIELDS = ("sequence", "number", "slots", "parts", "start", "stop", "length")


class Tile:
    """A block's tile, in shared memory: what is asked for is read then, and takes no register.

    It is tile `number` of `sequence`, the row from token `start` to `stop` with `length` keys. Of
    one that is split it is part `number` of so many `parts`, which are 0 for any other; `slots` are
    the parts of those before it.
    """

    def __init__(self) -> None:
        self._array = _block.SharedArray("tile", emit.integer(64), len(_FIELDS))

    def clear(self) -> None:
        """Emits that there is none: its sequence is -1."""
        with emit.when(emit.compare("less", _block.thread(), len(_FIELDS))):
            self._array.store(emit.index(-1), _block.thread())

    def fill(self, *values: Size) -> None:
        """Emits that one thread writes all of it."""
        for i, value in enumerate(values):
            self._array.store(value, i)

    def __getattr__(self, name: str) -> Size:
        if name not in _FIELDS:
            raise AttributeError(name)
        return self._array.load(_FIELDS.index(name))

    def of_all(self, *names: str) -> list[Size]:
        """What the assembler knows to be the same for all lanes; whole warps call."""
        return [_block.of_all(getattr(self, name)) for name in names]


@dataclass(frozen=True)
class Blocks:
    """How blocks share out the rows of a spec.

    Attributes:
        heads: Key heads, each as often as a block has a part of its query heads.
        group: Query heads of a block.
        rows: Rows of a tile.
        few: Rows of a sequence whose keys are split, at most.
        parts: Of the keys of a sequence, at most; 0 for any number.
    """

    heads: int
    group: int
    rows: int
    few: int
    parts: int = 0


class Tiles:
    """The sequences, 0 to the number of offsets, and their tiles: of rows, or of keys.

    `in_order`: the longest come first, which takes a while to find out.
    """

    def __init__(
        self,
        frame: _frame.Frame,
        keys: Keys,
        spans: RowSpans,
        blocks: Blocks,
        in_order: bool,
    ) -> None:
        self._spec, self._keys, self._spans, self._blocks = frame.spec, keys, spans, blocks
        self.splits = frame.counters is not None  # Else no sequence has keys for two blocks.
        self._group, self._rows = blocks.group, blocks.rows
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

    def _is_row(self, sequence: Size) -> Any:
        """Whether it is row `sequence - 1` of the batch."""
        inside = emit.compare("less", sequence, self._count)
        return inside & emit.compare("greater", sequence, 0)

    def _span(self, sequence: Size) -> tuple[Size, Size, Any]:
        """Where a sequence starts and ends, and whether its row is wrong, which is reported."""
        leads = emit.compare("equal", sequence, 0)
        start, stop, wrong = emit.either(
            self._is_row(sequence),
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
        return emit.select(self._is_row(sequence), sequence - 1, -1)

    def _of_few(self, queries: Size, length: Size) -> Size:
        """Stages of keys of a sequence of few rows; none of one with many or without any."""
        rows = queries * self._group
        most = self._blocks.few
        few = emit.compare("less_equal", rows, most) & emit.compare("greater", rows, 0)
        return emit.select(few, flash_keys.stages(self._spec, self._group, queries, length), 0)

    def find(self, wanted: Size) -> Tile:
        """Tile number `wanted`; its sequence is -1 where there is none, or where a row is wrong.

        Rows may then overlap. Every row is looked at by every block, so that each finds what is
        wrong.
        """
        tile = Tile()
        with _block.first_threads(THREADS):
            self._look(wanted, tile)
        _block.barrier()
        return tile

    def _look(self, wanted: Size, tile: Tile) -> None:
        """Each thread looks at its part of the sequences, first at their keys, then for `tile`."""
        each = (self._count + THREADS) // THREADS  # There is one more than offsets.
        own, none = _block.thread() * each, emit.index(0)
        tile.clear()
        if self.splits:

            def measure(number: Size, before: Size) -> Sequence[Any]:
                return [before + self._stages(own + number)]

            stages = emit.carry(0, each, 1, [none], measure)
            (every,) = _scan.totals("tile_stages", THREADS, stages)
            every = every * self._blocks.heads
            self._length_of_parts = flash_split.found_length_of_parts(every)

        def add(number: Size, *before: Any) -> Sequence[Any]:
            return [a + b for a, b in zip(before, self._counts(own + number), strict=True)]

        counts = emit.carry(0, each, 1, [none] * (len(self._bands) + 2), add)
        *tiles, slots, _ = counts
        *totals, _, wrong = _scan.totals("tile_counts", THREADS, counts)
        left, mine, band = self._band_of(wanted, totals, tiles)

        def look(number: Size, left: Size, slots: Size) -> Sequence[Any]:
            here = own + number
            first, count, parts, *row = self._tiles(here, band)
            is_here = emit.compare("less", left, count) & emit.compare("greater_equal", left, 0)
            with emit.when(is_here & emit.compare("equal", wrong, 0)):
                # The last tile of causal attention has the most keys: it comes first.
                tile.fill(here, first + count - 1 - left, slots, parts, *row)
            return [left - count, slots + parts]

        before, slots = _scan.before("tile_before", THREADS, (mine, slots))
        emit.carry(0, each, 1, [left - before, slots], look)

    def _band_of(
        self, wanted: Size, totals: Sequence[Size], counts: Sequence[Size]
    ) -> tuple[Size, Size, Band]:
        """Which tile of its band a tile is, how many of those are the thread's own, and the band.

        Of each band, `totals` are the tiles of all threads, and `counts` of this one.
        """
        left, own, band = wanted, counts[0], self._bands[0]
        before: Size = 0
        for number in range(1, len(self._bands)):
            before = before + totals[number - 1]
            behind = emit.compare("greater_equal", wanted, before)
            left = emit.select(behind, wanted - before, left)
            own = emit.select(behind, counts[number], own)
            first, end = zip(self._bands[number], band, strict=True)
            band = emit.select(behind, *first), emit.select(behind, *end)
        return left, own, band

    def _stages(self, sequence: Size) -> Size:
        """Stages of keys that may be split."""
        found = self._of(sequence, 1, lambda span, _: [self._of_few(span[1] - span[0], span[2])])
        return found[0]

    def _counts(self, sequence: Size) -> Sequence[Any]:
        """How many tiles a sequence has in each band; its parts; 1 if it is wrong."""

        def count(span: Span, wrong: Any) -> list[Any]:
            found = [self._in(band, span[1] - span[0], span[2]) for band in self._bands]
            slots, is_wrong = found[-1][-1], arith.extui(emit.integer(64), wrong)
            return [*(tiles for _, tiles, _ in found), slots, is_wrong]

        return self._of(sequence, len(self._bands) + 2, count)

    def _tiles(self, sequence: Size, band: Band) -> Sequence[Any]:
        """The first tile of a sequence in a band, how many, and all its parts; then its span."""

        def look(span: Span, _: Any) -> list[Any]:
            return [*self._in(band, span[1] - span[0], span[2]), *span]

        return self._of(sequence, 6, look)

    def _of(
        self, sequence: Size, count: int, found: Callable[[Span, Any], Sequence[Any]]
    ) -> Sequence[Any]:
        """`found` of a sequence's span and whether it is wrong; zeros of none."""

        def of_one() -> Sequence[Any]:
            start, stop, wrong = self._span(sequence)
            return found((start, stop, self._keys.length(self.row(sequence))), wrong)

        here = emit.compare("less_equal", sequence, self._count)
        zero = emit.index(0)
        return emit.either(here, [zero.type] * count, of_one, lambda: [zero] * count)

    def _in(self, band: Band, queries: Size, length: Size) -> list[Any]:
        """Its first tile in a band, how many, and its parts, which are tiles of the last band."""
        first, end = (self._below(limit, queries, length) for limit in band)
        if not self.splits:
            return [first, end - first, emit.index(0)]
        parts = flash_split.count(self._of_few(queries, length), self._length_of_parts)
        if self._blocks.parts:
            parts = emit.minimum(parts, self._blocks.parts)
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
