"""Attention's operands on the stack, in words: queries in rows, keys in the lanes, values beside.

Rows of a head lie far apart in memory, so that few of them would share the first cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory, sizes
from heddle.kernels.cpu import _float8
from heddle.kernels.cpu.flash.block import Ahead, Block, nothing
from heddle.kernels.cpu.flash.cut import scale_of
from heddle.kernels.emit import select
from heddle.kernels.mlir import dialect

arith, vector = dialect("arith"), dialect("vector")

StartOf = Callable[[Any], Any]
"""The element at which a row of an operand starts, by its number among those of a block."""


def read_queries(
    frame: host.Frame, block: Block, row: Any, count: Any, tiled: Any, start_of: StartOf
) -> None:
    """Puts the queries on the stack from row `row` on, scaled unless that would round them."""
    scale = scale_of(frame.spec)
    nothing = emit.constant(emit.register_type(block.word), 0, block.lanes)
    for r in emit.loop(0, count):
        start = start_of(r)
        for column, rest in _columns(block):
            value = words_of(frame, block, 0, start + column * block.group, rest)
            value = value if block.paired else value * scale
            block.put_words(value, block.query, (row + r) * block.depth + column)
    # A tile's rows beyond the last query are computed on as well, and dropped.
    for r in emit.loop(row + count, row + tiled):
        for column in emit.loop(0, block.depth, block.lanes):
            block.put_words(nothing, block.query, r * block.depth + column)


def turn_keys(
    frame: host.Frame, block: Block, present: Any, start_of: StartOf, ahead: Ahead = nothing
) -> None:
    """Puts `present` keys on the stack, keys in the lanes."""
    lanes = block.lanes
    for group, mask in host.vectors(0, present, lanes):
        for column, rest in _columns(block):
            ahead((group * block.depth + column * lanes) // lanes**2, 1)
            lines = []
            for line in range(lanes):
                count: Any = rest
                if mask is not None:
                    # A key beyond the last is not read: its mask is empty.
                    inside = emit.compare("less", group + line, present)
                    count = select(inside, emit.index(rest or lanes * block.group), 0)
                start = start_of(group + line) + column * block.group
                lines.append(words_of(frame, block, 1, start, count))
            width = lanes if rest is None else -(-rest // block.group)
            for number, value in enumerate(crosslane.transposed(lines)[:width]):
                block.put_words(value, block.key, (column + number) * block.keys + group)
    # Zeros up to a whole tile of keys: what lies there may be denormal, which is slow to multiply.
    wide = block.pair * lanes
    if not block.paired and wide > lanes:
        zero, behind = block.fill(0), sizes.ceildiv(present, lanes) * lanes
        for group in emit.loop(behind, sizes.ceildiv(present, wide) * wide, lanes):
            for step in emit.loop(0, block.steps):
                block.put(zero, block.key, step * block.keys + group)


def copy_values(
    frame: host.Frame, block: Block, present: Any, start_of: StartOf, ahead: Ahead = nothing
) -> None:
    """Puts the values of `present` keys on the stack side by side: in memory they lie far apart."""
    lanes, pointer = block.lanes, frame.inputs[2]
    held = frame.spec.operands[2].dtype
    dtype = memory.raw(held) if block.paired else held

    def row_at(number: Any, column: int) -> Any:
        rest = block.columns - column
        mask = None if rest >= lanes else host.first_lanes(rest, lanes)
        return memory.load(pointer, start_of(number) + column, dtype, lanes, mask)

    def pairs(first: Any, second: Any) -> Any:
        if held in convert.FLOAT8:
            order = [i // 2 + i % 2 * lanes for i in range(2 * lanes)]
            return _float8.joined(crosslane.shuffle(first, second, order), held)
        words = emit.widen(emit.integer(32), lanes)
        return arith.extui(words, first) | (arith.extui(words, second) << 16)

    whole = sizes.floordiv(present, block.group)
    for step in emit.loop(0, whole):
        ahead(step, 1)
        for column in range(0, block.width, lanes):
            value = row_at(step * block.group, column)
            if block.paired:
                value = pairs(value, row_at(step * 2 + 1, column))
            block.put_words(value, block.value, step * block.width + column)
    if block.paired:
        with emit.when(emit.compare("less", whole * 2, present)):
            for column in range(0, block.width, lanes):
                last = row_at(whole * 2, column)
                words = pairs(last, emit.like(last, 0))
                block.put_words(words, block.value, whole * block.width + column)


def _columns(block: Block) -> Iterator[tuple[Any, int | None]]:
    """Emits the Python body of a `for column, rest in` this over the vectors of a head's words.

    `rest` is None, or how many elements there are from the column on.
    """
    whole = block.size // (block.lanes * block.group) * block.lanes
    for column in emit.loop(0, whole, block.lanes):
        yield column, None
    if whole * block.group < block.size:
        yield emit.index(whole), block.size - whole * block.group


def words_of(frame: host.Frame, block: Block, number: int, start: Any, count: Any) -> Any:
    """A vector of words of operand `number` from element `start` on; None counts all of them."""
    lanes = block.lanes * block.group
    mask = None if count is None else host.first_lanes(count, lanes)
    held, pointer = frame.spec.operands[number].dtype, frame.inputs[number]
    if block.paired and held in convert.FLOAT8:
        return _float8.joined(memory.load(pointer, start, "uint8", lanes, mask), held)
    value = memory.load(pointer, start, "uint16" if block.paired else held, lanes, mask)
    if block.paired:
        return vector.bitcast(emit.widen(emit.integer(32), block.lanes), value)
    return value
