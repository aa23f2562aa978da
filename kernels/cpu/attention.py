"""softmax(q k^T scale + mask) v without the matrix of scores (arXiv:2205.14135).

A task is a block of queries of the heads that share one of keys. It walks over blocks of keys: puts
them on the stack with keys in the lanes and their values beside them, and for each few queries
makes scores, their exponentials relative to the greatest one so far, and adds the values. All of it
is done in register tiles like a matmul's, with at most 500 KiB of stack, of which a tile works on
48.

Scores are in units of ln(2), so that their exponentials are powers of two, but not where a mask is
added: the least number of a type is a mask, too, and would be -inf. Where the machine has dot
products of pairs of bfloat16, both products of that dtype are made of them, or in tiles where
it has those, and exponentials are rounded to it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu import _amx_attention
from heddle.kernels.cpu import _attention_tile as tile
from heddle.kernels.cpu._attention_asks import Asks, Queries
from heddle.kernels.cpu._attention_block import TILED_KEYS, Block, Seen
from heddle.kernels.cpu._attention_cut import (
    fills_tiles,
    group_of,
    key_block,
    ordered,
    query_block,
    row_bytes,
    row_of,
    uses,
)
from heddle.kernels.cpu._attention_reads import copy_values, read_queries, turn_keys
from heddle.kernels.cpu._histogram import any_lane
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

arith, vector = dialect("arith"), dialect("vector")


def launch(spec: Spec) -> Launch:
    """One task for each block of queries of each head of keys and batch."""
    batch, heads, queries, size = ordered(spec, 0)
    keys, group = ordered(spec, 1)[2], group_of(spec)
    blocks = fold("ceildiv", fold("mul", queries, group), query_block(spec))
    each = fold("mul", keys, fold("add", fold("mul", size, 4), 20))
    work = product((batch, heads, queries, each))
    return Launch((product((batch, fold("floordiv", heads, group), blocks)), 1, 1), work)


def emit_attention(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    tiled = machine.tiles and fills_tiles(spec)
    keys = TILED_KEYS if tiled else key_block(spec)
    block = Block.make(spec, machine, query_block(spec), keys, tiled)
    batch, heads, queries, _ = (frame.size(extent) for extent in ordered(spec, 0))
    group = group_of(spec)
    blocks = sizes.ceildiv(queries * group, block.queries)
    for task in emit.loop(frame.first, frame.last):
        numbers = (
            sizes.split(task + further, (batch, sizes.floordiv(heads, group), blocks))
            for further in (0, 1)
        )
        query, after = (
            Queries(group, item, shared * group, part * block.queries)
            for item, shared, part in numbers
        )
        _attend(frame, block, query, after)


def _attend(frame: host.Frame, block: Block, query: Queries, after: Queries) -> None:
    """One task, and what the one `after` it will read is asked for."""
    spec = frame.spec
    queries, keys = (frame.size(ordered(spec, number)[2]) for number in (0, 1))
    count = sizes.least(emit.index(block.queries), queries * query.group - query.first)
    last_key = keys
    if spec.attr("causal"):
        behind = query.position(count - 1) + 1 + (keys - queries)
        last_key = sizes.greatest(sizes.least(behind, keys), 0)
    tiled = sizes.ceildiv(count, block.rows) * block.rows
    (_amx_attention if block.tiled else tile).clear(block, 0, tiled)
    read_queries(
        frame, block, 0, count, tiled, lambda r: row_of(frame, 0, *query.place(r)) * block.size
    )

    def first_key(query: Queries) -> Size:
        if not spec.attr("window"):
            return 0
        opened = query.position(0) + (keys - queries) + 1 - spec.attr("window")
        return sizes.greatest(opened, 0) // block.keys * block.keys

    def put_keys(part: Block, key: Any) -> Any:
        """Puts the keys and values of a block from `key` on on the stack; how many there are."""

        def start_of(number: int, r: Any) -> Any:
            return row_of(frame, number, query.item, query.head, key + r) * block.size

        present = sizes.least(emit.index(block.keys), last_key - key)
        turn_keys(frame, part, present, partial(start_of, 1))
        copy_values(frame, part, present, partial(start_of, 2))
        return present

    together = block.keys * block.parts
    for key in emit.loop(first_key(query), last_key, together):

        def seen_at(top: Any, number: Any = 0, parts: int = 1, key: Any = key) -> Seen:
            start = key + number * block.keys
            present = sizes.least(emit.index(block.keys * parts), last_key - start)
            return _Tile(frame, block, query, top, start, present).seen()

        there = sizes.least(emit.index(together), last_key - key)
        if block.tiled:
            for number in emit.loop(0, sizes.ceildiv(there, block.keys)):
                part = block.part(number)
                _amx_attention.clear_values(part, put_keys(part, key + number * block.keys))
        else:
            put_keys(block, key)
        more = emit.compare("less", key + together, last_key)
        source = [
            select(more, emit.as_index(own), emit.as_index(other))
            for own, other in (
                (query.item, after.item),
                (query.head, after.head),
                (key + together, first_key(after)),
            )
        ]
        asks = Asks(frame, block, there, count, query, after, source)
        if block.tiled:
            span_at = partial(seen_at, parts=block.parts)
            _amx_attention.attend(block, 0, count, span_at, seen_at, asks.beside_strip)
        else:
            for top in emit.loop(0, count, block.rows):
                tile.attend(block, top, seen_at(top), *asks.beside(top))
    finish = rows.Finish(frame, block.lanes)
    for r in emit.loop(0, count):
        weight = block.weight_at(r)
        share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
        out_at = finish.row(row_of(frame, 0, *query.place(r)))
        for column, mask in host.vectors(0, block.size, block.lanes):
            out_at(column, mask, block.vector(block.total, r * block.across + column) * share)


class _Tile:
    """The queries from `top` on of a task's by the block of keys from `key` on."""

    def __init__(
        self, frame: host.Frame, block: Block, query: Queries, top: Any, key: Any, present: Any
    ) -> None:
        self.frame, self.block, self.query, self.top = frame, block, query, top
        self.key, self.present = key, present
        self.queries, self.keys = (frame.size(ordered(frame.spec, n)[2]) for n in (0, 1))

    def seen(self) -> Seen:
        """The keys that the queries attend to."""
        block, last = self.block, self.block.rows - 1
        stop = self._visible(last)
        whole = emit.compare("equal", sizes.mod(stop, block.pair * block.lanes), 0)
        if self.frame.spec.attr("causal"):
            whole = whole & emit.compare("equal", self._visible(0), stop)
        start: Size = 0
        if self.frame.spec.attr("window"):
            whole = whole & emit.compare("less_equal", self._hidden(last), 0)
            start = sizes.greatest(self._hidden(0), 0)
        return Seen(start, stop, whole, self._finished, self._changed())

    def _changed(self) -> Any:
        """Whether the mask may change scores: where it is one for all queries, it is looked at."""
        block, spec = self.block, self.frame.spec
        if not spec.attr("masked") or not block.tiled:
            return bool(spec.attr("masked"))
        heads, queries = ((1,) * 4 + spec.operands[3].shape)[-3:-1]
        if block.mask != "bool" or (heads, queries) != (1, 1):
            return emit.constant(emit.integer(1), 1)
        place, changed = self.query.place(self._row(0)), emit.constant(emit.integer(1), 0)
        for column in range(0, block.keys, block.lanes):
            there = host.first_lanes(self.present - column, block.lanes)
            key = self.key + column
            score = _apply_mask(self.frame, block, block.fill(0), place, key, there)
            changed = changed | any_lane(emit.compare("less", score, 0.0))
        return changed

    def _behind(self, r: Any) -> Any:
        """How many keys there are from the block on to the one at row r's position."""
        position = self.query.place(self._row(r))[2]
        return position + (self.keys - self.queries) + 1 - self.key

    def _row(self, r: Any) -> Any:
        """Which of the task's queries row `r` is: beyond all queries the last of them."""
        last = self.queries * self.query.group - 1 - self.query.first
        return sizes.least(self.top + r, last)

    def _visible(self, r: Any) -> Any:
        """How many keys of the block row `r` attends to."""
        if not self.frame.spec.attr("causal"):
            return self.present
        return sizes.greatest(sizes.least(self._behind(r), self.present), 0)

    def _hidden(self, r: Any) -> Any:
        """How many keys of the block are before the window of row `r`; may be negative."""
        return self._behind(r) - self.frame.spec.attr("window")

    def _finished(self, r: Any, column: Any, score: Any, partial: bool) -> Any:
        spec, block = self.frame.spec, self.block
        visible = host.first_lanes(self._visible(r) - column, block.lanes) if partial else None
        if partial and spec.attr("window"):
            before = host.first_lanes(self._hidden(r) - column, block.lanes)
            visible = visible & (before ^ True)
        score = score if block.late else score * block.scale
        place = self.query.place(self._row(r))
        score = _apply_mask(self.frame, block, score, place, self.key + column, visible)
        return select(visible, score, -math.inf) if partial else score


def _apply_mask(
    frame: host.Frame, block: Block, score: Any, place: tuple[Size, ...], key: Any, lanes: Any
) -> Any:
    """The scores from `key` on under the mask operand, which broadcasts along any axis."""
    if not frame.spec.attr("masked"):
        return score
    operand, pointer = frame.spec.operands[3], frame.inputs[3]
    extents = (1,) * (4 - len(operand.shape)) + operand.shape
    offset, stride = emit.index(0), emit.index(1)
    for extent, coordinate in reversed(list(zip(extents, (*place, key), strict=True))):
        if extent != 1:
            offset = offset + stride * coordinate
            stride = stride * frame.size(extent)
    if extents[-1] == 1:
        value = emit.splat(memory.load(pointer, offset, operand.dtype), block.lanes)
    else:
        value = memory.load(pointer, offset, operand.dtype, block.lanes, lanes)
    if operand.dtype == "bool":
        return select(value, score, -math.inf)
    return score + value


def supports(spec: Spec) -> str | None:
    """Floats with a static head size of up to 1 KiB, without a prologue."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"wanted floats, got {spec.operands[0].dtype}"
    size = spec.operands[0].shape[-1]
    if not isinstance(size, int) or row_bytes(spec) > 2**10:
        return f"wanted a static head size of at most 1 KiB, got {size}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("attention", "cpu", emit_attention, launch, supports, uses=uses)
