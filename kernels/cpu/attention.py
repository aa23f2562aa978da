"""softmax(q k^T scale + mask) v without the matrix of scores (arXiv:2205.14135).

A task is a block of queries of the heads that share one of keys. It walks over blocks of keys: puts
them on the stack with keys in the lanes and their values beside them, and for each few queries
makes scores, their exponentials relative to the greatest one so far, and adds the values. All of it
is done in register tiles like a matmul's, with at most 500 KiB of stack, of which a tile works on
48; float32 in AMX tiles takes up to 1.1 MiB.

Scores are in units of ln(2), so that their exponentials are powers of two, but not where a mask is
added: the least number of a type is a mask, too, and would be -inf. Where the machine has dot
products of pairs of bfloat16, both products of that dtype are made of them, or in tiles where
it has those, and exponentials are rounded to it; results that are denormal in it become zero (see
`_bfloat16.conversions`). Where it has tiles, float32 is split for them into three of
bfloat16, unless queries or keys are few.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, host, rows, sizes
from heddle.kernels.cpu.amx import attention, attention_parts
from heddle.kernels.cpu.amx.parts import PARTS
from heddle.kernels.cpu.flash import tile
from heddle.kernels.cpu.flash.asks import Asks, Queries
from heddle.kernels.cpu.flash.block import TILED_KEYS, Block, Seen
from heddle.kernels.cpu.flash.cut import (
    SPLIT_QUERIES,
    fills_tiles,
    group_of,
    key_block,
    least_split,
    ordered,
    pair_work,
    query_block,
    rounding,
    row_bytes,
    row_of,
    split_blocks,
    splits,
    uses,
)
from heddle.kernels.cpu.flash.seen import Tile
from heddle.kernels.cpu.flash.shares import inverse
from heddle.kernels.cpu.flash.splits import put_keys, put_queries
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

arith, vector = dialect("arith"), dialect("vector")


def launch(spec: Spec) -> Launch:
    """One task for each block of queries of each head of keys and batch."""
    return _launch(spec, fold("ceildiv", _queries(spec), query_block(spec)))


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """Where numbers are split for tiles, that of larger blocks."""
    return _launch(spec, split_blocks(spec)) if _is_split(spec, machine) else None


def _launch(spec: Spec, blocks: Expr) -> Launch:
    batch, heads, queries, _ = ordered(spec, 0)
    keys, group = ordered(spec, 1)[2], group_of(spec)
    work = product((batch, heads, queries, fold("mul", keys, pair_work(spec))))
    return Launch((product((batch, fold("floordiv", heads, group), blocks)), 1, 1), work)


def _is_split(spec: Spec, machine: Machine) -> bool:
    """Whether products are made in tiles of parts: not where it is known that there are few."""
    counts = _queries(spec), ordered(spec, 1)[2]
    few = any(isinstance(count, int) and count < least_split(spec) for count in counts)
    return machine.tiles and splits(spec) and not few


def _queries(spec: Spec) -> Expr:
    """Queries of a head of keys."""
    return fold("mul", ordered(spec, 0)[2], group_of(spec))


def emit_attention(spec: Spec, machine: Machine) -> None:
    """Emits the kernel."""
    with rounding(spec, machine):
        _emit_tasks(spec, machine)


def _emit_tasks(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    split = _is_split(spec, machine)
    tiled = machine.tiles and fills_tiles(spec)
    keys = TILED_KEYS if tiled else key_block(spec)
    block = Block.make(spec, machine, query_block(spec), keys, tiled)
    if split:
        in_parts = Block.make(spec, machine, SPLIT_QUERIES, TILED_KEYS, True, PARTS["float32"])
    batch, heads, queries, _ = (frame.size(extent) for extent in ordered(spec, 0))
    group = group_of(spec)
    together: Size = block.queries
    blocks = sizes.ceildiv(queries * group, together)
    if split:
        blocks = sizes.greatest(frame.size(split_blocks(spec)), 1)
        together = sizes.ceildiv(sizes.ceildiv(queries * group, blocks), in_parts.rows)
        together = together * in_parts.rows
    true = emit.constant(emit.integer(1), 1)
    for task in emit.loop(frame.first, frame.last):
        numbers = (
            sizes.split(task + further, (batch, sizes.floordiv(heads, group), blocks))
            for further in (0, 1)
        )
        query, after = (
            Queries(
                group,
                item,
                shared * group,
                part * together,
                sizes.least((part + 1) * together, queries * group),
            )
            for item, shared, part in numbers
        )
        if not split:
            _Task(frame, block, query, after).attend()
            continue
        # A row's bits depend on how many queries and keys there are, if these are few.
        counts = (emit.as_index(frame.size(n)) for n in (_queries(spec), ordered(spec, 1)[2]))
        many = emit.compare("greater_equal", emit.minimum(*counts), least_split(spec))

        def in_tiles(query: Queries = query, after: Queries = after) -> list[Any]:
            return _Task(frame, in_parts, query, after).attend()

        # Blocks of whole strips may be enough without the last ones.
        with emit.when(emit.compare("less", query.first, emit.as_index(query.stop))):
            (others,) = emit.either(many, [true.type], in_tiles, lambda: [true])
            with emit.when(others):
                for first in emit.loop(query.first, query.stop, block.queries):
                    _Task(frame, block, replace(query, first=first), after).attend()


class _Task:
    """One task, of the keys that `query` may see; what the one `after` it reads is asked for."""

    def __init__(self, frame: host.Frame, block: Block, query: Queries, after: Queries) -> None:
        self._frame, self._block, self._query, self._after = frame, block, query, after
        self._queries, self._keys = (frame.size(ordered(frame.spec, n)[2]) for n in (0, 1))
        self._count = sizes.least(emit.index(block.queries), query.stop - query.first)
        self._last_key = self._stop()

    def attend(self) -> list[Any]:
        """Over all keys, and writes.

        Where numbers are split, returns whether a result is infinite or a NaN.
        """
        block = self._block
        padded = sizes.ceildiv(self._count, block.rows) * block.rows
        if block.tiled:
            attention.clear(block, self._count, padded)
        else:
            tile.clear(block, 0, padded)
        put_queries(self._frame, block, self._count, padded, self._query_start)
        together = block.keys * block.parts
        for key in emit.loop(self._first_key(self._query), self._last_key, together):
            self._attend_to(key, together)
        if block.split > 1:
            attention_parts.add_weights(block, padded)
        return self._write()

    def _stop(self) -> Size:
        """The key behind the last one that a query sees."""
        if not self._frame.spec.attr("causal"):
            return self._keys
        behind = self._query.position(self._count - 1) + 1 + (self._keys - self._queries)
        return sizes.greatest(sizes.least(behind, self._keys), 0)

    def _first_key(self, query: Queries) -> Size:
        """The first key of a block of those that `query` sees."""
        window, block = self._frame.spec.attr("window"), self._block
        if not window:
            return 0
        opened = query.position(0) + (self._keys - self._queries) + 1 - window
        return sizes.greatest(opened, 0) // block.keys * block.keys

    def _query_start(self, r: Any) -> Any:
        return row_of(self._frame, 0, *self._query.place(r)) * self._block.size

    def _attend_to(self, key: Any, together: int) -> None:
        """The keys from `key` on, of so many: one block, or several in tiles."""
        block, count = self._block, self._count
        there = sizes.least(emit.index(together), self._last_key - key)
        if block.tiled:
            for number in emit.loop(0, sizes.ceildiv(there, block.keys)):
                self._put(block.part(number), key + number * block.keys)
        else:
            self._put(block, key)
        asks, seen_at = self._asks(key, together, there), partial(self._seen, key)
        if not block.tiled:
            for top in emit.loop(0, count, block.rows):
                tile.attend(block, top, seen_at(top), *asks.beside(top))
            return
        span_at = partial(seen_at, parts=block.parts)
        if block.split > 1:
            attention_parts.attend(block, count, span_at, seen_at, asks.beside_strips)
        else:
            attention.attend(block, count, span_at, seen_at, asks.beside_strip)

    def _put(self, part: Block, key: Any) -> None:
        """Puts the keys and values of a block from `key` on on the stack."""
        frame, query = self._frame, self._query

        def start_of(number: int, r: Any) -> Any:
            return row_of(frame, number, query.item, query.head, key + r) * self._block.size

        present = sizes.least(emit.index(self._block.keys), self._last_key - key)
        put_keys(frame, part, present, partial(start_of, 1), partial(start_of, 2))

    def _seen(self, key: Any, top: Any, number: Any = 0, parts: int = 1) -> Seen:
        """What the queries from `top` on see of `parts` blocks, from that `number` behind `key`."""
        block = self._block
        start = key + number * block.keys
        present = sizes.least(emit.index(block.keys * parts), self._last_key - start)
        return Tile(self._frame, block, self._query, top, start, present).seen()

    def _asks(self, key: Any, together: int, there: Any) -> Asks:
        """What is asked for beside the keys from `key` on: those behind, or of the next task."""
        query, after = self._query, self._after
        more = emit.compare("less", key + together, self._last_key)
        source = [
            select(more, emit.as_index(own), emit.as_index(other))
            for own, other in (
                (query.item, after.item),
                (query.head, after.head),
                (key + together, self._first_key(after)),
            )
        ]
        return Asks(self._frame, self._block, there, self._count, query, after, source)

    def _write(self) -> list[Any]:
        frame, block = self._frame, self._block
        finish = rows.Finish(frame, block.lanes)

        def write(r: Any, *found: Any) -> list[Any]:
            share = inverse(block.weight_at(r))
            out_at = finish.row(row_of(frame, 0, *self._query.place(r)))
            for column, mask in host.vectors(0, block.size, block.lanes):
                out_at(column, mask, block.vector(block.total, r * block.across + column) * share)
            return attention_parts.no_numbers(block, r, share, *found)

        return attention_parts.any_no_number(block, self._count, write)


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


KERNEL = Kernel(
    "attention", "cpu", emit_attention, launch, supports, uses=uses, own_launch=own_launch
)
