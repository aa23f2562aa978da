"""Attention's operands on the stack as `reads`, each number as a sum of bfloat16.

A pair is of numbers 16 apart, elements or keys, so that splitting two vectors gives it in each
lane.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import convert, crosslane, emit, host, memory
from heddle.kernels.cpu.amx.attention import clear_values
from heddle.kernels.cpu.amx.parts import PARTS, split
from heddle.kernels.cpu.amx.strip import HALVES
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROWS
from heddle.kernels.cpu.flash import reads
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.cut import scale_of
from heddle.kernels.cpu.flash.reads import StartOf
from heddle.kernels.emit import select
from heddle.kernels.sizes import Size


def joined(low: Any, high: Any) -> list[Any]:
    """The parts of two vectors, in pairs."""
    parts = (split(value, PARTS["float32"]) for value in (low, high))
    return [(one >> 16) | (other & convert.HIGH) for one, other in zip(*parts, strict=True)]


def put_queries(frame: host.Frame, block: Block, count: Any, tiled: Any, start_of: StartOf) -> None:
    """Puts `count` queries on the stack as the block wants them, and zeros up to row `tiled`."""
    if block.split > 1:
        read_queries(frame, block, count, tiled, start_of)
    else:
        reads.read_queries(frame, block, 0, count, tiled, start_of)


def put_keys(
    frame: host.Frame, block: Block, present: Any, key_start: StartOf, value_start: StartOf
) -> None:
    """Puts `present` keys and their values on the stack as the block wants them."""
    if block.split > 1:
        turn_keys(frame, block, present, key_start)
        copy_values(frame, block, present, value_start)
        return
    reads.turn_keys(frame, block, present, key_start)
    reads.copy_values(frame, block, present, value_start)
    if block.tiled:
        clear_values(block, present)


def read_queries(
    frame: host.Frame, block: Block, count: Any, tiled: Any, start_of: StartOf
) -> None:
    """Puts the queries on the stack, scaled."""
    scale, steps = scale_of(frame.spec), range(0, block.size, PAIR)

    def put(pairs: list[Any], r: Any, step: int) -> None:
        for part, word in enumerate(pairs):
            place = part * block.query_part + r * block.depth + step // 2
            block.put_words(word, block.query, place)

    for r in emit.loop(0, count):
        start = start_of(r)
        for step in steps:
            halves = (_read(frame, 0, start + step + half) * scale for half in HALVES)
            put(joined(*halves), r, step)
    zero = emit.constant(emit.register_type(block.word), 0, block.lanes)
    for r in emit.loop(count, tiled):
        for step in steps:
            put([zero] * block.split, r, step)


def turn_keys(frame: host.Frame, block: Block, present: Any, start_of: StartOf) -> None:
    """Puts `present` keys on the stack, keys in the lanes."""
    lanes = block.lanes
    for group, mask in host.vectors(0, present, lanes):
        for step in emit.loop(0, block.size, PAIR):
            halves = []
            for half in HALVES:
                lines = []
                for line in range(lanes):
                    inside = mask if mask is None else _inside(group + line, present, lanes)
                    start = start_of(group + line) + step + half
                    lines.append(_read(frame, 1, start, inside))
                halves.append(crosslane.transposed(lines))
            for number, pair in enumerate(zip(*halves, strict=True)):
                place = (step // 2 + number) * block.keys + group
                for part, word in enumerate(joined(*pair)):
                    block.put_words(word, block.key, part * block.key_part + place)


def copy_values(frame: host.Frame, block: Block, present: Any, start_of: StartOf) -> None:
    """Puts the values of `present` keys on the stack, and zeros for those of the block's others."""

    def copied(whole: bool) -> list[Any]:
        for step in emit.loop(0, TILE_ROWS):
            for column in range(0, block.width, block.lanes):
                halves = []
                for number in (step, step + TILE_ROWS):
                    inside = None if whole else _inside(number, present, block.lanes)
                    halves.append(_read(frame, 2, start_of(number) + column, inside))
                for part, word in enumerate(joined(*halves)):
                    place = part * block.value_part + step * block.width + column
                    block.put_words(word, block.value, place)
        return []

    whole = emit.compare("equal", emit.as_index(present), block.keys)
    emit.either(whole, [], lambda: copied(True), lambda: copied(False))


def _inside(number: Any, present: Size, lanes: int) -> Any:
    """The mask of a key's lanes: none of one that is not there."""
    there = emit.compare("less", number, emit.as_index(present))
    return host.first_lanes(select(there, emit.index(lanes), 0), lanes)


def _read(frame: host.Frame, number: int, start: Any, mask: Any = None) -> Any:
    return memory.load(frame.inputs[number], start, "float32", TILE_ROWS, mask)
