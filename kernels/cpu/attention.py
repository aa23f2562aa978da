"""softmax(q k^T scale + mask) v without the matrix of scores (arXiv:2205.14135).

A task is a block of queries of one head. It walks over blocks of keys: puts them on the stack with
keys in the lanes and their values beside them, and for each few queries makes scores, their
exponentials relative to the greatest one so far, and adds the values. All of it is done in register
tiles like a matmul's, with at most 300 KiB of stack, of which a tile works on 64.

Scores are in units of ln(2), so that their exponentials are powers of two. Where the machine has
dot products of pairs of bfloat16, both products of that dtype are made of them, or in tiles where
it has those, and exponentials are rounded to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu import _amx_attention
from heddle.kernels.cpu import _attention_tile as tile
from heddle.kernels.cpu._attention_block import (
    LOG2_E,
    TILED_KEYS,
    Block,
    Seen,
    fills_tiles,
    key_block,
    ordered,
    query_block,
    row_bytes,
    row_of,
    uses,
)
from heddle.kernels.cpu._attention_reads import copy_values, read_queries, turn_keys
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

arith, vector = dialect("arith"), dialect("vector")


def launch(spec: Spec) -> Launch:
    """One task for each block of queries of each head and batch."""
    batch, heads, queries, size = ordered(spec, 0)
    keys = ordered(spec, 1)[2]
    blocks = fold("ceildiv", queries, query_block(spec))
    each = fold("mul", keys, fold("add", fold("mul", size, 4), 20))
    work = product((batch, heads, queries, each))
    return Launch((product((batch, heads, blocks)), 1, 1), work)


def emit_attention(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    tiled = machine.tiles and fills_tiles(spec)
    keys = TILED_KEYS if tiled else key_block(spec)
    block = Block.make(spec, machine, query_block(spec), keys, tiled)
    batch, heads, queries, _ = (frame.size(extent) for extent in ordered(spec, 0))
    blocks = sizes.ceildiv(queries, block.queries)
    for task in emit.loop(frame.first, frame.last):
        item, head, part = sizes.split(task, (batch, heads, blocks))
        _attend(frame, block, item, head, part * block.queries)


def _attend(frame: host.Frame, block: Block, item: Size, head: Size, first: Size) -> None:
    """One task: the queries from `first` on of one head."""
    spec = frame.spec
    queries, keys = (frame.size(ordered(spec, number)[2]) for number in (0, 1))
    count = sizes.least(emit.index(block.queries), queries - first)
    last_key = keys
    if spec.attr("causal"):
        last_key = sizes.greatest(sizes.least(first + count + (keys - queries), keys), 0)
    tiled = sizes.ceildiv(count, block.rows) * block.rows
    tile.clear(block, 0, tiled)

    def start_of(number: int, base: Size) -> Callable[[Any], Any]:
        return lambda position: row_of(frame, number, item, head, base + position) * block.size

    read_queries(frame, block, 0, count, tiled, start_of(0, first))
    first_key: Size = 0
    if spec.attr("window"):
        opened = first + (keys - queries) + 1 - spec.attr("window")
        first_key = sizes.greatest(opened, 0) // block.keys * block.keys
    for key in emit.loop(first_key, last_key, block.keys):
        present = sizes.least(emit.index(block.keys), last_key - key)
        turn_keys(frame, block, present, start_of(1, key))
        copy_values(frame, block, present, start_of(2, key))
        if block.tiled:
            _amx_attention.clear_values(block, present)

        def seen_at(top: Any, key: Any = key, present: Any = present) -> Seen:
            return _Tile(frame, block, (item, head, first), top, key, present).seen()

        if block.tiled:
            _amx_attention.attend(block, 0, count, seen_at)
        else:
            for top in emit.loop(0, count, block.rows):
                tile.attend(block, top, seen_at(top))
    finish = rows.Finish(frame, block.lanes)
    for r in emit.loop(0, count):
        weight = block.scalar(block.weight, r)
        share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
        out_at = finish.row(row_of(frame, 0, item, head, first + r))
        for column, mask in host.vectors(0, block.size, block.lanes):
            out_at(column, mask, block.vector(block.total, r * block.width + column) * share)


class _Tile:
    """The queries from `top` on of a task's by the block of keys from `key` on."""

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        place: tuple[Size, Size, Size],
        top: Any,
        key: Any,
        present: Any,
    ) -> None:
        self.frame, self.block, self.top, self.key, self.present = frame, block, top, key, present
        self.item, self.head, self.base = place
        self.queries, self.keys = (frame.size(ordered(frame.spec, n)[2]) for n in (0, 1))

    def seen(self) -> Seen:
        """The keys that the queries attend to."""
        block, last = self.block, self.block.rows - 1
        stop = self._visible(last)
        whole = emit.compare("equal", sizes.mod(stop, block.pair * block.lanes), 0)
        if self.frame.spec.attr("causal"):
            whole = whole & emit.compare("equal", self._visible(0), stop)
        if self.frame.spec.attr("window"):
            whole = whole & emit.compare("less_equal", self._hidden(last), 0)
        return Seen(stop, whole, self._finished)

    def _query(self, r: int) -> Any:
        """The query of row `r`: rows beyond the last are computed on as well, as that one."""
        return sizes.least(self.base + self.top + r, self.queries - 1)

    def _visible(self, r: int) -> Any:
        """How many keys of the block row `r` attends to."""
        if not self.frame.spec.attr("causal"):
            return self.present
        behind = self._query(r) + (self.keys - self.queries) + 1 - self.key
        return sizes.greatest(sizes.least(behind, self.present), 0)

    def _hidden(self, r: int) -> Any:
        """How many keys of the block are before the window of row `r`; may be negative."""
        behind = self._query(r) + (self.keys - self.queries) + 1 - self.key
        return behind - self.frame.spec.attr("window")

    def _finished(self, r: int, column: Any, score: Any, partial: bool) -> Any:
        spec, block = self.frame.spec, self.block
        visible = host.first_lanes(self._visible(r) - column, block.lanes) if partial else None
        if partial and spec.attr("window"):
            before = host.first_lanes(self._hidden(r) - column, block.lanes)
            visible = visible & (before ^ True)
        score = score if block.late else score * block.scale
        place = (self.item, self.head, self._query(r))
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
    return emit.fma(value, LOG2_E, score)


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


def tiles_or_dots(spec: Spec) -> tuple[str, ...]:
    """Tiles where heads fill them, for few queries dot products."""
    return (*uses(spec), *(("tiles",) if fills_tiles(spec) else ()))


KERNEL = Kernel("attention", "cpu", emit_attention, launch, supports, uses=tiles_or_dots)
