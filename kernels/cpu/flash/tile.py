"""A tile of attention: a few queries by a block of keys whose numbers are on the stack.

Scores are in units of ln(2), or `Block.unit` makes powers of two of their exponentials. What is
summed for a query has one order, whatever the height of the tile and the other queries in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, row_totals, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.flash.block import Ahead, Block, Seen, nothing
from heddle.kernels.functions.powers_of_two import exp2_falling, finite
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, vector = dialect("arith"), dialect("vector")

Finish = Callable[..., Any]
"""`finish(r, column, score, partial=)`: the scores of row r from a column on, scaled and masked;
where the tile is `partial`, -inf where there is no key."""


def clear(block: Block, row: Any, stop: Any) -> None:
    """No key was seen by the queries `row` to `stop - 1`."""
    lowest, zero = (
        emit.constant(emit.register_type(block.dtype), number) for number in (-math.inf, 0)
    )
    for r in emit.loop(row, stop):
        block.put(lowest, block.top, r)
        block.put(zero, block.weight, r)
        for column in emit.loop(0, block.width, block.lanes):
            block.put(block.fill(0), block.total, r * block.width + column)


def attend(block: Block, row: Any, seen: Seen, beside_scores: Ahead, beside_values: Ahead) -> None:
    """Brings the sums of a tile of queries, from `row` on, forward."""
    with emit.when(emit.compare("greater", seen.stop, 0)):
        score(block, row, seen.stop, seen.whole, seen.finish, beside_scores)
        exponentials(block, row, seen.stop)
        add_values(block, row, seen.stop, beside_values)


def score(
    block: Block,
    row: Any,
    present: Any,
    whole: Any,
    finish: Finish,
    ahead: Ahead = nothing,
) -> None:
    """The products of the queries from `row` on with the block's first `present` keys.

    `whole`: every query attends to all of them, which fill vectors.
    """
    emit.either(
        whole,
        [],
        lambda: _score(block, row, present, partial(finish, partial=False), ahead),
        lambda: _score(block, row, present, partial(finish, partial=True), ahead),
    )


def _score(
    block: Block, row: Any, present: Any, finish: Callable[[int, Any, Any], Any], ahead: Ahead
) -> list[Any]:
    lanes, wide = block.lanes, block.pair * block.lanes
    for r in range(block.rows):
        block.put(block.fill(-math.inf), block.peak, r * lanes)
    for column in emit.loop(0, present, wide):

        def query_at(step: Any) -> Any:
            return memory.at(block.query, row * block.depth + step, block.word)

        def keys_at(step: Any, column: Any = column) -> Any:
            return memory.at(block.key, step * block.keys + column, block.word)

        def beside(step: Any, count: int, column: Any = column) -> None:
            ahead(column // wide * block.steps + step, count)

        zeros = [block.fill(0)] * (block.rows * block.pair)
        left, right = Side(query_at, block.depth), Side(keys_at, block.keys)
        sums = _products(block, zeros, block.steps, left, right, beside)
        for r in range(block.rows):
            peak = block.vector(block.peak, r * lanes)
            for n in range(block.pair):
                start = column + n * lanes
                value = finish(r, start, sums[r * block.pair + n])
                peak = emit.maximum(peak, value)
                block.put(value, block.score, start + r * block.keys)
            block.put(peak, block.peak, r * lanes)
    return []


def exponentials(block: Block, row: Any, present: Any) -> None:
    """Turns a tile of scores into exponentials and brings its queries' statistics forward."""
    numbers = range(block.rows)
    fades = []
    for first, several, mask in _groups(block):
        peaks = [block.vector(block.peak, r * block.lanes) for r in several]
        before = memory.load(block.top, row + first, block.dtype, block.lanes, mask)
        after = emit.maximum(before, crosslane.each_across(peaks, emit.maximum))
        shift = finite(after)
        memory.store(after, block.top, row + first, block.dtype, mask)
        memory.store(shift, block.shift, first, block.dtype, mask)
        fades.append(exp2_falling(before - shift, block.unit))
        memory.store(fades[-1], block.fade, first, block.dtype, mask)

    def exponential(column: Any, *totals: Any) -> list[Any]:
        following = []
        for r, total in zip(numbers, totals, strict=True):
            value = block.vector(block.score, r * block.keys + column)
            distance = value - block.spread(block.shift, r)
            share = exp2_falling(distance, block.unit, block.share_dtype)
            _put_share(block, share, r, column)
            following.append(total + share)
        return following

    zeros = [block.fill(0)] * block.rows
    totals = emit.carry(0, present, block.lanes, zeros, exponential)
    for (first, several, mask), fade in zip(_groups(block), fades, strict=True):
        weight = memory.load(block.weight, row + first, block.dtype, block.lanes, mask)
        total = crosslane.each_across([totals[r] for r in several], row_totals.add)
        weight = emit.fma(weight, fade, total)
        memory.store(weight, block.weight, row + first, block.dtype, mask)


def _groups(block: Block) -> list[tuple[int, list[int], Any]]:
    """The tile's rows by as many as a vector has lanes: the first, all, and the mask of them."""
    found = []
    for first in range(0, block.rows, block.lanes):
        several = list(range(first, min(first + block.lanes, block.rows)))
        mask = None
        if len(several) < block.lanes:
            mask = host.first_lanes(len(several), block.lanes)
        found.append((first, several, mask))
    return found


def _put_share(block: Block, share: Any, r: int, column: Any) -> None:
    """Writes exponentials over their scores; as bfloat16 they take the row's first half."""
    if not block.paired:
        block.put(share, block.score, r * block.keys + column)
        return
    memory.store(_bfloat16.narrowed(share), block.score, r * (2 * block.keys) + column, "uint16")


def add_values(block: Block, row: Any, present: Any, ahead: Ahead = nothing) -> None:
    """Adds a tile's exponentials times the values to its sums."""
    lanes, steps = block.lanes, sizes.ceildiv(present, block.group)
    for number, part in enumerate(range(0, block.width, 2 * lanes)):
        columns = [column for column in (part, part + lanes) if column < block.width]

        def share_at(step: Any) -> Any:
            return memory.at(block.score, step, block.word)

        def values_at(step: Any, part: int = part) -> Any:
            return memory.at(block.value, step * block.width + part, block.word)

        def beside(step: Any, count: int, number: int = number) -> None:
            ahead(step + number * steps, count)

        places = [
            (r, (row + r) * block.width + column) for r in range(block.rows) for column in columns
        ]
        sums = [
            block.vector(block.total, place) * block.spread(block.fade, r) for r, place in places
        ]
        left, right = Side(share_at, block.keys), Side(values_at, block.width)
        sums = _products(block, sums, steps, left, right, beside)
        for value, (_, place) in zip(sums, places, strict=True):
            block.put(value, block.total, place)


@dataclass(frozen=True)
class Side:
    """A side of a product: where its words of a step are, and how many lie from one to the next.

    Of the left side the next row's, of the right side the next step's. Steps of a turn are read at
    constant distances from its first one: LLVM would keep an index for each, and spill sums.
    """

    at: Callable[[Any], Any]
    apart: int


def _products(
    block: Block, sums: Sequence[Any], steps: Size, left: Side, right: Side, ahead: Ahead
) -> list[Any]:
    """The sums with left[r, k] * right[k, :] added for all steps k, in words."""
    vectors = range(0, len(sums) // block.rows * block.lanes, block.lanes)

    def turn(first: Any, count: int, total: Sequence[Any]) -> list[Any]:
        ahead(first, count)
        x, y = left.at(first), right.at(first)
        for k in range(count):
            before, total = iter(total), []
            row = [block.words(y, k * right.apart + column) for column in vectors]
            for r in range(block.rows):
                word = block.spread_word(x, r * left.apart + k)
                total += [block.add_product(word, value, next(before)) for value in row]
        return list(total)

    whole = steps - sizes.mod(steps, block.turn)
    sums = emit.carry(0, whole, block.turn, sums, lambda k, *old: turn(k, block.turn, old))
    return emit.carry(whole, steps, 1, sums, lambda k, *old: turn(k, 1, old))
