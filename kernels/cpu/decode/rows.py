"""Attention of a row that decodes: few tokens, whose time is that of reading their keys and values.

All heads are done together, in the order of memory. While the values of a step of keys are added,
the products with the keys of the next one are taken: so two streams of memory are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from heddle.kernels import convert, emit, host, memory, sizes
from heddle.kernels.cpu.amx import decode as in_tiles
from heddle.kernels.cpu.decode import avx2, crowd, tile
from heddle.kernels.cpu.decode import sums as decode_sums
from heddle.kernels.cpu.decode.block import Tiles
from heddle.kernels.cpu.decode.parts import STEP, most_parts, part_size, share, sums
from heddle.kernels.cpu.decode.places import Places
from heddle.kernels.cpu.decode.tile import Ask
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.cut import key_block, uses
from heddle.kernels.cpu.flash.ragged_part import Part
from heddle.kernels.cpu.flash.reads import read_queries
from heddle.kernels.cpu.flash.wide_part import WidePart
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import Keys
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr

arith, llvm = dialect("arith"), dialect("llvm")

FETCHED = 2**14
"""Bytes of keys, and of values, from what is worked on to what is asked for."""

BROUGHT = FETCHED // 2
"""The same to what the first cache is asked for, where the second one is asked before it."""


@dataclass(frozen=True)
class Decode:
    """What decoding needs, at the start of the kernel's function.

    `parts` are the most of a row, 1 where they are not shared out; `limits` the keys that each
    token sees; `part` the sums of a part that is not in the workspace, `total` those of a row's
    tokens.
    """

    frame: host.Frame
    tiles: Tiles
    parts: Size
    places: Places
    limits: Any
    part: Any
    total: Any

    @staticmethod
    def make(frame: host.Frame, block: Block, keys: Keys, seen: Expr) -> Decode:
        """Of a kernel whose tokens may see `seen` keys."""
        spec, tiles = frame.spec, Tiles.make(frame, block)
        numbers = tiles.tokens * sums(spec)
        places = Places.make(keys, tiles.key_heads * block.size)
        limits, part, total = map(host.byte_buffer, (16 * tiles.tokens, *(4 * numbers,) * 2))
        parts = frame.size(most_parts(spec, seen))
        return Decode(frame, tiles, parts, places, limits, part, total)

    def attend(
        self, row: Any, tokens: tuple[Any, Any], piece: Part | WidePart, slots: tuple[Any, Any]
    ) -> None:
        """Tokens of a row, first and count: the parts of some slots; the result if they are last.

        They are those of `piece`. Where parts are not shared out, slot 0 has them all.
        """
        token, count = tokens
        seen, crowded, step = piece.seen, self.tiles.crowded, STEP
        start, (_, stop) = seen(emit.index(0))[0], seen(count - 1)
        if crowded:
            step = key_block(self.frame.spec)
        if crowded or self._in_blocks:
            start = start // step * step
        length = sizes.greatest(stop - start, 0)
        size = part_size(length, step)
        parts = sizes.ceildiv(length, size)
        first, last = slots
        own = emit.compare("equal", first, 0)
        shared = emit.compare("greater", emit.as_index(self.parts), 1)
        all_slots = sizes.greatest(self.tiles.key_heads, self.parts)
        from_shared, to_shared = share(first, last, all_slots, parts)
        from_part = select(shared, from_shared, 0)
        to_part = select(shared, to_shared, select(own, parts, 0))
        some = emit.compare("less", from_part, to_part)
        here = (some & (shared ^ True)) | (emit.compare("equal", parts, 0) & own)
        with emit.when(here):
            self._clear(count, self._totals)
        if crowded:
            piece.begin(some)
        else:
            with emit.when(some):
                self._prepare(token, count, seen)
        for number in emit.loop(from_part, to_part):
            sums_at = self._sums(token, number, shared)
            self._clear(count, sums_at)
            begin = start + number * size
            end = sizes.least(begin + size, stop)
            if crowded:
                for _, at in self._tokens(count, sums_at):
                    crowd.attend(self.tiles, piece, (begin, end), at)
            elif self.tiles.tiled:
                with host.called("decode"):
                    self._part_in_tiles(row, count, (begin, end, stop), sums_at)
            else:
                self._part(row, count, (begin, end, stop), sums_at)
            with emit.when(shared ^ True):
                self._join(count, sums_at)
        complete = here
        if self.frame.workspace is not None:
            arrived = partial(self._joined, token, count, to_part - from_part, parts)
            kind = [emit.integer(1)]
            (complete,) = emit.either(some & shared, kind, arrived, lambda: [here])
        with emit.when(complete):
            self._write(token, count)

    def _joined(self, token: Any, count: Any, done: Any, parts: Any) -> list[Any]:
        """Joins the parts if these were the last to be done; whether they were."""
        complete = self._arrive(token, done, parts)
        with emit.when(complete):
            self._clear(count, self._totals)
            for number in emit.loop(0, parts):
                self._join(count, self._sums(token, number, emit.constant(emit.integer(1), 1)))
        return [complete]

    def _arrive(self, token: Any, done: Any, parts: Any) -> Any:
        """Counts parts that are done; whether these are the last, of which all can now be read."""
        word = emit.integer(32)
        counter = memory.at(self.frame.counters, token, "int32")
        done, parts = (arith.trunci(word, value) for value in (done, parts))
        order = llvm.AtomicOrdering.acq_rel
        before = llvm.atomicrmw(llvm.AtomicBinOp.add, counter, done, order)
        complete = emit.compare("equal", before + done, parts)
        with emit.when(complete):
            memory.store(emit.constant(word, 0), counter, 0, "int32")
        return complete

    def _sums(self, token: Any, number: Any, shared: Any) -> tuple[Any, Any]:
        """Where the sums of a part are, and the numbers from one token's to the next one's."""
        own = self.tiles.token_sums
        if self.frame.workspace is None:
            return self.part, emit.index(own)
        place = (token * self.parts + number) * own
        held = memory.at(self.frame.workspace, place, "float32", inside=False)
        return select(shared, held, self.part), select(shared, emit.index(own) * self.parts, own)

    @property
    def _in_blocks(self) -> bool:
        """Whether steps that begin at multiples of them are each in one block, as tiles want it."""
        spec, block = self.frame.spec, self.frame.spec.operands[1].shape[1]
        paged = spec.op == "paged_attention" and isinstance(block, int) and block % STEP == 0
        return self.tiles.tiled and paged

    @property
    def _tile(self) -> ModuleType:
        """What computes scores, exponentials and sums."""
        return avx2 if self.tiles.halved else tile

    @property
    def _totals(self) -> tuple[Any, Any]:
        return self.total, self.tiles.token_sums

    def _tokens(self, count: Any, sums_at: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
        """Emits the Python body of a `for token, at in` this, `at` being where its sums are."""
        base, stride = sums_at
        for token in emit.loop(0, count):
            yield token, memory.at(base, token * stride, "float32")

    def _clear(self, count: Any, sums_at: tuple[Any, Any]) -> None:
        for _, at in self._tokens(count, sums_at):
            decode_sums.clear(self.tiles, at)

    def _join(self, count: Any, sums_at: tuple[Any, Any]) -> None:
        for token, at in self._tokens(count, sums_at):
            total = memory.at(self.total, token * self.tiles.token_sums, "float32")
            decode_sums.join(self.tiles, total, at)

    def _write(self, first: Any, count: Any) -> None:
        for token, at in self._tokens(count, self._totals):
            decode_sums.write(self.tiles, at, (first + token) * self.tiles.queries)

    def _prepare(self, token: Any, count: Any, seen: Callable[[Any], tuple[Any, Any]]) -> None:
        """Reads the queries, which follow one another, and notes what each token sees."""
        block = self.tiles.block
        heads = self.tiles.queries
        queries = count * heads

        def start_of(query: Any) -> Any:
            return (token * heads + query) * block.size

        if self.tiles.tiled:
            in_tiles.read_queries(self.tiles, token, count)
        elif self.tiles.halved:
            avx2.read_queries(self.tiles, token * heads, queries)
        else:
            read_queries(self.frame, block, 0, queries, queries, start_of)
        for number in emit.loop(0, count):
            for place, limit in enumerate(seen(number)):
                memory.store(emit.as_index(limit), self.limits, number * 2 + place, "int64")

    def _part(
        self,
        row: Any,
        count: Any,
        keys: tuple[Any, Any, Any],
        sums_at: tuple[Any, Any],
    ) -> None:
        """The keys of a part, from and to, and where those of the row end.

        Products are taken of one step, while the values of the step before it are added.
        """
        start, stop, end = keys
        steps = sizes.ceildiv(stop - start, STEP)
        self.places.find(row, start, end, 0)
        for number in emit.loop(0, steps + 1):
            place = number * STEP
            first = start + place
            scored, added = emit.compare("less", number, steps), emit.compare("greater", number, 0)
            self.places.find(row, first + STEP, end, place + STEP)
            with emit.when(added):
                self._exponentials(count, first - STEP, sums_at)
            for key in emit.loop(0, STEP, self.tiles.unit):
                with emit.when(scored):
                    self._scores(count, key, place)
                with emit.when(added):
                    self._add_values(count, key, place - STEP, sums_at)

    def _part_in_tiles(
        self,
        row: Any,
        count: Any,
        keys: tuple[Any, Any, Any],
        sums_at: tuple[Any, Any],
    ) -> None:
        """The same in AMX tiles."""
        start, stop, end = keys
        ahead = in_tiles.ahead(self.tiles) * STEP
        in_tiles.clear(self.tiles)
        for place in emit.loop(0, ahead, STEP):
            self.places.find(row, start + place, end, place)
        for first in emit.loop(start, stop, STEP):
            place = first - start
            self.places.find(row, first + ahead, end, place + ahead)
            step = in_tiles.Step(self.tiles, self.places, place, place + ahead)
            for token, at in self._tokens(count, sums_at):
                in_tiles.attend(step, token, at, self._seen(token, first))

    def _exponentials(self, count: Any, first: Any, sums_at: tuple[Any, Any]) -> None:
        for token, at in self._tokens(count, sums_at):
            self._tile.exponentials(self.tiles, token, at, self._seen(token, first))

    def _seen(self, token: Any, first: Any) -> tuple[Any, Any]:
        """The keys that a token sees, from and to, counted from `first` on."""
        low, high = (memory.load(self.limits, token * 2 + n, "int64") - first for n in range(2))
        return low, high

    def _scores(self, count: Any, first: Any, place: Any) -> None:
        """The products with a unit of keys, from `first` on of the step at a place."""
        for key in emit.loop(first, first + self.tiles.unit):
            start, ask = self.places.start(place + key), self._asking(place + key)
            for token in emit.loop(0, count):
                self._tile.scores(self.tiles, token, key, start, ask)

    def _add_values(self, count: Any, key: Any, place: Any, sums_at: tuple[Any, Any]) -> None:
        """Adds the values of a unit of keys."""
        starts = [self.places.start(place + key + one) for one in range(self.tiles.unit)]
        ask = self._asking(place + key)
        for token, at in self._tokens(count, sums_at):
            self._tile.add_values(self.tiles, token, key, starts, at, ask)

    def _asking(self, place: Any) -> Ask:
        """Asks for a line of a key that is `FETCHED` bytes behind the one at a place.

        `avx2` asks for each line twice, the first cache alone. A CPU with AMX is fastest where the
        second one is asked alone, but for 8 bits; kernels whose code differs there know of it.
        """
        spec = self.frame.spec
        alone = self.frame.machine.tiles and "tiles" in uses(spec)
        if self.tiles.halved:
            asks = [(1, self._distance(place, FETCHED))]
        elif alone and spec.operands[1].dtype not in convert.FLOAT8:
            asks = [(2, self._distance(place, FETCHED))]
        else:
            asks = [(1, self._distance(place, BROUGHT)), (2, self._distance(place, FETCHED))]

        def ask(number: int, element: Any) -> None:
            base, dtype = self.frame.inputs[number], spec.operands[number].dtype
            for level, distance in asks:
                memory.prefetch(base, element + distance, dtype, level)

        return ask

    def _distance(self, place: Any, nbytes: int) -> Any:
        """Elements from the key at a place to the one so many bytes behind it, or a few keys."""
        item = emit.ITEM_SIZE[self.frame.spec.operands[1].dtype]
        row = self.places.row * item
        ahead = min(STEP, max(4 * nbytes // FETCHED, nbytes // row))
        return self.places.start(place + ahead) - self.places.start(place)
