"""softmax(q k^T scale) v of ragged rows, in the flash manner (arXiv:2205.14135).

A task is one token under one key head. Done together are neighbouring tokens of a row under one
head, or the heads of one token: their keys lie side by side, and memory gives them up to twice as
fast as those of one head. Each block of keys, then of values, is widened once to float32 on the
stack, where the register tiles of all queries read it, while the next block is fetched.
Sums of a query have one order, whichever queries are worked on beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, rows, sizes, vector_math
from heddle.kernels.cpu._ragged_block import CHUNK, COLUMNS, KEYS, Block, head_size
from heddle.kernels.cpu._tile import add_products
from heddle.kernels.emit import select
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import Keys, RowSpans
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, product


def emit_ragged(
    spec: Spec, machine: Machine, keys_of: Callable[[host.Frame], Keys], offsets: int = 3
) -> None:
    """Emits the loop over tasks; operand `offsets` holds where the queries of each row begin."""
    frame = host.frame(spec, machine, checks=True)
    block = Block.make(frame)
    keys = keys_of(frame)
    heads = emit.as_index(frame.size(spec.operands[1].shape[-2]))
    spans = RowSpans(frame, report, offsets, frame.size(spec.operands[0].shape[0]))

    def step(task: Any, following: Any) -> list[Any]:
        def work() -> list[Any]:
            token, head = task // heads, task % heads
            row, stop = spans.find(token)
            position = keys.length(row) - (stop - token)
            left = frame.last - task
            # Tokens are done together where all of their heads are to be done.
            whole = select(emit.compare("equal", head, 0), left // heads, 0)
            count = sizes.least(sizes.least(stop - token, block.tokens), whole)
            count = sizes.greatest(count, 1)
            end = sizes.least(head + left, heads)
            several = select(emit.compare("equal", count, 1), emit.index(block.heads), 1)
            for first in emit.loop(head, end, several):
                together = sizes.least(several, end - first)
                part = _Part(frame, block, keys, row, (token, count), (first, together))
                part.attend(position, position + (stop - token))
            return [task + count * (end - head)]

        due = emit.compare("equal", task, following)
        return emit.either(due, [emit.integer(64)], work, lambda: [following])

    emit.carry(frame.first, frame.last, 1, [frame.first], step)


def report(frame: host.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    for place, word in enumerate((emit.index(code), value, limit, before)):
        memory.store(word, frame.status, place, "int64")


class _Part:
    """Tokens of one row under key heads: one of either, or of both. Each is first and count."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        keys: Keys,
        row: Any,
        tokens: tuple[Any, Any],
        heads: tuple[Any, Any],
    ) -> None:
        self.frame, self.block, self.keys, self.row = frame, block, keys, row
        self.token, self.count = tokens
        self.head, self.heads = heads
        self.queries = self.count * block.group
        self.padded = sizes.ceildiv(self.queries, block.rows) * block.rows

    def attend(self, position: Any, length: Any) -> None:
        """Over blocks of the row's `length` keys; the first token is at `position` among them."""
        block = self.block
        self.position, self.length = position, length
        for head in emit.loop(0, self.heads):
            self._read_queries(head)
        stop = self._visible(position + self.count - 1)
        start = emit.as_index(self._hidden(position)) // KEYS * KEYS
        self._find(start, stop)
        for first in emit.loop(start, stop, KEYS):
            present = sizes.least(emit.index(KEYS), stop - first)
            self._find(first + KEYS, stop)
            for head in emit.loop(0, self.heads):
                base = head * self.padded
                self._widen(1, first, present, head)
                for top in emit.loop(0, self.padded, block.rows):
                    self._score(base, top, first, present, head)
                    self._exponentials(base, top, first, stop)
                self._widen(2, first, present, head)
                for top in emit.loop(0, self.padded, block.rows):
                    self._add_values(base, top, first, present, head)
        for head in emit.loop(0, self.heads):
            self._write(head)

    def _visible(self, position: Any) -> Any:
        """How many keys, from the first on, are not behind a query that is at `position`."""
        if not self.frame.spec.attr("causal"):
            return self.length
        return sizes.greatest(sizes.least(position + 1, self.length), 0)

    def _hidden(self, position: Any) -> Size:
        """How many keys are before the window of a query that is at `position`."""
        window = self.frame.spec.attr("window")
        return sizes.greatest(position + 1 - window, 0) if window else 0

    def _result_row(self, head: Any, query: Any) -> Any:
        """The row, of head size, of a query: those of a token follow one another."""
        heads, group = self.frame.size(self.frame.spec.operands[0].shape[1]), self.block.group
        token = self.token + query // group
        return token * heads + (self.head + head) * group + query % group

    def _read_queries(self, head: Any) -> None:
        """Puts the scaled queries on the stack and clears the sums."""
        block, spec = self.block, self.frame.spec
        dtype, scale = spec.operands[0].dtype, spec.attr("scale")
        base = head * self.padded
        for r in emit.loop(0, self.queries):
            start = self._result_row(head, r) * block.size
            for column, mask in host.vectors(0, block.size, block.lanes):
                value = memory.load(self.frame.inputs[0], start + column, dtype, block.lanes, mask)
                block.put(value * scale, block.query, (base + r) * block.width + column)
        # A tile's rows beyond the last query are computed on as well, and dropped.
        for r in emit.loop(base + self.queries, base + self.padded):
            for column in emit.loop(0, block.width, block.lanes):
                block.put(block.fill(0), block.query, r * block.width + column)
        lowest, zero = (emit.constant(emit.register_type("float32"), n) for n in (-math.inf, 0))
        for r in emit.loop(base, base + self.padded):
            block.put(lowest, block.top, r)
            block.put(zero, block.weight, r)
            for column in emit.loop(0, block.width, block.lanes):
                block.put(block.fill(0), block.total, r * block.width + column)

    def _find(self, first: Any, stop: Any) -> None:
        """Notes where the keys of the block from `first` on are, under the first head."""
        heads = self.frame.spec.operands[1].shape[-2]
        ring = first % (2 * KEYS)
        for number in emit.loop(0, sizes.least(emit.index(KEYS), stop - first)):
            place, _ = self.keys.place(self.row, first + number)
            place = (place * heads + self.head) * self.block.size
            memory.store(place, self.block.places, ring + number, "int64")

    def _widen(self, number: int, first: Any, present: Any, head: Any) -> None:
        """Puts the rows of operand `number` on the stack."""
        block, frame = self.block, self.frame
        dtype = frame.spec.operands[1].dtype
        for key in emit.loop(0, present):
            place = memory.load(block.places, first % (2 * KEYS) + key, "int64")
            place = place + head * block.size
            for column in range(0, block.width, block.lanes):
                rest = block.size - column
                mask = host.first_lanes(rest, block.lanes) if rest < block.lanes else None
                value = memory.load(frame.inputs[number], place + column, dtype, block.lanes, mask)
                block.put(value, block.key, key * block.width + column)

    def _fetch(self, number: int, first: Any, key: Any, head: Any) -> None:
        """Asks for a share of the block from `first` on: all heads of a key, then of the next."""
        dtype = self.frame.spec.operands[1].dtype
        piece = head * KEYS + key
        place = memory.load(self.block.places, first % (2 * KEYS) + piece // self.heads, "int64")
        place = place + piece % self.heads * self.block.size
        for column in range(0, self.block.size, 64 // emit.ITEM_SIZE[dtype]):
            memory.prefetch(self.frame.inputs[number], place + column, dtype, level=2)

    def _score(self, base: Any, top: Any, first: Any, present: Any, head: Any) -> None:
        """The products of a tile's queries with the keys; those beyond `present` are of no use."""
        block = self.block
        for key in emit.loop(0, present, CHUNK):
            with emit.when(emit.compare("equal", top, 0)):
                for number in range(CHUNK):
                    self._fetch(2, first + KEYS, key + number, head)

            def step(column: Any, *sums: Any, key: Any = key) -> list[Any]:
                queries = [
                    block.vector(block.query, (base + top + r) * block.width + column)
                    for r in range(block.rows)
                ]
                keys = [
                    block.vector(block.key, (key + n) * block.width + column) for n in range(CHUNK)
                ]
                pairs = [(query, other) for query in queries for other in keys]
                return [emit.fma(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]

            zeros = [block.fill(0)] * block.lanes
            sums = emit.carry(0, block.width, block.lanes, zeros, step)
            scores = crosslane.sums(sums)
            for r in range(block.rows):
                part = [r * CHUNK + n for n in range(CHUNK)]
                value = crosslane.shuffle(scores, scores, part)
                block.put(value, block.score, (top + r) * KEYS + key)

    def _exponentials(self, base: Any, top: Any, first: Any, stop: Any) -> None:
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
            before = block.scalar(block.top, base + query)
            after = emit.maximum(before, crosslane.across(greatest, emit.maximum))
            shift = select(emit.compare("equal", after, -math.inf), 0.0, after)
            total = block.fill(0)
            for column, score in zip(columns, scores, strict=True):
                share = vector_math.exp_falling(score - shift)
                block.put(share, block.score, query * KEYS + column)
                total = total + share
            fade = vector_math.exp_falling(before - shift)
            weight = block.scalar(block.weight, base + query)
            weight = emit.fma(weight, fade, crosslane.across(total, rows.add))
            block.put(after, block.top, base + query)
            block.put(weight, block.weight, base + query)
            block.put(fade, block.fade, base + query)

    def _add_values(self, base: Any, top: Any, first: Any, present: Any, head: Any) -> None:
        """Adds a tile's exponentials times the values to its sums."""
        block = self.block
        part = COLUMNS * block.lanes
        for start in range(0, block.width, part):
            columns = range(start, min(start + part, block.width), block.lanes)

            def share_at(r: int, k: Any) -> Any:
                share = block.scalar(block.score, (top + r) * KEYS + k)
                return emit.splat(share, block.lanes)

            def values_at(k: Any, columns: range = columns) -> list[Any]:
                if columns.start == 0:
                    with emit.when(emit.compare("equal", top, 0)):
                        self._fetch(1, first + KEYS, k, head)
                return [block.vector(block.key, k * block.width + column) for column in columns]

            places = [
                (base + top + r, (base + top + r) * block.width + column)
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


def launch(spec: Spec, keys: Expr) -> Launch:
    """One task for each token and key head; a token may see all `keys`."""
    tokens, heads, _ = spec.operands[0].shape
    work = product((tokens, heads, keys, 4 * head_size(spec) + 20))
    return Launch((product((tokens, spec.operands[1].shape[-2])), 1, 1), work)
