"""softmax(q k^T scale + mask) v without the matrix of scores (arXiv:2205.14135).

A task is a block of queries of one head. It walks over blocks of keys: turns k so that keys lie in
the lanes, and for each few queries makes scores, their exponentials relative to the greatest one
so far, and adds the values. All of it is done in register tiles like a matmul's, with scores,
turned keys and sums in at most 64 KiB of stack, most of it in L1.
"""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, memory, rows, sizes, vector_math
from heddle.kernels.cpu._attention_block import Block, ordered, query_block, row_bytes, row_of
from heddle.kernels.cpu._tile import add_products
from heddle.kernels.emit import select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

TOGETHER = 3
"""Rows whose exponentials are computed side by side, to hide the latency of each."""


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
    block = Block.make(frame)
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
    _read_queries(frame, block, item, head, first, count)
    for key in emit.loop(0, last_key, block.keys):
        present = sizes.least(emit.index(block.keys), last_key - key)
        _turn_keys(frame, block, item, head, key, present)
        for top in emit.loop(0, count, block.rows):
            _score(frame, block, (item, head, first), top, key, present)
            for r in emit.loop(0, sizes.least(emit.index(block.rows), count - top), TOGETHER):
                _exponentials(block, top, r, present)
            _add_values(frame, block, item, head, top, key, present)
    finish = rows.Finish(frame, block.lanes)
    for r in emit.loop(0, count):
        weight = block.scalar(block.weight, r)
        share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
        out_at = finish.row(row_of(frame, 0, item, head, first + r))
        for column, mask in host.vectors(0, block.size, block.lanes):
            out_at(column, mask, block.vector(block.total, r * block.width + column) * share)


def _read_queries(
    frame: host.Frame, block: Block, item: Size, head: Size, first: Size, count: Size
) -> None:
    """Puts the scaled queries on the stack and clears the sums."""
    dtype, scale = frame.spec.operands[0].dtype, frame.spec.attr("scale")
    lowest, zero = (
        emit.constant(emit.register_type(block.dtype), number) for number in (-math.inf, 0)
    )
    for r in emit.loop(0, count):
        start = row_of(frame, 0, item, head, first + r) * block.size
        for column, mask in host.vectors(0, block.size, block.lanes):
            value = memory.load(frame.inputs[0], start + column, dtype, block.lanes, mask)
            block.put(value * scale, block.query, r * block.width + column)
    # A tile's rows beyond the last query are computed on as well, and dropped.
    tiled = sizes.ceildiv(count, block.rows) * block.rows
    for r in emit.loop(count, tiled):
        for column in emit.loop(0, block.width, block.lanes):
            block.put(block.fill(0), block.query, r * block.width + column)
    for r in emit.loop(0, tiled):
        block.put(lowest, block.top, r)
        block.put(zero, block.weight, r)
        for column in emit.loop(0, block.width, block.lanes):
            block.put(block.fill(0), block.total, r * block.width + column)


def _turn_keys(
    frame: host.Frame, block: Block, item: Size, head: Size, key: Any, present: Any
) -> None:
    """Puts keys `key` to `key + present - 1` on the stack, keys in the lanes."""
    dtype, lanes = frame.spec.operands[1].dtype, block.lanes
    for group, rest in host.vectors(0, present, lanes):
        for column, mask in host.vectors(0, block.size, lanes):
            lines = []
            for line in range(lanes):
                start = row_of(frame, 1, item, head, key + group + line) * block.size + column
                kept = mask
                if rest is not None:
                    # A key beyond the last is not read: its mask is empty.
                    inside = emit.compare("less", group + line, present)
                    wanted = block.size - column if mask is not None else emit.index(lanes)
                    kept = host.first_lanes(select(inside, wanted, 0), lanes)
                lines.append(memory.load(frame.inputs[1], start, dtype, lanes, kept))
            width = lanes if mask is None else block.size % lanes
            for number, value in enumerate(crosslane.transposed(lines)[:width]):
                block.put(value, block.key, (column + number) * block.keys + group)


def _score(
    frame: host.Frame,
    block: Block,
    place: tuple[Size, Size, Size],
    top: Any,
    key: Any,
    present: Any,
) -> None:
    """The masked products of a tile's queries with the keys, -inf where there is no key."""
    spec = frame.spec
    item, head, base = place
    queries, keys = (frame.size(ordered(spec, number)[2]) for number in (0, 1))
    wide = block.pair * block.lanes
    for column in emit.loop(0, sizes.ceildiv(present, wide) * wide, wide):

        def query_at(r: int, d: Any) -> Any:
            return block.spread(block.query, (top + r) * block.width + d)

        def keys_at(d: Any, column: Any = column) -> list[Any]:
            at = d * block.keys + column
            return [block.vector(block.key, at + n * block.lanes) for n in range(block.pair)]

        zeros = [block.fill(0)] * (block.rows * block.pair)
        sums = add_products(zeros, 0, block.size, query_at, keys_at)
        for number, value in enumerate(sums):
            r, n = divmod(number, block.pair)
            start = column + n * block.lanes
            # Rows beyond the last query are computed on as well, under the last one's mask.
            query = sizes.least(base + top + r, queries - 1)
            visible = present
            if spec.attr("causal"):
                visible = sizes.least(query + (keys - queries) + 1 - key, present)
            lanes = host.first_lanes(visible - start, block.lanes)
            score = _apply_mask(frame, block, value, (item, head, query), key + start, lanes)
            score = select(lanes, score, -math.inf)
            block.put(score, block.score, start + r * block.keys)


def _exponentials(block: Block, top: Any, first: Any, present: Any) -> None:
    """Turns a few rows of scores into exponentials and brings their queries' statistics forward."""
    tile_rows = [first + n for n in range(TOGETHER)]

    def largest(column: Any, *greatest: Any) -> list[Any]:
        return [
            emit.maximum(old, block.vector(block.score, r * block.keys + column))
            for r, old in zip(tile_rows, greatest, strict=True)
        ]

    lowest, zero = block.fill(-math.inf), block.fill(0)
    greatest = emit.carry(0, present, block.lanes, [lowest] * TOGETHER, largest)
    before = [block.scalar(block.top, top + r) for r in tile_rows]
    after = [
        emit.maximum(old, crosslane.across(new, emit.maximum))
        for old, new in zip(before, greatest, strict=True)
    ]
    shifts = [select(emit.compare("equal", value, -math.inf), 0.0, value) for value in after]

    def exponential(column: Any, *totals: Any) -> list[Any]:
        following = []
        for r, shift, total in zip(tile_rows, shifts, totals, strict=True):
            score = block.vector(block.score, r * block.keys + column)
            share = vector_math.exp_falling(score - shift)
            block.put(share, block.score, r * block.keys + column)
            following.append(total + share)
        return following

    totals = emit.carry(0, present, block.lanes, [zero] * TOGETHER, exponential)
    for n, r in enumerate(tile_rows):
        fade = vector_math.exp_falling(before[n] - shifts[n])
        weight = block.scalar(block.weight, top + r)
        weight = emit.fma(weight, fade, crosslane.across(totals[n], rows.add))
        block.put(after[n], block.top, top + r)
        block.put(weight, block.weight, top + r)
        block.put(fade, block.fade, top + r)


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
    return select(value, score, -math.inf) if operand.dtype == "bool" else score + value


def _add_values(
    frame: host.Frame, block: Block, item: Size, head: Size, top: Any, key: Any, present: Any
) -> None:
    """Adds a tile's exponentials times the values to its sums."""
    dtype, lanes = frame.spec.operands[2].dtype, block.lanes
    step = row_of(frame, 2, item, head, 1) - row_of(frame, 2, item, head, 0)
    base = row_of(frame, 2, item, head, key) * block.size
    for part in range(0, block.width, 2 * lanes):
        columns = [column for column in (part, part + lanes) if column < block.width]
        masks = [
            host.first_lanes(block.size - column, lanes) if column + lanes > block.size else None
            for column in columns
        ]

        def share_at(r: int, k: Any) -> Any:
            return block.spread(block.score, k + r * block.keys)

        def values_at(k: Any, columns: list[int] = columns, masks: list[Any] = masks) -> list[Any]:
            start = base + k * (step * block.size)
            return [
                memory.load(frame.inputs[2], start + column, dtype, lanes, mask)
                for column, mask in zip(columns, masks, strict=True)
            ]

        places = [
            (top + r, (top + r) * block.width + column)
            for r in range(block.rows)
            for column in columns
        ]
        sums = [
            block.vector(block.total, place) * block.spread(block.fade, r) for r, place in places
        ]
        sums = add_products(sums, 0, present, share_at, values_at)
        for value, (_, place) in zip(sums, places, strict=True):
            block.put(value, block.total, place)


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


KERNEL = Kernel("attention", "cpu", emit_attention, launch, supports)
