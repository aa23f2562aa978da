"""A piece of a ragged row's tokens by the row's keys, in tiles of registers or AMX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from heddle.kernels import emit, host, sizes
from heddle.kernels.cpu.amx import attention, attention_parts
from heddle.kernels.cpu.flash import tile
from heddle.kernels.cpu.flash.block import Ahead, Block, Seen
from heddle.kernels.cpu.flash.piece import Piece
from heddle.kernels.cpu.flash.ragged_block import LOW, Next, Places, tile_rows
from heddle.kernels.cpu.flash.reads import copy_values, read_queries, turn_keys
from heddle.kernels.cpu.flash.splits import put_keys, put_queries
from heddle.kernels.emit import select
from heddle.kernels.sizes import Size


class Part(Piece):
    """A piece that is worked on in tiles of `block`, of keys that `places` finds."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        places: Places,
        row: tuple[Any, Any],
        tokens: tuple[Any, Any],
    ) -> None:
        super().__init__(frame, block, row, tokens)
        self.places = places
        self.whole, self.padded = tile_rows(self.queries, block.rows)

    def attend_heads(self, first: Any, stop: Any) -> None:
        """Over the row's keys, under key heads `first` to `stop - 1`, several at once if few."""
        several = sizes.least(emit.index(self.block.queries) // self.padded, self.places.heads)
        for head in emit.loop(first, stop, several):
            self._attend(head, sizes.least(several, stop - head))

    def _attend(self, head: Any, heads: Any) -> None:
        self._begin(head, heads)
        stop = self._visible(self.position + self.count - 1)
        start = emit.as_index(self._hidden(self.position)) // self.block.keys * self.block.keys
        self._attend_to(start, stop)
        for number in emit.loop(0, self.heads):
            self._write_head(number)

    def begin(self, some: Any) -> None:
        """What `attend_to` needs of a token, if it has `some` keys here: nothing."""

    def attend_to(self, head: Any, start: Any, stop: Any, sums: Callable[[], Any]) -> bool:
        """Over the keys from `start`, where a block begins, to `stop - 1`; the sums stay there.

        Returns False: they are not at `sums()`.
        """
        self._begin(head, 1)
        self._attend_to(start, stop)
        return False

    def _begin(self, head: Any, heads: Any) -> None:
        """Puts the queries of some heads on the stack, and no sums."""
        block = self.block
        self.head, self.heads = head, heads
        tile.clear(block, 0, self.heads * self.padded)
        for number in emit.loop(0, self.heads):
            start_of, row = partial(self._query_start, number), number * self.padded
            read_queries(self.frame, block, row, self.queries, self.padded, start_of)

    def _attend_to(self, start: Any, stop: Any) -> None:
        block, frame = self.block, self.frame
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
        return self._write_head(0)

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

    def _write_head(self, number: Any) -> list[Any]:
        return self._write(number, number * self.padded)

    def _find(self, first: Any, stop: Any) -> None:
        self.places.find(self.row, first, stop, self.head, self.heads)

    def _key_start(self, first: Any, head: Any, number: Any) -> Any:
        return self.places.start(first, number, head)
