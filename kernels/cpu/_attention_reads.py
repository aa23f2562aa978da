"""Attention's operands on the stack, in words: queries in rows, keys in the lanes, values beside.

Rows of a head lie far apart in memory, so that few of them would share the first cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.cpu._attention_block import Block, row_of
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, vector = dialect("arith"), dialect("vector")

LOG2_E = math.log2(math.e)


def read_queries(
    frame: host.Frame, block: Block, item: Size, head: Size, first: Size, count: Size
) -> None:
    """Puts the queries on the stack, scaled unless that would round them, and clears the sums."""
    scale = frame.spec.attr("scale") * LOG2_E
    lowest, zero = (
        emit.constant(emit.register_type(block.dtype), number) for number in (-math.inf, 0)
    )
    nothing = emit.constant(emit.register_type(block.word), 0, block.lanes)
    for r in emit.loop(0, count):
        start = row_of(frame, 0, item, head, first + r) * block.size
        for column, rest in _columns(block):
            value = _words(frame, block, 0, start + column * block.group, rest)
            value = value if block.paired else value * scale
            block.put_words(value, block.query, r * block.depth + column)
    # A tile's rows beyond the last query are computed on as well, and dropped.
    tiled = sizes.ceildiv(count, block.rows) * block.rows
    for r in emit.loop(count, tiled):
        for column in emit.loop(0, block.depth, block.lanes):
            block.put_words(nothing, block.query, r * block.depth + column)
    for r in emit.loop(0, tiled):
        block.put(lowest, block.top, r)
        block.put(zero, block.weight, r)
        for column in emit.loop(0, block.width, block.lanes):
            block.put(block.fill(0), block.total, r * block.width + column)


def turn_keys(
    frame: host.Frame, block: Block, item: Size, head: Size, key: Any, present: Any
) -> None:
    """Puts keys `key` to `key + present - 1` on the stack, keys in the lanes."""
    lanes = block.lanes
    for group, mask in host.vectors(0, present, lanes):
        for column, rest in _columns(block):
            lines = []
            for line in range(lanes):
                row = row_of(frame, 1, item, head, key + group + line)
                count: Any = rest
                if mask is not None:
                    # A key beyond the last is not read: its mask is empty.
                    inside = emit.compare("less", group + line, present)
                    count = select(inside, emit.index(rest or lanes * block.group), 0)
                start = row * block.size + column * block.group
                lines.append(_words(frame, block, 1, start, count))
            width = lanes if rest is None else -(-rest // block.group)
            for number, value in enumerate(crosslane.transposed(lines)[:width]):
                block.put_words(value, block.key, (column + number) * block.keys + group)


def copy_values(
    frame: host.Frame, block: Block, item: Size, head: Size, key: Any, present: Any
) -> None:
    """Puts the values of the keys on the stack, side by side: in memory they lie far apart."""
    lanes, pointer = block.lanes, frame.inputs[2]
    dtype = "uint16" if block.paired else frame.spec.operands[2].dtype

    def row_at(number: Any, column: int) -> Any:
        rest = block.size - column
        mask = None if rest >= lanes else host.first_lanes(rest, lanes)
        start = row_of(frame, 2, item, head, key + number) * block.size
        value = memory.load(pointer, start + column, dtype, lanes, mask)
        if not block.paired:
            return value
        return arith.extui(emit.widen(emit.integer(32), lanes), value)

    whole = sizes.floordiv(present, block.group)
    for step in emit.loop(0, whole):
        for column in range(0, block.width, lanes):
            value = row_at(step * block.group, column)
            if block.paired:
                value = value | (row_at(step * 2 + 1, column) << 16)
            block.put_words(value, block.value, step * block.width + column)
    if block.paired:
        with emit.when(emit.compare("less", whole * 2, present)):
            for column in range(0, block.width, lanes):
                block.put_words(
                    row_at(whole * 2, column), block.value, whole * block.width + column
                )


def _columns(block: Block) -> Iterator[tuple[Any, int | None]]:
    """Emits the Python body of a `for column, rest in` this over the vectors of a head's words.

    `rest` is None, or how many elements there are from the column on.
    """
    whole = block.size // (block.lanes * block.group) * block.lanes
    for column in emit.loop(0, whole, block.lanes):
        yield column, None
    if whole * block.group < block.size:
        yield emit.index(whole), block.size - whole * block.group


def _words(frame: host.Frame, block: Block, number: int, start: Any, count: Any) -> Any:
    """A vector of words of operand `number` from element `start` on; None counts all of them."""
    lanes = block.lanes * block.group
    mask = None if count is None else host.first_lanes(count, lanes)
    dtype = "uint16" if block.paired else frame.spec.operands[number].dtype
    value = memory.load(frame.inputs[number], start, dtype, lanes, mask)
    if block.paired:
        return vector.bitcast(emit.widen(emit.integer(32), block.lanes), value)
    return value
