"""What decoding computes of a key and of a few values with registers of 32 bytes.

It is what `tile` computes, in the same order of memory, with fewer instructions: of pairs
of bfloat16, which 8-bit floats become on the way, the first numbers and the second ones are vectors
of their own, one instruction each. So queries and sums lie apart in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

from heddle.kernels import convert, crosslane, emit, memory, row_totals
from heddle.kernels.cpu import _float8
from heddle.kernels.cpu.decode.block import Tiles
from heddle.kernels.cpu.decode.parts import STEP
from heddle.kernels.cpu.decode.sums import bring_forward, hide, raised
from heddle.kernels.cpu.decode.tile import Ask
from heddle.kernels.cpu.flash.reads import words_of
from heddle.kernels.functions.powers_of_two import LOG2_E, capped, exp2_falling, finite
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect

vector = dialect("vector")

SUMS = 8
"""Sums in registers: as many as hide how long a sum of products takes, two in a cycle."""

TURN = 4
"""Keys whose exponentials are computed in a turn of a loop, side by side."""

ASKED = LINE // 2
"""Bytes from one that is asked for to the next: each line is asked for twice."""

LIFT = 2.0**24
"""What queries are multiplied by beside keys of 8 bits: no product is a denormal number."""


def read_queries(tiles: Tiles, first: Any, count: Any) -> None:
    """Puts queries on the stack, from row `first` of the operand on, scaled."""
    block, held = tiles.block, tiles.frame.spec.operands[1].dtype
    scale = tiles.frame.spec.attr("scale") * LOG2_E * (LIFT if held in convert.FLOAT8 else 1.0)
    order = [range(n, 2 * block.lanes, 2) for n in range(2)]
    for query in emit.loop(0, count):
        for column in emit.loop(0, block.size, 2 * block.lanes):
            start = (first + query) * block.size + column
            sides = [words_of(tiles.frame, block, 0, start + n, None) for n in (0, block.lanes)]
            if tiles.apart(1):
                sides = [crosslane.shuffle(sides[0], sides[1], lanes) for lanes in order]
            for n, side in enumerate(sides):
                place = query * block.depth + column + n * block.lanes
                block.put(side * scale, block.query, place)


def scores(tiles: Tiles, token: Any, key: Any, start: Any, ask: Ask) -> None:
    """The products of a token with key number `key` of a step, which starts at an element."""
    block, held = tiles.block, tiles.frame.spec.operands[1].dtype
    for chunk in tiles.chunks():
        found = []
        for head in range(chunk.heads):
            at = start + (chunk.head + head) * block.size
            query = token * tiles.queries + chunk.query + head * chunk.count
            found += _products(tiles, chunk.count, at, query * block.depth, ask)
        value = _each_across(found)
        factor = _float8.SCALE[held] / LIFT if held in convert.FLOAT8 else 1.0
        if block.cap:
            value = capped(value, block.cap, factor)
        elif factor != 1.0:
            value = value * factor
        place = tiles.score_at(token, chunk.number) + key * block.lanes
        block.put(value, tiles.score, place)


def _products(tiles: Tiles, count: int, start: Any, query: Any, ask: Ask) -> list[Any]:
    """The products of `count` queries with a head of a key, of as many elements as lanes add up.

    Each is summed in a few parts, side by side.
    """
    block, step = tiles.block, 2 * tiles.block.lanes
    parts = 1 << (SUMS // count).bit_length() - 1
    parts = math.gcd(min(parts, 4), 2 * block.size // step)
    wide = 2 * step if block.size % (2 * step) == 0 else step

    def turn(column: Any, *sums: Any) -> list[Any]:
        at, totals = memory.at(block.query, query + column, "float32"), list(sums)
        for behind in range(0, wide, step):
            sides = _widened(tiles, 1, start + column, behind, ask)
            for (n, side), q in product(enumerate(sides), range(count)):
                number = q * parts + (behind // block.lanes + n) % parts
                other = block.vector(at, q * block.depth + (behind + n * block.lanes))
                totals[number] = emit.fma(side, other, totals[number])
        return totals

    sums = emit.carry(0, block.size, wide, [block.fill(0)] * (count * parts), turn)
    return [_tree(sums[at : at + parts]) for at in range(0, len(sums), parts)]


def exponentials(tiles: Tiles, token: Any, at: Any, seen: tuple[Any, Any]) -> None:
    """Turns a token's scores of a step into exponentials, and brings its sums forward to them.

    The token sees the keys of the step from and to `seen`.
    """
    block, lanes = tiles.block, tiles.block.lanes
    for chunk in tiles.chunks():
        base = tiles.score_at(token, chunk.number)
        hide(tiles, base, seen)
        top_at, weight_at = tiles.statistics_at(chunk)
        before = block.vector(at, top_at)
        found = [block.vector(tiles.score, base + key * lanes) for key in range(STEP)]
        top = reduce(lambda most, value: emit.maximum(value, most), found, before)
        after = raised(before, top)
        shift = finite(after)
        fade = exp2_falling(before - shift)
        weight = [block.vector(at, weight_at) * fade]
        (weight,) = emit.carry(0, STEP, TURN, weight, partial(_shares, tiles, base, shift))
        block.put(after, at, top_at)
        block.put(weight, at, weight_at)
        bring_forward(tiles, chunk, at, fade)


def _shares(tiles: Tiles, base: Any, shift: Any, key: Any, weight: Any) -> list[Any]:
    """Writes the exponentials of a few keys; their sum with `weight`."""
    block, held = tiles.block, tiles.frame.spec.operands[2].dtype
    places = [base + (key + n) * block.lanes for n in range(TURN)]
    shares = [exp2_falling(block.vector(tiles.score, place) - shift) for place in places]
    for share, place in zip(shares, places, strict=True):
        # So values of 8 bits become what they are.
        number = share * _float8.SCALE[held] if held in convert.FLOAT8 else share
        block.put(number, tiles.share, place)
    return [weight + _tree(shares)]


def add_values(
    tiles: Tiles, token: Any, key: Any, starts: Sequence[Any], at: Any, ask: Ask
) -> None:
    """Adds the values of a unit of keys, from number `key` of a step on, weighted."""
    block, step = tiles.block, 2 * tiles.block.lanes
    for chunk in tiles.chunks():
        shares = tiles.score_at(token, chunk.number) + key * block.lanes
        for head in emit.loop(0, chunk.heads):
            places = [start + (chunk.head + head) * block.size for start in starts]
            for top in range(0, chunk.count, SUMS // 2):
                count = min(SUMS // 2, chunk.count - top)
                first = head * chunk.count + top
                sums = memory.at(at, (chunk.query + first) * tiles.width, "float32")
                weights = memory.at(tiles.share, shares + first, "float32")
                wide = SUMS // count // 2 * step
                for column in range(0, block.columns, wide):
                    columns = range(column, min(block.columns, column + wide), step)
                    asks = ask if top == 0 else None
                    _add(tiles, columns, places, (weights, count), sums, asks)


def _add(
    tiles: Tiles,
    columns: range,
    starts: Sequence[Any],
    weighted: tuple[Any, int],
    sums: Any,
    ask: Ask | None,
) -> None:
    """Adds columns of a unit's values to the sums of some queries: their weights, how many."""
    block, (weights, count) = tiles.block, weighted
    vectors = [column + n for column in columns for n in (0, block.lanes)]
    places = [q * tiles.width + column for q in range(count) for column in vectors]
    totals = [block.vector(sums, place) for place in places]
    for number, start in enumerate(starts):
        values = [side for column in columns for side in _widened(tiles, 2, start, column, ask)]
        before, totals = iter(totals), []
        for q in range(count):
            weight = block.spread(weights, number * block.lanes + q)
            totals += [emit.fma(weight, value, next(before)) for value in values]
    for total, place in zip(totals, places, strict=True):
        block.put(total, sums, place)


def _widened(tiles: Tiles, number: int, start: Any, column: int, ask: Ask | None) -> list[Any]:
    """Two vectors of a key or value, apart or one behind the other; 8-bit floats less `SCALE`."""
    block, pointer = tiles.block, tiles.frame.inputs[number]
    held, lanes = tiles.frame.spec.operands[number].dtype, 2 * tiles.block.lanes
    if ask:
        for n in range(column, column + lanes, block.lanes):
            if n * emit.ITEM_SIZE[held] % ASKED == 0:
                ask(number, start + n)
    if not tiles.apart(number):
        return [memory.load(pointer, start + column + n, held, lanes // 2) for n in (0, lanes // 2)]
    codes = memory.load(pointer, start + column, memory.raw(held), lanes)
    pairs = _float8.less(codes, held) if held in convert.FLOAT8 else codes
    words = vector.bitcast(emit.widen(emit.integer(32), block.lanes), pairs)
    return [convert.half(words, n) for n in range(2)]


def _each_across(values: Sequence[Any]) -> Any:
    """`crosslane.each_across` of sums, far lanes first: of near ones LLVM makes VHADDPS."""
    lanes = range(emit.lanes_of(values[0]))
    values, distance = [*values, *[values[-1]] * (len(lanes) - len(values))], len(lanes) // 2
    while distance:
        kept = [j if not j & distance else j + len(lanes) for j in lanes]
        moved = [j + distance if not j & distance else j - distance + len(lanes) for j in lanes]
        pairs = zip(values[:distance], values[distance:], strict=True)
        values = [crosslane.shuffle(a, b, kept) + crosslane.shuffle(a, b, moved) for a, b in pairs]
        distance //= 2
    return values[0]


def _tree(values: Sequence[Any]) -> Any:
    """The sum of all values, in pairs; their number is a power of two."""
    while len(values) > 1:
        values = [row_totals.add(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
    return values[0]
