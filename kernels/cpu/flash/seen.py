"""Which keys of a block a tile of dense attention's queries attends to, and its masks."""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.flash.asks import Queries
from heddle.kernels.cpu.flash.block import Block, Seen
from heddle.kernels.cpu.flash.cut import ordered
from heddle.kernels.cpu.ranking.histogram import any_lane
from heddle.kernels.emit import select
from heddle.kernels.sizes import Size


class Tile:
    """The queries from `top` on of a task's by the block of keys from `key` on."""

    def __init__(
        self, frame: host.Frame, block: Block, query: Queries, top: Any, key: Any, present: Any
    ) -> None:
        self.frame, self.block, self.query, self.top = frame, block, query, top
        self.key, self.present = key, present
        self.queries, self.keys = (frame.size(ordered(frame.spec, n)[2]) for n in (0, 1))

    def seen(self) -> Seen:
        """The keys that the queries attend to."""
        block, last = self.block, self.block.rows - 1
        stop = self._visible(last)
        whole = emit.compare("equal", sizes.mod(stop, block.pair * block.lanes), 0)
        if self.frame.spec.attr("causal"):
            whole = whole & emit.compare("equal", self._visible(0), stop)
        start: Size = 0
        if self.frame.spec.attr("window"):
            whole = whole & emit.compare("less_equal", self._hidden(last), 0)
            start = sizes.greatest(self._hidden(0), 0)
        return Seen(start, stop, whole, self._finished, self._changed())

    def _changed(self) -> Any:
        """Whether the mask may change scores: where it is one for all queries, it is looked at."""
        block, spec = self.block, self.frame.spec
        if not spec.attr("masked") or not block.tiled:
            return bool(spec.attr("masked"))
        heads, queries = ((1,) * 4 + spec.operands[3].shape)[-3:-1]
        if block.mask != "bool" or (heads, queries) != (1, 1):
            return emit.constant(emit.integer(1), 1)
        place, changed = self.query.place(self._row(0)), emit.constant(emit.integer(1), 0)
        for column in range(0, block.keys, block.lanes):
            there = host.first_lanes(self.present - column, block.lanes)
            key = self.key + column
            score = _apply_mask(self.frame, block, block.fill(0), place, key, there)
            changed = changed | any_lane(emit.compare("less", score, 0.0))
        return changed

    def _behind(self, r: Any) -> Any:
        """How many keys there are from the block on to the one at row r's position."""
        position = self.query.place(self._row(r))[2]
        return position + (self.keys - self.queries) + 1 - self.key

    def _row(self, r: Any) -> Any:
        """Which of the task's queries row `r` is: beyond all queries the last of them."""
        last = self.queries * self.query.group - 1 - self.query.first
        return sizes.least(self.top + r, last)

    def _visible(self, r: Any) -> Any:
        """How many keys of the block row `r` attends to."""
        if not self.frame.spec.attr("causal"):
            return self.present
        return sizes.greatest(sizes.least(self._behind(r), self.present), 0)

    def _hidden(self, r: Any) -> Any:
        """How many keys of the block are before the window of row `r`; may be negative."""
        return self._behind(r) - self.frame.spec.attr("window")

    def _finished(self, r: Any, column: Any, score: Any, partial: bool) -> Any:
        spec, block = self.frame.spec, self.block
        visible = host.first_lanes(self._visible(r) - column, block.lanes) if partial else None
        if partial and spec.attr("window"):
            before = host.first_lanes(self._hidden(r) - column, block.lanes)
            visible = visible & (before ^ True)
        score = block.scaled(score)
        place = self.query.place(self._row(r))
        score = _apply_mask(self.frame, block, score, place, self.key + column, visible)
        return select(visible, score, -math.inf) if partial else score


def _apply_mask(
    frame: host.Frame, block: Block, score: Any, place: tuple[Size, ...], key: Any, lanes: Any
) -> Any:
    """The scores from `key` on under the mask operand, which broadcasts along any axis."""
    if not frame.spec.attr("masked"):
        return score
    operand, pointer = frame.spec.operands[3], frame.inputs[3]
    extents = (1,) * (4 - len(operand.shape)) + operand.shape
    offset, stride = emit.index(0), emit.index(1)
    for extent, coordinate in reversed(list(zip(extents, (*place, key), strict=True))):
        if extent != 1:
            offset = offset + stride * coordinate
            stride = stride * frame.size(extent)
    if extents[-1] == 1:
        value = emit.splat(memory.load(pointer, offset, operand.dtype), block.lanes)
    else:
        value = memory.load(pointer, offset, operand.dtype, block.lanes, lanes)
    if operand.dtype == "bool":
        return select(value, score, -math.inf)
    return score + value
