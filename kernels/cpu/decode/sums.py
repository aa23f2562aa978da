"""The sums of a token that decodes: of a part of its row, joined with those of others, written.

Of each query there are the greatest score, the sum of exponentials and the weighted values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from heddle.kernels import emit, host, rows
from heddle.kernels.cpu.decode.block import Chunk, Tiles
from heddle.kernels.cpu.decode.parts import STEP
from heddle.kernels.cpu.flash.shares import with_sink, write_apart
from heddle.kernels.functions.powers_of_two import exp2_falling, finite
from heddle.kernels.mlir import dialect

vector = dialect("vector")

SLACK = 6.0
"""By how much a score may be greater than what is taken off before sums are scaled.

Exponentials are up to 2^6 then, of which `exp2_falling` is as exact, and finite times a `SCALE`.
"""


def combined(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """All values combined, in pairs."""
    values = list(values)
    while len(values) > 1:
        values = [reduce(combine, values[i : i + 2]) for i in range(0, len(values), 2)]
    return values[0]


def hide(tiles: Tiles, base: Any, seen: tuple[Any, Any]) -> None:
    """A vector's scores of a step, at `base`, become -inf but those of keys from and to `seen`."""
    block, (low, high) = tiles.block, seen
    with emit.when(emit.compare("less", high, STEP) | emit.compare("greater", low, 0)):
        for key in emit.loop(0, STEP):
            outside = emit.compare("less_equal", high, key) | emit.compare("greater", low, key)
            with emit.when(outside):
                block.put(block.fill(-math.inf), tiles.score, base + key * block.lanes)


def raised(before: Any, top: Any) -> Any:
    """What is taken off scores whose greatest is `top`: what was, unless that is much less."""
    return emit.select(emit.compare("greater", top, before + SLACK), top, before)


def clear(tiles: Tiles, at: Any) -> None:
    """No key was seen by a token, whose sums are at `at`."""
    block = tiles.block
    for chunk in tiles.chunks():
        top, weight = tiles.statistics_at(chunk)
        block.put(block.fill(-math.inf), at, top)
        block.put(block.fill(0), at, weight)
    for place in emit.loop(0, tiles.queries * tiles.width, block.lanes):
        block.put(block.fill(0), at, place)


def bring_forward(tiles: Tiles, chunk: Chunk, at: Any, fade: Any) -> None:
    """Scales the weighted values of a chunk's queries, unless that changes none of them."""
    block = tiles.block
    changed = emit.compare("not_equal", fade, 1.0)
    with emit.when(vector.reduction(emit.integer(1), vector.CombiningKind.OR, changed)):
        block.put(fade, tiles.fade, 0)
        for lane in emit.loop(0, chunk.used):
            factor = block.spread(tiles.fade, lane)
            row = (chunk.query + lane) * tiles.width
            for column in emit.loop(row, row + block.width, block.lanes):
                block.put(block.vector(at, column) * factor, at, column)


def join(tiles: Tiles, total: Any, part: Any) -> None:
    """Adds a part's sums of a token to those of the parts before it."""
    block = tiles.block
    for chunk in tiles.chunks():
        top_at, weight_at = tiles.statistics_at(chunk)
        tops = [block.vector(side, top_at) for side in (total, part)]
        after = emit.maximum(*tops)
        fades = [exp2_falling(top - finite(after)) for top in tops]
        weights = [
            block.vector(side, weight_at) * fade
            for side, fade in zip((total, part), fades, strict=True)
        ]
        block.put(after, total, top_at)
        block.put(weights[0] + weights[1], total, weight_at)
        for number, fade in enumerate(fades):
            block.put(fade, tiles.score, number * block.lanes)
        for lane in emit.loop(0, chunk.used):
            factors = [block.spread(tiles.score, lane + n * block.lanes) for n in range(2)]
            row = (chunk.query + lane) * tiles.width
            for column in emit.loop(row, row + block.width, block.lanes):
                before = block.vector(total, column) * factors[0]
                value = block.vector(part, column)
                block.put(emit.fma(value, factors[1], before), total, column)


def write(tiles: Tiles, at: Any, result_row: Any) -> None:
    """Writes the results of a token from `result_row` on; its sums are done with."""
    block, finish = tiles.block, rows.Finish(tiles.frame, tiles.block.lanes)
    for chunk in tiles.chunks():
        top, weight_at = tiles.statistics_at(chunk)
        weight = block.vector(at, weight_at)

        def beside(chunk: Chunk = chunk, top: Any = top) -> tuple[Any, Any]:
            return chunk.query, block.vector(at, top)

        block.put(with_sink(tiles.frame, weight, beside, chunk.used), at, weight_at)
        for lane in emit.loop(0, chunk.used):
            share = block.spread(at, weight_at + lane)
            out_at = finish.row(result_row + chunk.query + lane)
            row = (chunk.query + lane) * tiles.width
            if apart := tiles.apart(2):
                write_apart(block, at, row, share, out_at, apart)
                continue
            for column, mask in host.vectors(0, block.columns, block.lanes):
                out_at(column, mask, block.vector(at, row + column) * share)
