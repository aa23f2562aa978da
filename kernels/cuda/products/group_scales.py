"""The scales, or minimums, [n, k / group] that a lane wants for fragments of mma.sync."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma, outputs, staging
from heddle.kernels.sizes import Size

_ALL = outputs.WARP_COLUMNS // 8
_ITEM = 2  # Bytes of a scale.
_COPIED = 4  # Bytes that cp.async copies at least.


def together(depth: int, group: int) -> int:
    """How many groups of a column have their scales in a stage of `depth` elements.

    Those of its elements, or of as many bytes as are copied at least; none where a group may end
    inside of a stage and go on in the next.
    """
    if depth % group and group % depth:
        return 0
    return max(depth // group, _COPIED // _ITEM)


class _Columns:
    """The columns whose sums a lane has: `places` behind its `first` one.

    mma.sync has two neighbours in a lane, of each of two rows. `turned` it has two rows of one.
    """

    def __init__(self, turned: bool) -> None:
        self._turned = turned
        thread = _block.thread()
        self.first: Size = thread % _block.WARP // 4 if turned else thread % 4 * 2
        self.places = [8 * j + i for j in range(_ALL) for i in range(1 if turned else 2)]

    def of_sums(self, scales: Sequence[Any]) -> list[Any]:
        """The scale of each sum, from those of a lane's columns."""
        if self._turned:
            return [scale for scale in scales for _ in range(2)]
        return [scales[2 * j + part % 2] for j in range(_ALL) for part in range(4)]


@dataclass(frozen=True)
class Whose:
    """A warp's columns in a strip of products, and what their scales are.

    Attributes:
        pointers: The scales of each product, or its minimums, in `dtype`.
        each: Columns of each product in the strip.
        first: The warp's first column in the strip.
        column: The strip's first column in each product.
        n: Columns of a product.
        k: Elements of a column.
        group: Those of one scale.
        depth: Those in a stage.
        turned: As `_Columns` has it.
    """

    pointers: Sequence[Any]
    dtype: str
    each: int
    first: Size
    column: Size
    n: Size
    k: Size
    group: int
    depth: int
    turned: bool


def of(whose: Whose, shared: mma.DynamicShared, place: int) -> StagedScales | GroupScales:
    """Those in the stages of the ring, from `place` in each on; else those in memory."""
    if together(whose.depth, whose.group):
        return StagedScales(whose, shared, place)
    return GroupScales(whose)


class StagedScales:
    """Scales that come in the stages of the ring, beside the weights, from `place` in each on.

    A step that asked for them when it needs them would wait for memory.
    """

    def __init__(self, whose: Whose, shared: mma.DynamicShared, place: int) -> None:
        self._shared, self._dtype = shared, whose.dtype
        self._group, self._depth = whose.group, whose.depth
        self._together = together(whose.depth, whose.group)
        self._size = self._together * _ITEM
        self._columns = _Columns(whose.turned)
        self._place = (whose.first + self._columns.first) * self._size + place
        groups = sizes.floordiv(whose.k, whose.group)
        self.parts = [
            staging.Lines(
                staging.Matrix(pointer, whose.dtype, 0, whose.n, groups, chunk=self._size),
                place + i * whose.each * self._size,
                whose.each,
                self._size,
                self._together,
                whose.column,
                True,
                repeats=self._together * whose.group // whose.depth,
            )
            for i, pointer in enumerate(whose.pointers)
        ]

    def load(self, stage: Size, step: Size, inner: Size) -> list[Any]:
        """The scale of each sum of a tile, for the elements of `step` from `inner` on.

        Beyond k it is zero.
        """
        return self._columns.of_sums(self.of_columns(stage, step, inner))

    def of_columns(self, stage: Size, step: Size, inner: Size) -> list[Any]:
        """That of each of the lane's columns."""
        if self._group < self._depth:
            number = inner // self._group
        else:
            number = step // (self._group // self._depth) % self._together
        start, kind = stage + self._place + number * _ITEM, emit.memory_type(self._dtype)
        places = [place * self._size for place in self._columns.places]
        found = [self._shared.load(start + place, kind, 1) for place in places]
        return [convert.from_memory(scale, self._dtype) for scale in found]


class GroupScales:
    """As `StagedScales`, but from memory when they are needed: for groups of any length."""

    def __init__(self, whose: Whose) -> None:
        (self._pointer, *gate), first = whose.pointers, whose.first
        for pointer in gate:
            is_gate = emit.compare("greater_equal", first, whose.each)
            self._pointer = emit.select(is_gate, pointer, self._pointer)
            first = first % whose.each
        self._dtype, self._group, self._depth = whose.dtype, whose.group, whose.depth
        self._groups = sizes.floordiv(whose.k, whose.group)
        self.parts: list[staging.Lines] = []
        self._columns = _Columns(whose.turned)
        column, last = whose.column + first + self._columns.first, whose.n - 1
        self._rows = [
            emit.minimum(column + place, last) * self._groups for place in self._columns.places
        ]

    def load(self, stage: Size, step: Size, inner: Size) -> list[Any]:
        """The scale of each sum of a tile, for the elements of `step` from `inner` on.

        Beyond k it is that of the last group, of weights that are zero there, or meet zeros.
        """
        return self._columns.of_sums(self.of_columns(stage, step, inner))

    def of_columns(self, _stage: Size, step: Size, inner: Size) -> list[Any]:
        """That of each of the lane's columns."""
        group = emit.minimum((step * self._depth + inner) // self._group, self._groups - 1)
        return [_frame.load(self._pointer, row + group, self._dtype, 1) for row in self._rows]
