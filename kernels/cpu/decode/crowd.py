"""Decoding where so many queries share a key head that they do not stay in the first cache.

Then products take the time, not memory: the keys of a part are turned on the stack, block by block,
and multiplied in tiles as those of prompts are. Sums have the order of `sums`.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cpu.decode.block import Tiles
from heddle.kernels.cpu.flash.ragged_part import Part
from heddle.kernels.cpu.flash.wide_part import WidePart


def attend(tiles: Tiles, part: Part | WidePart, keys: tuple[Any, Any], at: Any) -> None:
    """The sums, at `at`, of a token with the `keys` from and to."""
    block = part.block
    for head in emit.loop(0, tiles.key_heads):

        def sums(head: Any = head) -> Any:
            return memory.at(at, head * (tiles.group * tiles.width), "float32")

        in_place = part.attend_to(head, *keys, sums)
        for number in emit.loop(0, tiles.group):
            row = (head * tiles.group + number) * tiles.width
            if not in_place:
                for column in emit.loop(0, block.width, block.lanes):
                    total = block.vector(block.total, number * block.across + column)
                    block.put(total, at, row + column)
            top, weight = tiles.statistics_of(head, number)
            block.put(block.scalar(block.top, number), at, top)
            block.put(block.scalar(block.weight, number), at, weight)
