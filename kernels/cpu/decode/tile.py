"""What decoding computes of a key and of a pair of values, for the queries of a token.

Keys are not turned: the products of as many queries with a key as a vector has lanes are summed
across lanes all together. So scores have queries in their lanes. Values are added to sums that lie
in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, row_totals
from heddle.kernels.cpu import _bfloat16, _float8
from heddle.kernels.cpu.decode.block import Chunk, Tiles
from heddle.kernels.cpu.decode.parts import LANES, STEP
from heddle.kernels.cpu.decode.sums import bring_forward, combined
from heddle.kernels.cpu.flash.reads import words_of
from heddle.kernels.emit import select
from heddle.kernels.functions.powers_of_two import exp2_falling, finite
from heddle.kernels.mlir import dialect

arith, vector = dialect("arith"), dialect("vector")

Ask = Callable[[int, Any], None]
"""`ask(operand, element)`: for the line that lies as far ahead as is asked for."""


def scores(tiles: Tiles, token: Any, key: Any, start: Any, ask: Ask) -> None:
    """The products of a token with key number `key` of a step, which starts at an element."""
    block = tiles.block
    for chunk in tiles.chunks():
        value = crosslane.each_across(_products(tiles, token, chunk, start, ask), row_totals.add)
        if block.paired or block.cap:
            value = block.scaled(value)
        place = tiles.score_at(token, chunk.number) + key * block.lanes
        block.put(value, tiles.score, place)


def _products(tiles: Tiles, token: Any, chunk: Chunk, start: Any, ask: Ask) -> list[Any]:
    """The products of each query with a key, of as many elements as lanes add up."""
    block, step = tiles.block, tiles.block.lanes * tiles.block.group
    query = (token * tiles.queries + chunk.query) * block.depth
    totals: list[Any] = []
    for head in range(chunk.heads):
        at = start + (chunk.head + head) * block.size
        sides = [block.fill(0)] * chunk.count
        for number, column in enumerate(range(0, block.size, step)):
            rest = None if block.size - column >= step else block.size - column
            ask(1, at + column)
            key = words_of(tiles.frame, block, 1, at + column, rest)
            for q in range(chunk.count):
                row = query + (head * chunk.count + q) * block.depth + number * block.lanes
                sides[q] = block.add_product(key, block.words(block.query, row), sides[q])
        totals += sides
    return totals


def exponentials(tiles: Tiles, token: Any, at: Any, seen: tuple[Any, Any]) -> None:
    """Turns a token's scores of a step into exponentials, and brings its sums forward to them.

    The token sees the keys of the step from and to `seen`.
    """
    block, lanes = tiles.block, tiles.block.lanes
    for chunk in tiles.chunks():
        base = tiles.score_at(token, chunk.number)
        scores = [block.vector(tiles.score, base + key * lanes) for key in range(STEP)]
        found = [
            select(_inside(tiles, key, seen), value, -math.inf) for key, value in enumerate(scores)
        ]
        top_at, weight_at = tiles.statistics_at(chunk)
        before = block.vector(at, top_at)
        after = emit.maximum(before, combined(found, emit.maximum))
        shift = finite(after)
        fade = exp2_falling(before - shift)
        shares = [exp2_falling(value - shift, result=block.share_dtype) for value in found]
        weight = emit.fma(block.vector(at, weight_at), fade, combined(shares, row_totals.add))
        block.put(after, at, top_at)
        block.put(weight, at, weight_at)
        _put_shares(tiles, shares, base)
        bring_forward(tiles, chunk, at, fade)


def _inside(tiles: Tiles, key: int, seen: tuple[Any, Any]) -> Any:
    low, high = seen
    inside = emit.compare("greater", high, key)
    if tiles.frame.spec.attr("window"):
        inside = inside & emit.compare("less_equal", low, key)
    return inside


def _put_shares(tiles: Tiles, shares: Sequence[Any], base: Any) -> None:
    """Writes exponentials, those of two keys in a word where words are pairs."""
    block, lanes = tiles.block, tiles.block.lanes
    if not block.paired:
        for key, value in enumerate(shares):
            block.put(value, tiles.share, base + key * lanes)
        return
    order = [i // 2 + i % 2 * lanes for i in range(2 * lanes)]
    for key in range(0, STEP, 2):
        sides = [_bfloat16.narrowed(value) for value in shares[key : key + 2]]
        words = crosslane.shuffle(sides[0], sides[1], order)
        words = vector.bitcast(emit.widen(emit.integer(32), lanes), words)
        block.put_words(words, tiles.share, base + key * lanes)


def add_values(
    tiles: Tiles, token: Any, key: Any, starts: Sequence[Any], at: Any, ask: Ask
) -> None:
    """Adds the values of a unit of keys, from number `key` of a step on, weighted."""
    block, lanes = tiles.block, tiles.block.lanes
    # Of a machine's registers, half are for the sums.
    registers = 16 * lanes // LANES
    for chunk in tiles.chunks():
        shares = tiles.score_at(token, chunk.number) + key * lanes
        for head in emit.loop(0, chunk.heads):
            places = [start + (chunk.head + head) * block.size for start in starts]
            for top in range(0, chunk.count, registers // 2):
                count = min(registers // 2, chunk.count - top)
                first = head * chunk.count + top
                wide = registers // count // 2 * 2 * lanes
                for column in range(0, block.width, wide):
                    columns = range(column, min(block.width, column + wide), lanes)
                    query = (chunk.query + first) * tiles.width
                    _add(tiles, query, count, columns, places, shares + first, at, ask)


def _add(
    tiles: Tiles,
    query: Any,
    count: int,
    columns: range,
    starts: Sequence[Any],
    shares: Any,
    at: Any,
    ask: Ask,
) -> None:
    """Adds columns of a unit's values to the sums of `count` queries."""
    block = tiles.block
    places = [query + (q * tiles.width + c) for q in range(count) for c in columns]
    totals = [block.vector(at, place) for place in places]
    for first in range(0, tiles.unit, block.group):
        values = _values(tiles, starts[first : first + block.group], columns, ask)
        before, totals = iter(totals), []
        for q in range(count):
            share = block.spread_word(tiles.share, shares + (first * block.lanes + q))
            totals += [block.add_product(share, value, next(before)) for value in values]
    for total, place in zip(totals, places, strict=True):
        block.put(total, at, place)


def _values(tiles: Tiles, starts: Sequence[Any], columns: range, ask: Ask) -> list[Any]:
    """Words of the values of a key, or of two, at the columns of a few vectors."""
    block, pointer = tiles.block, tiles.frame.inputs[2]
    held = tiles.frame.spec.operands[2].dtype
    found: list[Any] = []
    step = block.lanes * (2 if block.paired and held not in convert.FLOAT8 else 1)
    for first in range(columns.start, columns.stop, step):
        rest = block.columns - first
        mask = None if rest >= step else host.first_lanes(rest, step)
        dtype = memory.raw(held) if block.paired else held
        for start in starts:
            ask(2, start + first)
        sides = [memory.load(pointer, start + first, dtype, step, mask) for start in starts]
        if not block.paired:
            found += sides
            continue
        order = [i // 2 + i % 2 * step for i in range(2 * step)]
        if held in convert.FLOAT8:
            found.append(_float8.joined(crosslane.shuffle(sides[0], sides[1], order), held))
            continue
        for half in (order[:step], order[step:])[: -(-min(rest, step) // block.lanes)]:
            words = emit.widen(emit.integer(32), block.lanes)
            found.append(vector.bitcast(words, crosslane.shuffle(sides[0], sides[1], half)))
    return found
