"""softmax(q k^T scale) v of ragged rows, in the flash manner (arXiv:2205.14135).

A task is a piece of a row's tokens under one key head, or, of a row that has few tokens in all, a
part of its keys under all heads (`rows.py`). Where a piece is short, its heads are done
together: their keys lie side by side, and memory gives them up to twice as fast as those of one
head. A block of keys is worked on as in attention of dense rows, while the next one is fetched.
Sums of a query have one order, whichever rows are worked on beside its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, rows, sizes
from heddle.kernels.cpu.amx import attention, attention_parts
from heddle.kernels.cpu.amx.parts import PARTS
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.decode.parts import COUNTERS, drafts, most_parts, workspace
from heddle.kernels.cpu.decode.rows import Decode
from heddle.kernels.cpu.flash import tile
from heddle.kernels.cpu.flash.block import TILED_KEYS, Ahead, Block, Seen
from heddle.kernels.cpu.flash.cut import fills_tiles, key_block, least_split, pair_work, splits
from heddle.kernels.cpu.flash.ragged_block import (
    LOW,
    MANY,
    Next,
    Pieces,
    Places,
    block_of,
    piece,
    pieces,
    tile_rows,
)
from heddle.kernels.cpu.flash.reads import copy_values, read_queries, turn_keys
from heddle.kernels.cpu.flash.shares import with_sink
from heddle.kernels.cpu.flash.splits import put_keys, put_queries
from heddle.kernels.emit import select
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def emit_ragged(
    spec: Spec,
    machine: Machine,
    keys_of: Callable[[host.Frame], Keys],
    seen: Expr,
) -> None:
    """Emits the loop over tasks; a token may see `seen` keys."""
    scratch = launch(spec, seen).counters > 0
    frame = host.frame(spec, machine, checks=True, scratch=scratch)
    block = block_of(spec, machine, key_block(spec))
    keys = keys_of(frame)
    places = Places.make(frame, block, keys)
    split = machine.tiles and splits(spec)
    tiled = machine.tiles and (fills_tiles(spec) or split)
    if tiled:
        parts = PARTS[spec.operands[0].dtype] if split else 1
        in_tiles = block_of(spec, machine, TILED_KEYS, tiled, parts)
        places_in_tiles = Places.make(frame, in_tiles, keys)
    decode = Decode.make(frame, block, keys, seen)
    spans = RowSpans(frame, report, QUERY_OFFSETS, frame.size(spec.operands[0].shape[0]))
    found = Pieces(frame, spans, piece(spec))
    slots = sizes.greatest(places.key_heads, decode.parts)

    def step(task: Any, following: Any) -> list[Any]:
        def work() -> list[Any]:
            number, first = sizes.floordiv(task, slots), sizes.mod(task, slots)
            row, token, stop, whole = found.find(number)
            last = sizes.least(first + (frame.last - task), slots)
            with emit.when(emit.compare("greater", stop - token, 0)):
                length = keys.length(row)
                part = _Part(frame, block, places, (row, length), (token, stop))
                few = whole & emit.compare("less_equal", stop - token, drafts(spec))

                def decoded() -> list[Any]:
                    decode.attend(row, (token, stop - token), part.seen, (first, last))
                    return []

                def computed() -> list[Any]:
                    heads = (first, sizes.least(last, places.key_heads))
                    if not tiled:
                        part.attend_heads(*heads)
                        return []

                    def many() -> list[Any]:
                        where, tokens = (row, length), (token, stop)
                        other = _Part(frame, in_tiles, places_in_tiles, where, tokens)
                        return other.attend_in_tiles(*heads)

                    enough = emit.compare("greater", part.padded, TILE_ROWS)
                    if split:
                        enough = emit.compare("greater_equal", part.queries, MANY)
                        enough = enough & emit.compare("greater_equal", length, least_split(spec))
                    true = emit.constant(emit.integer(1), 1)
                    (others,) = emit.either(enough, [true.type], many, lambda: [true])
                    with emit.when(others):
                        part.attend_heads(*heads)
                    return []

                emit.either(few, [], decoded, computed)
            return [task + (last - first)]

        due = emit.compare("equal", task, following)
        return emit.either(due, [emit.integer(64)], work, lambda: [following])

    emit.carry(frame.first, frame.last, 1, [frame.first], step)


def report(frame: host.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    for place, word in enumerate((emit.index(code), value, limit, before)):
        memory.store(word, frame.status, place, "int64")


class _Part:
    """A piece of a row, tokens from and to the row's end; the row is number and length."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        places: Places,
        row: tuple[Any, Any],
        tokens: tuple[Any, Any],
    ) -> None:
        self.frame, self.block, self.places = frame, block, places
        self.row, self.length = row
        self.token, stop = tokens
        self.position = self.length - (stop - self.token)
        self.count = sizes.least(stop - self.token, piece(frame.spec))
        self.group = group_of(frame.spec)
        self.queries = self.count * self.group
        self.whole, self.padded = tile_rows(self.queries, block.rows)

    def seen(self, token: Any) -> tuple[Any, Any]:
        """The keys that a token of the piece sees, from and to."""
        position = self.position + token
        return emit.as_index(self._hidden(position)), self._visible(position)

    def attend_heads(self, first: Any, stop: Any) -> None:
        """Over the row's keys, under key heads `first` to `stop - 1`, several at once if few."""
        several = sizes.least(emit.index(self.block.queries) // self.padded, self.places.heads)
        for head in emit.loop(first, stop, several):
            self._attend(head, sizes.least(several, stop - head))

    def _attend(self, head: Any, heads: Any) -> None:
        block, frame = self.block, self.frame
        self.head, self.heads = head, heads
        position = self.position
        tile.clear(block, 0, self.heads * self.padded)
        for head in emit.loop(0, self.heads):
            start_of = partial(self._query_start, head)
            read_queries(frame, block, head * self.padded, self.queries, self.padded, start_of)
        stop = self._visible(position + self.count - 1)
        start = emit.as_index(self._hidden(position)) // block.keys * block.keys
        self._find(start, stop)
        for first in emit.loop(start, stop, block.keys):
            present = sizes.least(emit.index(block.keys), stop - first)
            self._find(first + block.keys, stop)
            for head in emit.loop(0, self.heads):
                self._next = Next(frame, self.places, head)
                start_of = partial(self._key_start, first, head)
                turn_keys(frame, block, present, start_of, self._next.beside_turning)
                copy_values(frame, block, present, start_of, self._next.beside_copying)
                base = head * self.padded
                for top in emit.loop(0, self.whole, block.rows):
                    beside = self._next.beside_tile(top // block.rows, self.whole // block.rows)
                    self._tile(block, base, top, first, present, *beside)
                low = dataclasses.replace(block, rows=LOW)
                for top in emit.loop(self.whole, self.queries, LOW):
                    beside = self._next.beside_scores, self._next.beside_sums
                    self._tile(low, base, top, first, present, *beside)
        for head in emit.loop(0, self.heads):
            self._write(head)

    def attend_in_tiles(self, first: Any, stop: Any) -> list[Any]:
        """The same in AMX tiles, one head after another; whether they have to be done again."""

        def over_heads(head: Any, again: Any) -> list[Any]:
            self.head, self.heads = head, 1
            found = self._attend_in_tiles(self.position)
            return [again | found[0]] if found else [again]

        return emit.carry(first, stop, 1, [emit.constant(emit.integer(1), 0)], over_heads)

    def _attend_in_tiles(self, position: Any) -> list[Any]:
        block, frame = self.block, self.frame
        padded = sizes.ceildiv(self.queries, block.rows) * block.rows
        attention.clear(block, self.queries, padded)
        put_queries(frame, block, self.queries, padded, partial(self._query_start, 0))
        stop = self._visible(position + self.count - 1)
        start = emit.as_index(self._hidden(position)) // block.keys * block.keys
        together = block.keys * block.parts
        for first in emit.loop(start, stop, together):
            there = sizes.least(emit.index(together), stop - first)
            for number in emit.loop(0, sizes.ceildiv(there, block.keys)):
                part, key = block.part(number), first + number * block.keys
                present = sizes.least(emit.index(block.keys), stop - key)
                self._find(key, stop)
                start_of = partial(self._key_start, key, 0)
                put_keys(frame, part, present, start_of, start_of)

            def span_at(top: Any, first: Any = first, there: Any = there) -> Seen:
                return self._seen(block, top, first, there)

            def seen_at(top: Any, number: Any, first: Any = first, stop: Any = stop) -> Seen:
                key = first + number * block.keys
                return self._seen(block, top, key, sizes.least(emit.index(block.keys), stop - key))

            attend = attention_parts.attend if block.split > 1 else attention.attend
            attend(block, self.queries, span_at, seen_at)
        if block.split > 1:
            attention_parts.add_weights(block, padded)
        return self._write(0)

    def _seen(self, block: Block, top: Any, first: Any, present: Any) -> Seen:
        """Of the keys from `first` on, those that a tile of queries from `top` on attends to."""

        def ends(r: Any) -> tuple[Any, Any]:
            """The keys, from and to, that row `r` attends to."""
            token = sizes.least((top + r) // self.group, self.count - 1)
            stop = sizes.least(self._visible(self.position + token), first + present)
            return self._hidden(self.position + token), stop

        (opened, closed), (hidden, stop) = ends(0), ends(block.rows - 1)
        inside = emit.compare("equal", sizes.mod(stop - first, block.pair * block.lanes), 0)
        inside = inside & emit.compare("equal", closed, stop)
        start: Size = 0
        if not isinstance(hidden, int):
            inside = inside & emit.compare("less_equal", hidden, first)
            start = sizes.greatest(opened - first, 0)

        def finish(r: Any, column: Any, score: Any, partial: bool) -> Any:
            score = block.scaled(score)
            if not partial:
                return score
            before, behind = ends(r)
            seen = host.first_lanes(behind - first - column, block.lanes)
            if not isinstance(before, int):
                seen = seen & (host.first_lanes(before - first - column, block.lanes) ^ True)
            return select(seen, score, -math.inf)

        return Seen(start, sizes.greatest(stop - first, 0), inside, finish)

    def _tile(
        self,
        block: Block,
        base: Any,
        top: Any,
        first: Any,
        present: Any,
        beside_scores: Ahead,
        beside_values: Ahead,
    ) -> None:
        """A tile of a head's queries, from `top` on, by the block of keys from `first` on."""
        seen = self._seen(block, top, first, present)
        tile.attend(block, base + top, seen, beside_scores, beside_values)

    def _visible(self, position: Any) -> Any:
        """How many keys, from the first on, are not behind a query that is at `position`."""
        if not self.frame.spec.attr("causal"):
            return self.length
        return sizes.greatest(sizes.least(position + 1, self.length), 0)

    def _hidden(self, position: Any) -> Size:
        """How many keys are before the window of a query that is at `position`."""
        window = self.frame.spec.attr("window")
        return sizes.greatest(position + 1 - window, 0) if window else 0

    def _find(self, first: Any, stop: Any) -> None:
        self.places.find(self.row, first, stop, self.head, self.heads)

    def _key_start(self, first: Any, head: Any, number: Any) -> Any:
        return self.places.start(first, number, head)

    def _query_start(self, head: Any, query: Any) -> Any:
        return self._result_row(head, query) * self.block.size

    def _result_row(self, head: Any, query: Any) -> Any:
        """The row, of head size, of a query: those of a token follow one another."""
        heads = self.frame.size(self.frame.spec.operands[0].shape[1])
        token = self.token + query // self.group
        return token * heads + (self.head + head) * self.group + query % self.group

    def _write(self, head: Any) -> list[Any]:
        """Writes a head's results; where numbers are split, whether one is infinite or a NaN."""
        block, base = self.block, head * self.padded
        finish = rows.Finish(self.frame, block.lanes)

        def write(r: Any, *found: Any) -> list[Any]:
            def beside() -> tuple[Any, Any]:
                number = (self.head + head) * self.group + r % self.group
                return number, block.scalar(block.top, base + r)

            share = with_sink(self.frame, block.weight_at(base + r), beside)
            out_at = finish.row(self._result_row(head, r))
            for column, mask in host.vectors(0, block.size, block.lanes):
                total = block.vector(block.total, (base + r) * block.across + column)
                out_at(column, mask, total * share)
            return attention_parts.no_numbers(block, base + r, share, *found)

        return attention_parts.any_no_number(block, self.queries, write)


def launch(spec: Spec, seen: Expr) -> Launch:
    """A task for each piece of a row under a key head, or for each part of its keys.

    Those of a piece are taken together. A token may see `seen` keys.
    """
    work = product((*spec.operands[0].shape[:2], seen, pair_work(spec)))
    key_heads, scratch = spec.operands[1].shape[-2], workspace(spec, seen)
    slots = fold("max", key_heads, most_parts(spec, seen))
    grid = (product((pieces(spec), slots)), key_heads, 1)
    return Launch(grid, work, workspace=scratch, counters=COUNTERS if scratch != 0 else 0)
