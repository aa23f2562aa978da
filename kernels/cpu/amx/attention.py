"""Attention in AMX tiles: strips of 32 queries by blocks of 32 keys that are on the stack.

A strip goes over all blocks that are there, and stays in the first cache meanwhile. Sums of
exponentials are a column of values that are one. What is taken off a query's scores is the greatest
one of the first block that it sees, and changes only where exponentials would grow beyond `LIMIT`:
bfloat16 has the range of float32, and so nothing is lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cpu.amx.strip import ASKS, UNSEEN, Strip, do
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROWS
from heddle.kernels.cpu.flash.block import Block, Seen
from heddle.kernels.cpu.products.asks import Ask
from heddle.kernels.emit import select

ONE = 0x3F803F80
"""A pair of ones."""


def clear(block: Block, count: Any, stop: Any) -> None:
    """No key was seen by `count` queries, nor by the rows behind them up to row `stop - 1`.

    Of those nothing is taken off: their scores are zero, and shall not be beyond the limit.
    """
    ones = emit.constant(emit.register_type(block.word), ONE, block.lanes)
    for place in range(0, TILE_ROWS * TILE_ROWS, block.lanes):
        block.put_words(ones, block.peak, place)
    unseen, zero = (
        emit.constant(emit.register_type(block.dtype), number) for number in (UNSEEN, 0)
    )
    for r in emit.loop(0, stop):
        block.put(select(emit.compare("less", r, count), unseen, zero), block.top, r)
        for column in range(0, block.across, block.lanes):
            block.put(block.fill(0), block.total, r * block.across + column)


def attend(
    block: Block,
    count: Any,
    span_at: Callable[[Any], Seen],
    seen_at: Callable[[Any, Any], Seen],
    asks_at: Callable[[Any, Any], Sequence[Ask]] = lambda top, steps: (),
) -> None:
    """Brings the sums of `count` queries forward.

    The queries from `top` to `top + 31` attend to `span_at(top)` of all keys on the
    stack, and to `seen_at(top, number)` of those of a block. Beside them goes each of
    `asks_at(top, steps)` in so many steps.
    """
    for top in emit.loop(0, count, PAIR):
        span = span_at(top)
        first, stop = emit.as_index(span.start) // block.keys, sizes.ceildiv(span.stop, block.keys)

        def strip_at(number: Any, top: Any = top) -> Strip:
            rows = sizes.least(emit.index(PAIR), count - top)
            return Strip(block, top, rows, number, number)

        with emit.when(emit.compare("less", first, stop)):
            asks = asks_at(top, (stop - first) * ASKS)
            do(strip_at(first).scores())
            for number in emit.loop(first, stop):
                before, strip, after = (strip_at(number + step) for step in (-1, 0, 1))
                strip.asks, strip.step = asks, (number - first) * ASKS
                strip.finish(seen_at(top, number))
                begins = emit.compare("equal", number, first)
                ends = emit.compare("equal", number + 1, stop)
                with emit.when(begins):
                    strip.raise_shifts()

                (beyond,) = strip.between(begins, ends, before, after)
                with emit.when(beyond):
                    strip.raise_shifts()
                    strip.exponentials()
            do(strip_at(stop - 1).sums())


def clear_values(block: Block, present: Any) -> None:
    """Zeros where a tile reads values beyond those of the `present` keys."""
    stop = sizes.ceildiv(present, PAIR) * TILE_ROWS
    for step in emit.loop(sizes.ceildiv(present, 2), stop):
        for column in range(0, block.width, block.lanes):
            zero = emit.constant(emit.register_type(block.word), 0, block.lanes)
            block.put_words(zero, block.value, step * block.width + column)
