"""Both sides of a product in AMX tiles: rows of a, and panels of b."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx.tiles import PAIR, TILE, TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.blocks import PANEL, Rows
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

llvm = dialect("llvm")

WORD = 4
"""Bytes along k that lie together in b: a pair of bfloat16 or four of int8."""

PANEL_ROW = PANEL * WORD
"""Bytes of a row of a panel, and of a row of sums."""

STEP = 2 * TILE
"""Bytes that a step along k takes of a panel, and of a pair of tiles of a."""

ALONG = 2 * TILE_ROWS
"""Elements of bfloat16 along k of a step: a tile of pairs."""

CLASHING = 2048
"""Rows that are a multiple of so many bytes apart: a tile's are in two sets of the first cache."""


@dataclass(frozen=True)
class Sides:
    """Rows of `k` elements of `dtype` from `a` on, and panels from `b` on."""

    a: Any
    b: Any
    dtype: str
    k: Size

    @property
    def row(self) -> Size:
        """Bytes of a row of a."""
        return self.k * emit.ITEM_SIZE[self.dtype]

    @property
    def words(self) -> Size:
        """Rows of a panel."""
        return sizes.ceildiv(self.row, WORD)

    @property
    def steps(self) -> Size:
        """Tiles along k; the last one may have fewer words."""
        return sizes.ceildiv(self.words, TILE_ROWS)

    @property
    def whole(self) -> Size:
        """Tiles along k that are full of elements."""
        return sizes.floordiv(self.row, TILE_ROW)

    @property
    def ends_within(self) -> bool:
        """Whether the last tile along k may have fewer elements."""
        return not isinstance(self.row, int) or self.row % TILE_ROW > 0


class Left:
    """Rows of a as tiles: where they lie, or put on the stack tile by tile, zero beyond k.

    `depth` is the steps that are on the stack at once: all of rows of up to `whole` steps. Of one
    pair of tiles it is `single`, if that is more.
    """

    def __init__(
        self, sides: Sides, height: int, depth: int, whole: int = 0, single: int = 0
    ) -> None:
        self._sides = sides
        steps = sides.steps
        self.depth = steps if isinstance(steps, int) and steps <= max(whole, depth) else depth
        single = min(single, steps) if isinstance(steps, int) else single
        self._single = max(single, self.depth)
        room = max(height * self.depth, PAIR * self._single)
        self._room = host.byte_buffer(room * TILE_ROW, shared="left")
        lies_well = not sides.ends_within and sides.row % CLASHING > 0
        self._could_lie = self.depth == sides.steps and lies_well

    def depth_of(self, rows: Rows) -> Size:
        """Steps of these rows that are on the stack at once."""
        if self._single == self.depth:
            return self.depth
        single = emit.compare("less_equal", emit.as_index(rows.height), PAIR)
        return emit.select(single, emit.index(self._single), self.depth)

    def begin(self, rows: Rows, start: Size, stop: Size) -> None:
        """Puts the steps from `start` to `stop - 1` of what does not lie well on the stack.

        Lines that hold parts of two steps would be loaded twice, and rows that are `CLASHING` bytes
        apart share a few sets of the first cache; whole pairs alone lie well.
        """
        sides = self._sides
        self._start, self._lying = start, emit.index(0)
        if self._could_lie:
            aligned = emit.compare("equal", _address(sides.a) % TILE_ROW, 0)
            self._lying = emit.select(aligned, rows.height - rows.height % PAIR, 0)
        dtype = memory.raw(sides.dtype)
        lanes = TILE_ROW // emit.ITEM_SIZE[dtype]
        full = sizes.least(stop, sizes.floordiv(sides.k, lanes))

        for r in emit.loop(self._lying, rows.height):
            source = (rows.row + r) * sides.k
            place = bytes_at(self._room, self._place(r))

            def copy(step: Any, mask: Any, source: Any = source, place: Any = place) -> None:
                value = memory.load(sides.a, source + step * lanes, dtype, lanes, mask)
                target = bytes_at(place, (step - start) * STEP)
                memory.store(value, target, 0, dtype, alignment=TILE_ROW)

            for step in emit.loop(start, full):
                copy(step, None)
            if sides.ends_within:
                for step in emit.loop(full, stop):
                    copy(step, host.first_lanes(sides.k - step * lanes, lanes))

    def _place(self, r: Size) -> Size:
        """At which byte row `r` of the block begins; its tiles are `STEP` apart."""
        pair, inside = r // PAIR, r % PAIR
        return pair * (self.depth * STEP) + inside * TILE_ROW

    def pair(self, rows: Rows, top: Size) -> Callable[[Any], tuple[list[Any], Any]]:
        """`at(step)`: pointers to both tiles of the pair at `top`, and how far their rows lie."""
        base, along, below, apart = self._at(self._room, self._place(top), STEP, TILE, TILE_ROW)
        if self._could_lie:
            row = self._sides.row
            lies = emit.compare("less", emit.as_index(top), self._lying)
            place = (rows.row + top) * row
            there = self._at(self._sides.a, place, TILE_ROW, TILE_ROWS * row, row)
            put = base, along, below, apart
            base, along, below, apart = (
                emit.select(lies, *way) for way in zip(there, put, strict=True)
            )

        def at(step: Any) -> tuple[list[Any], Any]:
            first = bytes_at(base, (step - self._start) * along)
            return [first, bytes_at(first, below)], apart

        return at

    def _at(self, base: Any, place: Size, *strides: Size) -> tuple[Any, ...]:
        return bytes_at(base, place), *map(emit.as_index, strides)


def _address(pointer: Any) -> Any:
    """Where a pointer points to, as a number."""
    return llvm.ptrtoint(emit.integer(64), pointer)


def bytes_at(base: Any, offset: Size) -> Any:
    """The pointer to byte `offset`."""
    return memory.at(base, offset, "int8")
