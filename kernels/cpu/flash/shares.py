"""What makes a query's result of its weighted values: one over the sum of its exponentials.

A sink takes part as one more key whose values are zeros, once all keys are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.kernels import crosslane, emit, host, memory
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.emit import select
from heddle.kernels.functions.powers_of_two import LOG2_E, exp2_falling, finite
from heddle.kernels.row_spans import sinks_of

MOST = 3e38
"""The most that a sink counts: more would be infinite in units of ln(2)."""


def inverse(weight: Any) -> Any:
    """One over sums of exponentials, 1 of a query that has seen no key."""
    return 1.0 / select(emit.compare("equal", weight, 0.0), 1.0, weight)


def with_sink(
    frame: host.Frame, weight: Any, beside: Callable[[], tuple[Any, Any]], count: int = 1
) -> Any:
    """`inverse` of the sums `weight`, to which those of sinks, where there are any, are added.

    `beside()`: the head, and what was taken off its scores in units of ln(2); the greater of it and
    the sink is then taken off both. A vector is of `count` heads from that one on.
    """
    number = sinks_of(frame.spec)
    if number is None:
        return inverse(weight)
    (head, top), lanes = beside(), emit.lanes_of(weight)
    mask = None if count == lanes else host.first_lanes(count, lanes)
    sink = memory.load(frame.inputs[number], head, "float32", lanes, mask) * LOG2_E
    sink = select(emit.compare("greater", sink, MOST), MOST, sink)
    shift = finite(emit.maximum(sink, top))
    fade = exp2_falling(top - shift)
    return inverse(emit.fma(weight, fade, exp2_falling(sink - shift))) * fade


def write_apart(
    block: Block, sums: Any, row: Any, share: Any, out_at: Callable[..., Any], apart: int
) -> None:
    """Writes the results of a query whose sums of odd columns lie `apart` from those of even ones.

    They begin at number `row` of `sums`, and are multiplied by `share`.
    """
    lanes = block.lanes
    order = [i // 2 + i % 2 * lanes for i in range(2 * lanes)]
    for column in emit.loop(0, block.columns, 2 * lanes):
        place = row + (column if apart == lanes else column // 2)
        sides = [block.vector(sums, place + n) * share for n in (0, apart)]
        for n in (0, lanes):
            out_at(column + n, None, crosslane.shuffle(sides[0], sides[1], order[n : n + lanes]))
