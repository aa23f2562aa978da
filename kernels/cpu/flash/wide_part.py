"""A piece of a ragged row's tokens by the row's keys, in AMX tiles whose queries are turned.

See `heddle.kernels.cpu.amx.wide`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROWS
from heddle.kernels.cpu.amx.wide import Strip
from heddle.kernels.cpu.amx.wide_sides import Limits, Sides
from heddle.kernels.cpu.decode.parts import crowded
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.piece import Piece
from heddle.kernels.cpu.flash.ragged_block import QUERIES
from heddle.kernels.cpu.flash.wide_reads import ask, put_keys, put_queries
from heddle.kernels.cpu.products.asks import FRACTION
from heddle.kernels.emit import compare
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import Keys, group_of
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

KEYS = 128
"""Keys of a block: with fewer, sums go through registers more often."""


@dataclass(frozen=True)
class WidePlaces:
    """Where keys are, of a block and of the next one, and what strips need beside a `Block`.

    `rows` holds the elements at which the keys of two blocks start, under the first head.
    """

    keys: Keys
    key_heads: int
    block: Block
    sides: Sides
    shares: Any
    limits: Limits
    rows: Any

    @staticmethod
    def make(frame: host.Frame, machine: Machine, keys: Keys) -> WidePlaces:
        """The places of a kernel, at the start of its function."""
        spec, group = frame.spec, group_of(frame.spec)
        key_heads = spec.operands[1].shape[-2]
        assert isinstance(key_heads, int)
        # Of a token that decodes in parts, those of all key heads wait.
        waiting = key_heads if crowded(spec) else 1
        queries = max(QUERIES, _padded(group) * waiting)
        block = Block.make(spec, machine, queries, KEYS, turned=True)
        queries = -(-queries // PAIR) * PAIR
        counts = (2 * PAIR * KEYS, queries, queries)
        shares, low, high = (host.byte_buffer(4 * count) for count in counts)
        sides = Sides(host.byte_buffer(4 * 8 * KEYS // TILE_ROWS))
        rows = host.byte_buffer(8 * 2 * KEYS)
        return WidePlaces(keys, key_heads, block, sides, shares, Limits(low, high), rows)

    def find(self, row: Any, first: Any, stop: Any, turn: Any) -> None:
        """Notes where keys of a block from `first` on are, in the place of every other `turn`."""
        for number in emit.loop(0, sizes.least(emit.index(KEYS), stop - first)):
            place, _ = self.keys.place(row, first + number)
            place = place * (self.key_heads * self.block.size)
            memory.store(place, self.rows, turn % 2 * KEYS + number, "int64")

    def start(self, turn: Any, number: Any) -> Any:
        """The element at which a key of a block starts."""
        return memory.load(self.rows, turn % 2 * KEYS + number, "int64")


class WidePart(Piece):
    """A piece whose keys `places` finds."""

    def __init__(
        self, frame: host.Frame, places: WidePlaces, row: tuple[Any, Any], tokens: tuple[Any, Any]
    ) -> None:
        super().__init__(frame, places.block, row, tokens)
        self.places = places

    def attend_heads(self, first: Any, stop: Any) -> None:
        """Over the row's keys, under key heads `first` to `stop - 1`."""
        self._note_limits()
        for head in emit.loop(first, stop):
            self.head, self.heads = head, 1
            self._clear(self.block, self.queries)
            self._put_queries(self.block)
            start = emit.as_index(self._hidden(self.position)) // PAIR * PAIR
            self._attend(self.block, start, self._stop)
            self._write(0, 0)

    def begin(self, some: Any) -> None:
        """Puts the queries of a token on the stack, if it has `some` keys here."""
        with emit.when(some):
            self._note_limits()
            for head in emit.loop(0, self.places.key_heads):
                self.head = head
                self._put_queries(self._under(head))

    def attend_to(self, head: Any, start: Any, stop: Any, sums: Callable[[], Any]) -> bool:
        """Over the keys from `start` to `stop - 1`; whether sums, zeros before, lie at `sums()`.

        They do where the queries are whole tiles.
        """
        block, in_place = self._under(head), self.group % TILE_ROWS == 0
        self.head, self.heads = head, 1
        if in_place:
            block = replace(block, total=sums())
        self._clear(block, self.group, with_sums=not in_place)
        self._attend(block, start, stop)
        return in_place

    @property
    def _stop(self) -> Any:
        """Where the keys end that the piece sees."""
        return self._visible(self.position + self.count - 1)

    def _under(self, head: Any) -> Block:
        """The block with the queries of a head of a token, all of whose heads are there."""
        query = head * (_padded(self.group) * self.block.depth)
        return replace(self.block, query=memory.at(self.block.query, query, self.block.word))

    def _clear(self, block: Block, count: Size, with_sums: bool = True) -> None:
        """No key was seen by so many queries, in whole tiles."""
        for r in emit.loop(0, count, TILE_ROWS):
            block.put(block.fill(-math.inf), block.top, r)
            block.put(block.fill(0), block.weight, r)
            for place in emit.loop(0, TILE_ROWS * block.across if with_sums else 0, block.lanes):
                block.put(block.fill(0), block.total, r * block.across + place)

    def _note_limits(self) -> None:
        """Notes which keys each query sees; those behind the last one see what it sees."""
        for r in emit.loop(0, sizes.ceildiv(self.queries, PAIR) * PAIR):
            low, high = self.seen(sizes.least(r // self.group, self.count - 1))
            self.places.limits.put(r, low, high)

    def _put_queries(self, block: Block) -> None:
        put_queries(self.frame, block, self.queries, partial(self._query_start, 0))

    def _attend(self, block: Block, start: Any, stop: Any) -> None:
        """Brings the sums of all queries forward, and asks for the keys behind a block meanwhile.

        Also for those behind `stop`, as they are mostly worked on next.
        """
        places, limits = self.places, self.places.limits
        places.find(self.row, start, stop, emit.index(0))
        for first in emit.loop(start, stop, KEYS):
            turn, present = (first - start) // KEYS, sizes.least(emit.index(KEYS), stop - first)
            behind = first + present
            places.find(self.row, behind, self._stop, turn + 1)
            put_keys(self.frame, block, places.sides, present, partial(self._key_at, turn))
            for top in emit.loop(0, self.queries, PAIR):
                opened, closed = limits.ends(top, top + (PAIR - 1))
                seen = sizes.least(closed - first, present)
                some = compare("greater", seen, 0) & compare("less", opened, behind)

                with emit.when(some):
                    many = compare("greater", self.queries - top, TILE_ROWS)
                    of = partial(
                        Strip, block, places.sides, places.shares, limits, top, first, seen
                    )
                    strips = [partial(self._attend_strip, of(n), turn, behind) for n in (2, 1)]
                    emit.either(many, [], *strips)

    def _attend_strip(self, strip: Strip, turn: Any, behind: Any) -> list[Any]:
        strip.attend(self._asks(strip, turn + 1, behind))
        return []

    def _asks(self, strip: Strip, turn: Any, first: Any) -> Callable[[Any], None]:
        """What asks for the strip's share of the keys from `first` on, in each of its steps."""
        keys = sizes.least(emit.index(KEYS), self._stop - first)
        each = sizes.ceildiv(keys, sizes.ceildiv(self.queries, PAIR))
        share = sizes.ceildiv(each << FRACTION, strip.score_steps + strip.sum_steps)
        base = strip.row // PAIR * each
        given = [llvm.ptrtoint(emit.integer(64), self.frame.inputs[n]) for n in (1, 2)]
        apart = compare("not_equal", *given)

        def due(step: Any) -> None:
            start, stop = (base + ((step + n) * share >> FRACTION) for n in range(2))
            for number in emit.loop(start, sizes.least(stop, keys)):
                at = self._key_at(turn, number)
                ask(self.frame, 1, at, level=2)
                with emit.when(apart):
                    ask(self.frame, 2, at, level=2)

        return due

    def _key_at(self, turn: Any, number: Any) -> Any:
        return self.places.start(turn, number) + self.head * self.block.size


def _padded(group: int) -> int:
    """Queries of a key head in whole tiles."""
    return -(-group // TILE_ROWS) * TILE_ROWS
