"""softmax(q k^T scale + mask) v without the matrix of scores (arXiv:2205.14135).

A task is a block of queries of one head. It walks over blocks of keys: puts them on the stack with
keys in the lanes and their values beside them, and for each few queries makes scores, their
exponentials relative to the greatest one so far, and adds the values. All of it is done in register
tiles like a matmul's, with at most 96 KiB of stack, of which a tile works on 48.

Scores are in units of ln(2), so that their exponentials are powers of two. Where the machine has
dot products of pairs of bfloat16, both products of that dtype are made of them, and exponentials
are rounded to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, memory, rows, sizes
from heddle.kernels.cpu._attention_block import Block, ordered, query_block, row_bytes, row_of
from heddle.kernels.cpu._attention_reads import LOG2_E, copy_values, read_queries, turn_keys
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.powers_of_two import exp2_falling
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Launch, Spec, fold, product

arith, vector = dialect("arith"), dialect("vector")

TOGETHER = 3
"""Rows whose exponentials are computed side by side, to hide the latency of each."""

UNROLLED = 2
"""Steps of a product in one turn of its loop."""


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
    read_queries(frame, block, item, head, first, count)
    for key in emit.loop(0, last_key, block.keys):
        present = sizes.least(emit.index(block.keys), last_key - key)
        turn_keys(frame, block, item, head, key, present)
        copy_values(frame, block, item, head, key, present)
        for top in emit.loop(0, count, block.rows):
            _score(frame, block, (item, head, first), top, key, present)
            for r in emit.loop(0, sizes.least(emit.index(block.rows), count - top), TOGETHER):
                _exponentials(block, top, r, present)
            _add_values(block, top, present)
    finish = rows.Finish(frame, block.lanes)
    for r in emit.loop(0, count):
        weight = block.scalar(block.weight, r)
        share = 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)
        out_at = finish.row(row_of(frame, 0, item, head, first + r))
        for column, mask in host.vectors(0, block.size, block.lanes):
            out_at(column, mask, block.vector(block.total, r * block.width + column) * share)


def _score(
    frame: host.Frame,
    block: Block,
    place: tuple[Size, Size, Size],
    top: Any,
    key: Any,
    present: Any,
) -> None:
    """The masked products of a tile's queries with the keys, -inf where there is no key."""
    spec, lanes = frame.spec, block.lanes
    item, head, base = place
    queries, keys = (frame.size(ordered(spec, number)[2]) for number in (0, 1))
    wide = block.pair * lanes
    scale = emit.constant(emit.register_type(block.dtype), spec.attr("scale") * LOG2_E, lanes)

    def tile(column: Any, partial: bool) -> None:
        def query_at(r: int, step: Any) -> Any:
            return block.spread_word(block.query, (top + r) * block.depth + step)

        def keys_at(step: Any) -> list[Any]:
            at = step * block.keys + column
            return [block.words(block.key, at + n * lanes) for n in range(block.pair)]

        zeros = [block.fill(0)] * (block.rows * block.pair)
        sums = _products(block, zeros, block.steps, query_at, keys_at)
        for r in range(block.rows):
            # Rows beyond the last query are computed on as well, under the last one's mask.
            query = sizes.least(base + top + r, queries - 1)
            peak = block.vector(block.peak, r * lanes)
            for n in range(block.pair):
                start = column + n * lanes
                score = sums[r * block.pair + n]
                score = score * scale if block.paired else score
                visible = None
                if partial:
                    last = present
                    if spec.attr("causal"):
                        last = sizes.least(query + (keys - queries) + 1 - key, present)
                    visible = host.first_lanes(last - start, lanes)
                score = _apply_mask(frame, block, score, (item, head, query), key + start, visible)
                if visible is not None:
                    score = select(visible, score, -math.inf)
                peak = emit.maximum(peak, score)
                block.put(score, block.score, start + r * block.keys)
            block.put(peak, block.peak, r * lanes)

    for r in range(block.rows):
        block.put(block.fill(-math.inf), block.peak, r * lanes)
    if spec.attr("causal"):
        for column in emit.loop(0, present, wide):
            tile(column, True)
        return
    whole = present - sizes.mod(present, wide)
    for column in emit.loop(0, whole, wide):
        tile(column, False)
    with emit.when(emit.compare("less", whole, present)):
        tile(whole, True)


def _exponentials(block: Block, top: Any, first: Any, present: Any) -> None:
    """Turns a few rows of scores into exponentials and brings their queries' statistics forward."""
    tile_rows = [first + n for n in range(TOGETHER)]
    before = [block.scalar(block.top, top + r) for r in tile_rows]
    after = [
        emit.maximum(old, crosslane.across(block.vector(block.peak, r * block.lanes), emit.maximum))
        for old, r in zip(before, tile_rows, strict=True)
    ]
    shifts = [select(emit.compare("equal", value, -math.inf), 0.0, value) for value in after]

    def exponential(column: Any, *totals: Any) -> list[Any]:
        following = []
        for r, shift, total in zip(tile_rows, shifts, totals, strict=True):
            score = block.vector(block.score, r * block.keys + column)
            share = exp2_falling(score - shift)
            _put_share(block, share, r, column)
            following.append(total + share)
        return following

    zeros = [block.fill(0)] * TOGETHER
    totals = emit.carry(0, present, block.lanes, zeros, exponential)
    for n, r in enumerate(tile_rows):
        fade = exp2_falling(before[n] - shifts[n])
        weight = block.scalar(block.weight, top + r)
        weight = emit.fma(weight, fade, crosslane.across(totals[n], rows.add))
        block.put(after[n], block.top, top + r)
        block.put(weight, block.weight, top + r)
        block.put(fade, block.fade, top + r)


def _put_share(block: Block, share: Any, r: Any, column: Any) -> None:
    """Writes exponentials over their scores; as bfloat16 they take the row's first half."""
    if not block.paired:
        block.put(share, block.score, r * block.keys + column)
        return
    narrow = arith.truncf(ir.VectorType.get([block.lanes], ir.BF16Type.get()), share)
    bits = vector.bitcast(emit.widen(emit.integer(16), block.lanes), narrow)
    memory.store(bits, block.score, r * (2 * block.keys) + column, "uint16")


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


def _products(
    block: Block,
    sums: Sequence[Any],
    steps: Size,
    left_at: Callable[[int, Any], Any],
    right_at: Callable[[Any], Sequence[Any]],
) -> list[Any]:
    """The sums with left[r, k] * right[k, :] added for all steps k, in words."""

    def turn(first: Any, count: int, total: Sequence[Any]) -> list[Any]:
        for k in (first + ahead for ahead in range(count)):
            before, total, right = iter(total), [], right_at(k)
            for r in range(block.rows):
                left = left_at(r, k)
                total += [block.add_product(left, value, next(before)) for value in right]
        return list(total)

    whole = steps - sizes.mod(steps, UNROLLED)
    sums = emit.carry(0, whole, UNROLLED, sums, lambda k, *old: turn(k, UNROLLED, old))
    return emit.carry(whole, steps, 1, sums, lambda k, *old: turn(k, 1, old))


def _add_values(block: Block, top: Any, present: Any) -> None:
    """Adds a tile's exponentials times the values to its sums."""
    lanes, steps = block.lanes, sizes.ceildiv(present, block.group)
    for part in range(0, block.width, 2 * lanes):
        columns = [column for column in (part, part + lanes) if column < block.width]

        def share_at(r: int, step: Any) -> Any:
            return block.spread_word(block.score, step + r * block.keys)

        def values_at(step: Any, columns: list[int] = columns) -> list[Any]:
            return [block.words(block.value, step * block.width + column) for column in columns]

        places = [
            (top + r, (top + r) * block.width + column)
            for r in range(block.rows)
            for column in columns
        ]
        sums = [
            block.vector(block.total, place) * block.spread(block.fade, r) for r, place in places
        ]
        sums = _products(block, sums, steps, share_at, values_at)
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


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products multiply bfloat16 alone."""
    return ("dots",) if spec.operands[0].dtype == "bfloat16" else ()


KERNEL = Kernel("attention", "cpu", emit_attention, launch, supports, uses=uses)
