"""softmax(q k^T scale) v of ragged rows, in the flash manner (arXiv:2205.14135).

A task is one token under one key head; those of neighbouring tokens of a row are done together,
with all query heads that share the keys. Each block of keys, then of values, is widened once to
float32 on the stack, where the register tiles of all queries read it, while later ones are fetched.
Sums of a query have one order, whichever queries are worked on beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, rows, sizes, vector_math
from heddle.kernels.cpu._tile import add_products
from heddle.kernels.emit import select
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, product

KEYS = 32
"""Keys of a block."""

AHEAD = 2 * KEYS
"""How many keys ahead of the work memory is asked for."""

RING = 4 * KEYS
"""Keys whose places are known."""

QUERIES = 2**12
"""Most elements of the queries that are worked on together, beyond those of one token."""

_CHUNK = 4
"""Keys of a tile of scores; its queries are what fills a register with them."""

_COLUMNS = 4
"""Vectors of a tile of values."""


@dataclass(frozen=True)
class Block:
    """Sizes of what is worked on together, and its places on the stack, all in float32.

    `query` and `total` are [queries, width], `key` is [KEYS, width], `score` is [queries, KEYS];
    `top`, `weight` and `fade` hold, for each query, the greatest score, the sum of exponentials,
    and what the last block's greatest score scales the sums by. `places` are the elements at which
    the keys of this block and the next start.
    """

    lanes: int
    rows: int
    tokens: int
    group: int
    size: int
    width: int
    query: Any
    total: Any
    key: Any
    score: Any
    top: Any
    weight: Any
    fade: Any
    places: Any

    @staticmethod
    def make(frame: host.Frame) -> Block:
        """The block of a kernel, at the start of its function."""
        lanes = host.lanes_for(frame.machine, ["float32"])
        size, group = head_size(frame.spec), group_of(frame.spec)
        width, tile = -(-size // lanes) * lanes, lanes // _CHUNK
        tokens = max(1, QUERIES // (group * width))
        queries = -(-tokens * group // tile) * tile
        elements = [queries * width, queries * width, KEYS * width, queries * KEYS, *[queries] * 3]
        places = [host.byte_buffer(4 * count) for count in elements]
        ring = host.byte_buffer(8 * RING)
        for number in range(RING):
            memory.store(emit.index(0), ring, number, "int64")
        return Block(lanes, tile, tokens, group, size, width, *places, places=ring)

    def vector(self, base: Any, offset: Any) -> Any:
        """A vector of the stack."""
        return memory.load(base, offset, "float32", self.lanes)

    def scalar(self, base: Any, offset: Any) -> Any:
        """An element of the stack."""
        return memory.load(base, offset, "float32")

    def put(self, value: Any, base: Any, offset: Any) -> None:
        """Writes to the stack."""
        memory.store(value, base, offset, "float32")

    def fill(self, number: float) -> Any:
        """A vector of one number."""
        return emit.constant(emit.register_type("float32"), number, self.lanes)


def emit_ragged(
    spec: Spec, machine: Machine, keys_of: Callable[[host.Frame], Keys], offsets: int = 3
) -> None:
    """Emits the loop over tasks; operand `offsets` holds where the queries of each row begin."""
    frame = host.frame(spec, machine, checks=True)
    block = Block.make(frame)
    keys = keys_of(frame)
    tokens = emit.as_index(frame.size(spec.operands[0].shape[0]))
    spans = RowSpans(frame, report, offsets, tokens)

    def step(task: Any, following: Any) -> list[Any]:
        def work() -> list[Any]:
            head, token = task // tokens, task % tokens
            row, stop = spans.find(token)
            count = sizes.least(sizes.least(stop - token, block.tokens), frame.last - task)
            _Rows(frame, block, keys, (row, stop), head, token, count).attend()
            return [task + count]

        due = emit.compare("equal", task, following)
        return emit.either(due, [emit.integer(64)], work, lambda: [following])

    emit.carry(frame.first, frame.last, 1, [frame.first], step)


def report(frame: host.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    for place, word in enumerate((emit.index(code), value, limit, before)):
        memory.store(word, frame.status, place, "int64")


class _Rows:
    """`count` tokens of one row under one key head: their queries, and the blocks of keys."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        keys: Keys,
        span: tuple[Any, Any],
        head: Any,
        token: Any,
        count: Any,
    ) -> None:
        self.frame, self.block, self.keys = frame, block, keys
        (self.row, stop), self.head, self.token = span, head, token
        self.queries = count * block.group
        self.padded = sizes.ceildiv(self.queries, block.rows) * block.rows
        self.length = keys.length(self.row)
        # The token's place among the keys, and that of the last one.
        self.position = self.length - (stop - token)
        self.last = self.position + count - 1

    def attend(self) -> None:
        block = self.block
        self._read_queries()
        stop = self._visible(self.last)
        start = emit.as_index(self._hidden(self.position)) // KEYS * KEYS
        for first in range(0, AHEAD, KEYS):
            self._find(start + first, stop)
        for first in emit.loop(start, stop, KEYS):
            present = sizes.least(emit.index(KEYS), stop - first)
            self._find(first + AHEAD, stop)
            self._widen(1, first, present)
            for top in emit.loop(0, self.padded, block.rows):
                self._score(top, first, present)
                self._exponentials(top, first, stop)
            self._widen(2, first, present)
            for top in emit.loop(0, self.padded, block.rows):
                self._add_values(top, first, present)
        self._write()

    def _visible(self, position: Any) -> Any:
        """How many keys, from the first on, are not behind a query that is at `position`."""
        if not self.frame.spec.attr("causal"):
            return self.length
        return sizes.greatest(sizes.least(position + 1, self.length), 0)

    def _hidden(self, position: Any) -> Size:
        """How many keys are before the window of a query that is at `position`."""
        window = self.frame.spec.attr("window")
        return sizes.greatest(position + 1 - window, 0) if window else 0

    def _result_row(self, query: Any) -> Any:
        """The row, of head size, of a query: those of a token follow one another."""
        heads, group = self.frame.size(self.frame.spec.operands[0].shape[1]), self.block.group
        return self.token * heads + self.head * group + query // group * (heads - group) + query

    def _read_queries(self) -> None:
        """Puts the scaled queries on the stack and clears the sums."""
        block, spec = self.block, self.frame.spec
        for r in emit.loop(0, self.queries):
            start = self._result_row(r) * block.size
            for column, mask in host.vectors(0, block.size, block.lanes):
                value = memory.load(
                    self.frame.inputs[0],
                    start + column,
                    spec.operands[0].dtype,
                    block.lanes,
                    mask,
                )
                block.put(value * spec.attr("scale"), block.query, r * block.width + column)
        # A tile's rows beyond the last query are computed on as well, and dropped.
        for r in emit.loop(self.queries, self.padded):
            for column in emit.loop(0, block.width, block.lanes):
                block.put(block.fill(0), block.query, r * block.width + column)
        lowest, zero = (emit.constant(emit.register_type("float32"), n) for n in (-math.inf, 0))
        for r in emit.loop(0, self.padded):
            block.put(lowest, block.top, r)
            block.put(zero, block.weight, r)
            for column in emit.loop(0, block.width, block.lanes):
                block.put(block.fill(0), block.total, r * block.width + column)

    def _find(self, first: Any, stop: Any) -> None:
        """Notes where the keys of the block from `first` on are."""
        heads = self.frame.spec.operands[1].shape[-2]
        ring = first % RING
        for number in emit.loop(0, sizes.least(emit.index(KEYS), stop - first)):
            place, _ = self.keys.place(self.row, first + number)
            place = (place * heads + self.head) * self.block.size
            memory.store(place, self.block.places, ring + number, "int64")

    def _widen(self, number: int, first: Any, present: Any) -> None:
        """Puts the rows of operand `number` on the stack."""
        block, frame = self.block, self.frame
        dtype = frame.spec.operands[1].dtype
        for key in emit.loop(0, present):
            place = memory.load(block.places, first % RING + key, "int64")
            for column in range(0, block.width, block.lanes):
                rest = block.size - column
                mask = host.first_lanes(rest, block.lanes) if rest < block.lanes else None
                value = memory.load(frame.inputs[number], place + column, dtype, block.lanes, mask)
                block.put(value, block.key, key * block.width + column)

    def _fetch(self, number: int, first: Any, key: Any, top: Any) -> None:
        """Asks for a row of operand `number` while the first tile is worked on."""
        dtype = self.frame.spec.operands[1].dtype
        with emit.when(emit.compare("equal", top, 0)):
            place = memory.load(self.block.places, first % RING + key, "int64")
            for column in range(0, self.block.size, 64 // emit.ITEM_SIZE[dtype]):
                memory.prefetch(self.frame.inputs[number], place + column, dtype, level=2)

    def _score(self, top: Any, first: Any, present: Any) -> None:
        """The products of a tile's queries with the keys; those beyond `present` are of no use."""
        block = self.block
        for key in emit.loop(0, present, _CHUNK):
            for number in range(_CHUNK):
                self._fetch(2, first + AHEAD, key + number, top)

            def step(column: Any, *sums: Any, key: Any = key) -> list[Any]:
                queries = [
                    block.vector(block.query, (top + r) * block.width + column)
                    for r in range(block.rows)
                ]
                keys = [
                    block.vector(block.key, (key + n) * block.width + column) for n in range(_CHUNK)
                ]
                pairs = [(query, other) for query in queries for other in keys]
                return [emit.fma(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]

            zeros = [block.fill(0)] * block.lanes
            sums = emit.carry(0, block.width, block.lanes, zeros, step)
            scores = crosslane.sums(sums)
            for r in range(block.rows):
                part = [r * _CHUNK + n for n in range(_CHUNK)]
                value = crosslane.shuffle(scores, scores, part)
                block.put(value, block.score, (top + r) * KEYS + key)

    def _exponentials(self, top: Any, first: Any, stop: Any) -> None:
        """Turns a tile's scores into exponentials and brings its queries' statistics forward."""
        block = self.block
        columns = range(0, KEYS, block.lanes)
        for r in range(block.rows):
            query = top + r
            position = self.position + query // block.group
            visible = sizes.least(self._visible(position), stop) - first
            hidden = self._hidden(position)
            scores = []
            for column in columns:
                seen = host.first_lanes(visible - column, block.lanes)
                if not isinstance(hidden, int):
                    before = host.first_lanes(hidden - first - column, block.lanes)
                    seen = seen & (before ^ True)
                score = block.vector(block.score, query * KEYS + column)
                scores.append(select(seen, score, -math.inf))
            greatest = scores[0]
            for score in scores[1:]:
                greatest = emit.maximum(greatest, score)
            before = block.scalar(block.top, query)
            after = emit.maximum(before, crosslane.across(greatest, emit.maximum))
            shift = select(emit.compare("equal", after, -math.inf), 0.0, after)
            total = block.fill(0)
            for column, score in zip(columns, scores, strict=True):
                share = vector_math.exp_falling(score - shift)
                block.put(share, block.score, query * KEYS + column)
                total = total + share
            fade = vector_math.exp_falling(before - shift)
            weight = block.scalar(block.weight, query)
            weight = emit.fma(weight, fade, crosslane.across(total, rows.add))
            block.put(after, block.top, query)
            block.put(weight, block.weight, query)
            block.put(fade, block.fade, query)

    def _add_values(self, top: Any, first: Any, present: Any) -> None:
        """Adds a tile's exponentials times the values to its sums."""
        block = self.block
        part = _COLUMNS * block.lanes
        for start in range(0, block.width, part):
            columns = range(start, min(start + part, block.width), block.lanes)

            def share_at(r: int, k: Any) -> Any:
                share = block.scalar(block.score, (top + r) * KEYS + k)
                return emit.splat(share, block.lanes)

            def values_at(k: Any, columns: range = columns) -> list[Any]:
                if columns.start == 0:
                    self._fetch(1, first + AHEAD, k, top)
                return [block.vector(block.key, k * block.width + column) for column in columns]

            places = [
                (top + r, (top + r) * block.width + column)
                for r in range(block.rows)
                for column in columns
            ]
            sums = [
                block.vector(block.total, place)
                * emit.splat(block.scalar(block.fade, r), block.lanes)
                for r, place in places
            ]
            sums = add_products(sums, 0, present, share_at, values_at)
            for value, (_, place) in zip(sums, places, strict=True):
                block.put(value, block.total, place)

    def _write(self) -> None:
        block = self.block
        finish = rows.Finish(self.frame, block.lanes)
        for r in emit.loop(0, self.queries):
            weight = block.scalar(block.weight, r)
            share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
            out_at = finish.row(self._result_row(r))
            for column, mask in host.vectors(0, block.size, block.lanes):
                out_at(column, mask, block.vector(block.total, r * block.width + column) * share)


def head_size(spec: Spec) -> int:
    """The head size, static."""
    size = spec.operands[0].shape[2]
    assert isinstance(size, int)
    return size


def launch(spec: Spec, keys: Expr) -> Launch:
    """One task for each token and key head; a token may see all `keys`."""
    tokens, heads, _ = spec.operands[0].shape
    work = product((tokens, heads, keys, 4 * head_size(spec) + 20))
    return Launch((product((tokens, spec.operands[1].shape[-2])), 1, 1), work)
