"""softmax(q k^T scale) v of ragged rows, in the flash manner (arXiv:2205.14135).

A task is a piece of a row's tokens under one key head. Where they are few, the heads of a piece are
done together: their keys lie side by side, and memory gives them up to twice as fast as those of
one head. A block of keys is worked on as in attention of dense rows, while the next one is fetched.
Sums of a query have one order, whichever queries are worked on beside it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, rows, sizes
from heddle.kernels.cpu import _amx_attention
from heddle.kernels.cpu import _attention_tile as tile
from heddle.kernels.cpu._amx_tiles import TILE_ROWS
from heddle.kernels.cpu._attention_block import (
    Block,
    Seen,
    fills_tiles,
    key_block,
    nothing,
    tiled_keys,
)
from heddle.kernels.cpu._attention_reads import copy_values, read_queries, turn_keys
from heddle.kernels.cpu._ragged_block import LOW, Pieces, Places, block_of, piece, pieces
from heddle.kernels.emit import select
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def emit_ragged(
    spec: Spec, machine: Machine, keys_of: Callable[[host.Frame], Keys], offsets: int = 3
) -> None:
    """Emits the loop over tasks; operand `offsets` holds where the queries of each row begin."""
    frame = host.frame(spec, machine, checks=True)
    block = block_of(spec, machine, key_block(spec))
    keys = keys_of(frame)
    places = Places.make(frame, block, keys)
    tiled = machine.tiles and fills_tiles(spec)
    if tiled:
        in_tiles = block_of(spec, machine, tiled_keys(spec), tiled)
        places_in_tiles = Places.make(frame, in_tiles, keys)
    spans = RowSpans(frame, report, offsets, frame.size(spec.operands[0].shape[0]))
    found = Pieces(frame, spans, offsets, piece(spec))

    def step(task: Any, following: Any) -> list[Any]:
        def work() -> list[Any]:
            number, head = task // places.key_heads, task % places.key_heads
            row, token, stop = found.find(number)
            count = sizes.least(stop - token, piece(spec))
            end = sizes.least(head + (frame.last - task), places.key_heads)
            with emit.when(emit.compare("greater", count, 0)):
                length = keys.length(row)
                position = length - (stop - token)
                queries = sizes.ceildiv(count * group_of(spec), LOW) * LOW
                several = sizes.least(emit.index(block.queries) // queries, places.heads)

                def few() -> list[Any]:
                    for first in emit.loop(head, end, several):
                        heads = (first, sizes.least(several, end - first))
                        part = _Part(frame, block, places, (row, length), (token, count), heads)
                        part.attend(position)
                    return []

                def many() -> list[Any]:
                    for first in emit.loop(head, end):
                        where, tokens = (row, length), (token, count)
                        part = _Part(frame, in_tiles, places_in_tiles, where, tokens, (first, 1))
                        part.attend_in_tiles(position)
                    return []

                if tiled:
                    emit.either(emit.compare("greater", queries, TILE_ROWS), [], many, few)
                else:
                    few()
            return [task + (end - head)]

        due = emit.compare("equal", task, following)
        return emit.either(due, [emit.integer(64)], work, lambda: [following])

    emit.carry(frame.first, frame.last, 1, [frame.first], step)


def report(frame: host.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    for place, word in enumerate((emit.index(code), value, limit, before)):
        memory.store(word, frame.status, place, "int64")


class _Part:
    """Tokens of one row under key heads, each as first and count; the row is number and length."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        places: Places,
        row: tuple[Any, Any],
        tokens: tuple[Any, Any],
        heads: tuple[Any, Any],
    ) -> None:
        self.frame, self.block, self.places = frame, block, places
        self.row, self.length = row
        self.token, self.count = tokens
        self.head, self.heads = heads
        self.group = group_of(frame.spec)
        self.queries = self.count * self.group
        self.padded = sizes.ceildiv(self.queries, LOW) * LOW

    def attend(self, position: Any) -> None:
        """Over the row's keys; the first token is at `position` among them."""
        block, frame = self.block, self.frame
        self.position = position
        tile.clear(block, 0, self.heads * self.padded)
        for head in emit.loop(0, self.heads):
            start_of = partial(self._query_start, head)
            read_queries(frame, block, head * self.padded, self.queries, self.padded, start_of)
        stop = self._visible(position + self.count - 1)
        start = emit.as_index(self._hidden(position)) // block.keys * block.keys
        self._find(start, stop)
        high = self.queries // block.rows * block.rows
        for first in emit.loop(start, stop, block.keys):
            present = sizes.least(emit.index(block.keys), stop - first)
            self._find(first + block.keys, stop)
            for head in emit.loop(0, self.heads):
                self._next = _Next(frame, self.places, head)
                start_of = partial(self._key_start, first, head)
                turn_keys(frame, block, present, start_of, self._next.beside_turning)
                copy_values(frame, block, present, start_of, self._next.beside_copying)
                base = head * self.padded
                with emit.when(emit.compare("greater", high, 0)):
                    self._next.fetch_rest()
                for top in emit.loop(0, high, block.rows):
                    self._tile(block, base, top, first, present)
                low = dataclasses.replace(block, rows=LOW)
                for top in emit.loop(high, self.queries, LOW):
                    self._tile(low, base, top, first, present)
        for head in emit.loop(0, self.heads):
            self._write(head)

    def attend_in_tiles(self, position: Any) -> None:
        """The same for one head, in AMX tiles."""
        block, frame = self.block, self.frame
        self.position = position
        padded = sizes.ceildiv(self.queries, block.rows) * block.rows
        tile.clear(block, 0, padded)
        read_queries(frame, block, 0, self.queries, padded, partial(self._query_start, 0))
        stop = self._visible(position + self.count - 1)
        start = emit.as_index(self._hidden(position)) // block.keys * block.keys
        together = block.keys * block.parts
        for first in emit.loop(start, stop, together):
            there = sizes.least(emit.index(together), stop - first)
            for number in emit.loop(0, sizes.ceildiv(there, block.keys)):
                part, key = block.part(number), first + number * block.keys
                present = sizes.least(emit.index(block.keys), stop - key)
                self._find(key, stop)
                turn_keys(frame, part, present, partial(self._key_start, key, 0))
                copy_values(frame, part, present, partial(self._key_start, key, 0))
                _amx_attention.clear_values(part, present)

            def span_at(top: Any, first: Any = first, there: Any = there) -> Seen:
                return self._seen(block, top, first, there)

            def seen_at(top: Any, number: Any, first: Any = first, stop: Any = stop) -> Seen:
                key = first + number * block.keys
                return self._seen(block, top, key, sizes.least(emit.index(block.keys), stop - key))

            _amx_attention.attend(block, 0, self.queries, span_at, seen_at)
        self._write(0)

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
            score = score if block.late else score * block.scale
            if not partial:
                return score
            before, behind = ends(r)
            seen = host.first_lanes(behind - first - column, block.lanes)
            if not isinstance(before, int):
                seen = seen & (host.first_lanes(before - first - column, block.lanes) ^ True)
            return select(seen, score, -math.inf)

        return Seen(start, sizes.greatest(stop - first, 0), inside, finish)

    def _tile(self, block: Block, base: Any, top: Any, first: Any, present: Any) -> None:
        """A tile of a head's queries, from `top` on, by the block of keys from `first` on."""
        seen = self._seen(block, top, first, present)
        with emit.when(emit.compare("greater", seen.stop, 0)):
            ahead = (nothing, nothing)
            if block.rows == LOW:
                ahead = (self._next.beside_scores, self._next.beside_sums)
            tile.score(block, base + top, seen.stop, seen.whole, seen.finish, ahead[0])
            tile.exponentials(block, base + top, seen.stop)
            tile.add_values(block, base + top, seen.stop, ahead[1])

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

    def _write(self, head: Any) -> None:
        block, base = self.block, head * self.padded
        finish = rows.Finish(self.frame, block.lanes)
        for r in emit.loop(0, self.queries):
            weight = block.scalar(block.weight, base + r)
            share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
            out_at = finish.row(self._result_row(head, r))
            for column, mask in host.vectors(0, block.size, block.lanes):
                total = block.vector(block.total, (base + r) * block.width + column)
                out_at(column, mask, total * share)


class _Next:
    """The next block: its share that is fetched while `head` is worked on.

    As many keys as a block has are fetched of as many heads, in the order of memory: half of the
    keys, the other half, then the values, beside one loop after another. Where too many lines are
    asked for at once, requests are dropped.
    """

    def __init__(self, frame: host.Frame, places: Places, head: Any) -> None:
        self._frame, self._places, self._block = frame, places, places.block
        self._dtype = frame.spec.operands[1].dtype
        self._first = head * self._block.keys
        self._lines = -(-self._block.size * emit.ITEM_SIZE[self._dtype] // 64)

    def beside_turning(self, step: Any, count: int) -> None:
        """A share of the keys."""
        block = self._block
        self._share(1, 0, step, count, block.keys * block.depth // block.lanes**2)

    def beside_copying(self, step: Any, count: int) -> None:
        """The other keys."""
        self._share(1, 1, step, count, self._block.keys // self._block.group)

    def beside_scores(self, step: Any, count: int) -> None:
        """A share of the values."""
        block = self._block
        self._share(2, 0, step, count, block.steps * (block.keys // (block.pair * block.lanes)))

    def beside_sums(self, step: Any, count: int) -> None:
        """The other values."""
        block = self._block
        parts = -(-block.width // (2 * block.lanes))
        self._share(2, 1, step, count, parts * (block.keys // block.group))

    def fetch_rest(self) -> None:
        """All values."""
        for line in emit.loop(0, self._block.keys * self._lines):
            self._line(2, line)

    def _share(self, number: int, half: int, step: Any, count: int, steps: int) -> None:
        """Lines for `count` of the `steps` beside which a half is asked for."""
        lines = self._block.keys // 2 * self._lines
        each = -(-lines // steps)
        for line in range(count * each):
            self._line(number, step * each + (half * lines + line))

    def _line(self, number: int, line: Any) -> None:
        at = memory.load(self._places.fetched, self._first + line // self._lines, "int64")
        column = line % self._lines * (64 // emit.ITEM_SIZE[self._dtype])
        memory.prefetch(self._frame.inputs[number], at + column, self._dtype, level=2)


def launch(spec: Spec, keys: Expr, offsets: int = 3) -> Launch:
    """One task for each piece of a row under a key head, those of a piece together.

    A token may see all `keys`.
    """
    tokens, heads, size = spec.operands[0].shape
    work = product((tokens, heads, keys, fold("add", fold("mul", size, 4), 20)))
    key_heads = spec.operands[1].shape[-2]
    return Launch((product((pieces(spec, offsets), key_heads)), key_heads, 1), work)
