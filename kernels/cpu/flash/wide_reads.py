"""Operands of attention on the stack as `heddle.kernels.cpu.amx.wide` has them, in whole tiles."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from heddle.kernels import crosslane, emit, host, memory, sizes
from heddle.kernels.cpu.amx.strip import WORD
from heddle.kernels.cpu.amx.tiles import TILE_ROWS, WORDS
from heddle.kernels.cpu.amx.wide import SUMS
from heddle.kernels.cpu.amx.wide_sides import Sides
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.reads import StartOf, words_of
from heddle.kernels.emit import select
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")


def put_queries(frame: host.Frame, block: Block, count: Any, start_of: StartOf) -> None:
    """Puts `count` queries on the stack, queries in the lanes, and zeros up to a whole tile."""
    lanes, depth = block.lanes, block.steps // TILE_ROWS
    for top in emit.loop(0, count, TILE_ROWS):
        for step in emit.loop(0, depth):
            lines = []
            for line in range(TILE_ROWS):
                there = _present(top + line, count, lanes * block.group)
                start = start_of(top + line) + step * (TILE_ROWS * block.group)
                lines.append(words_of(frame, block, 0, start, there))
            base = (top // TILE_ROWS * depth + step) * WORDS
            for number, value in enumerate(crosslane.transposed(lines)):
                block.put_words(value, block.query, base + number * TILE_ROWS)


def put_keys(
    frame: host.Frame, block: Block, sides: Sides, present: Any, start_of: StartOf
) -> None:
    """Notes where tiles of `present` keys and their values are.

    They are copied where they do not lie evenly in memory, or have to be widened; those of keys
    that there are not are zeros then. Behind the last tile it comes again, up to whole groups.
    """
    count = sizes.ceildiv(present, TILE_ROWS)
    evenly = frame.spec.operands[1].dtype == frame.spec.operands[2].dtype == "bfloat16"
    bases = [llvm.ptrtoint(emit.integer(64), frame.inputs[number]) for number in (1, 2)]
    kinds = [emit.integer(64)] * 4

    def copied(number: Any) -> list[Any]:
        rows = ((1, block.key, block.steps), (2, block.value, block.width // block.group))
        for r in emit.loop(0, TILE_ROWS):
            key = number * TILE_ROWS + r
            for operand, target, across in rows:
                start = start_of(key)
                for column in emit.loop(0, across, TILE_ROWS):
                    there = _present(key, present, block.lanes * block.group)
                    word = words_of(frame, block, operand, start + column * block.group, there)
                    block.put_words(word, target, key * across + column)
        found = []
        for _, target, across in rows:
            start = memory.at(target, number * (TILE_ROWS * across), block.word)
            found += [llvm.ptrtoint(emit.integer(64), start), emit.index(across * WORD)]
        return found

    for number in emit.loop(0, count):
        if not evenly:
            sides.put(number, copied(number))
            continue
        starts = [start_of(number * TILE_ROWS + r) for r in range(TILE_ROWS)]
        apart = starts[1] - starts[0]
        uneven = emit.index(0)
        for before, after in pairwise(starts):
            uneven = uneven | (after - before - apart)
        whole = emit.compare("less_equal", number * TILE_ROWS + TILE_ROWS, present)
        direct = whole & emit.compare("equal", uneven, 0)
        here = [value for base in bases for value in (base + starts[0] * 2, apart * 2)]
        found = emit.either(direct, kinds, partial(list, here), partial(copied, number))
        sides.put(number, found)
    last = count - 1
    for number in emit.loop(count, sizes.ceildiv(count, SUMS) * SUMS):
        sides.put(number, sides.noted(last))


def ask(frame: host.Frame, number: int, start: Any, level: int) -> None:
    """Asks for the lines of a key (1) or a value (2)."""
    dtype = frame.spec.operands[number].dtype
    size = frame.spec.result.shape[-1] if number == 2 else frame.spec.operands[1].shape[-1]
    assert isinstance(size, int)
    for element in range(0, size, LINE // emit.ITEM_SIZE[dtype]):
        memory.prefetch(frame.inputs[number], start + element, dtype, level)


def _present(number: Any, count: Size, lanes: int) -> Any:
    """As many lanes of the row of that number as there are: none behind the first `count` rows."""
    return select(emit.compare("less", number, emit.as_index(count)), emit.index(lanes), 0)
