"""Attention to latents on tensor cores: values are the first columns of keys, the same bytes.

As in `attend`, but 16 rows of 512 sums are more than a warp's registers hold. So each of eight
warps computes scores of 16 rows and 16 keys, or a part of each product of theirs, and leaves them
in shared memory; then each takes all scores of its rows, and has some columns of their values.
Keys come to shared memory once for both, and for all heads (DeepSeek-V2, arXiv:2405.04434).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda.flash import softmax, stages
from heddle.kernels.cuda.flash.warp import Warp, WarpTile
from heddle.kernels.cuda.products import mma
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

vector = dialect("vector")

WARPS = 8
"""Warps of a block."""

ROWS = 64
"""Of a tile; keys of no more rows are split."""

PARTS = {16: 32, 32: 16, ROWS: 16}
"""Of the keys of a sequence, at most, where a query has up to so many rows.

Who brings them together reads 2 KB of each row and part.
"""

_KEYS = 32  # Of a stage.
_VALUES = (128, 256, 512)  # Columns, of which each warp has whole spans or a power of two.
_ROOM, _ROOM_OF_SM_90A = 160 * 1024, 224 * 1024  # Of a block that is alone on a multiprocessor.
_STAGES = 4  # At most.
_PITCH = 40  # From one row of scores to the next: eight rows of pairs meet no bank twice.


def fits(spec: Spec) -> bool:
    """Whether tensor cores take the operands as latents."""
    q, k = spec.operands[:2]
    size, values = q.shape[-1], spec.result.shape[-1]
    if not spec.attr("latent") or k.dtype != q.dtype or q.dtype not in ("float16", "bfloat16"):
        return False
    if not isinstance(size, int) or size % ROWS or values not in _VALUES:
        return False
    capped = spec.attr("softcap", 0.0) > softmax.MOST_CAP
    return not capped and LatentLayout.of(spec, ROWS).total <= _ROOM


def parts(spec: Spec) -> int:
    """Blocks that share out the query heads of a key head: each takes those of one query at once.

    They read the same keys, one soon after the other.
    """
    group = group_of(spec)
    return next(n for n in range(1, group + 1) if group % n == 0 and group // n <= ROWS)


def shared_bytes(spec: Spec, arch: str = "") -> int:
    """Dynamic shared memory of a block, on one architecture or on any."""
    return max(LatentLayout.of(spec, rows, arch).total for rows in tiles(spec))


def tiles(spec: Spec) -> tuple[int, ...]:
    """Rows of the tiles that there are: small ones where a query has no more."""
    group = group_of(spec) // parts(spec)
    few = next(rows for rows in (16, 32, ROWS) if group <= rows)
    return tuple(dict.fromkeys((few, ROWS)))


def most_parts(spec: Spec) -> int:
    """Of the keys of a sequence."""
    return PARTS[tiles(spec)[0]]


@dataclass(frozen=True)
class LatentLayout(stages.Layout):
    """Where things are in shared memory, for keys of `size` whose first `columns` are values."""

    columns: int = 0

    @staticmethod
    def of(spec: Spec, rows: int, arch: str = "") -> LatentLayout:
        """With as many stages as there is room for."""
        size, values = spec.operands[0].shape[-1], spec.result.shape[-1]
        assert isinstance(size, int)
        assert isinstance(values, int)
        one = LatentLayout(size, rows, False, columns=values)
        room = _ROOM_OF_SM_90A if arch == "sm_90a" else _ROOM
        count = max(2, min(_STAGES, (room - one.first_stage) // one.stage))
        return LatentLayout(size, rows, False, count, values)

    @property
    def warps(self) -> int:
        """See `Layout`."""
        return WARPS

    @property
    def operands(self) -> tuple[int, ...]:
        """See `Layout`: keys alone."""
        return (1,)

    @property
    def copies(self) -> int:
        """See `Layout`: no two warps have sums of the same results."""
        return 1

    @property
    def is_wide(self) -> bool:
        """See `Layout`."""
        return True

    @property
    def step(self) -> int:
        """See `Layout`."""
        return _KEYS

    @property
    def value_offset(self) -> int:
        """See `Layout`: a value begins where its key does."""
        return 0

    @property
    def depths(self) -> int:
        """Warps that share out the products of the same 16 rows and keys."""
        return WARPS * 16 * 16 // (self.rows * _KEYS)

    @property
    def scores(self) -> int:
        """Where scores are: of each row, as often as its products are shared out."""
        return self.rows * self.queries.size

    @property
    def first_stage(self) -> int:
        """See `Layout`."""
        return self.scores + self.depths * self.rows * _PITCH * 4

    @property
    def maxima(self) -> int:
        """See `Layout`."""
        return self.rows * self.pitch * 4

    @property
    def total(self) -> int:
        """See `Layout`."""
        return max(self.first_stage + self.stages * self.stage, self.maxima + self.rows * 8)

    def tile(self) -> WarpTile:
        """What the warp has of the results: 16 lines of them, and some columns."""
        down, warp = self.rows // 16, _block.thread() // _block.WARP
        columns = self.columns * down // WARPS
        return WarpTile(warp % down * 16, 1, 0, _KEYS, warp // down * columns, columns)


def _meet() -> None:
    """Waits until all warps have left their scores."""
    _block.barrier()


class LatentWarp(Warp):
    """The state of a warp's tile and its steps, of which all warps take each together."""

    _layout: LatentLayout

    def __init__(
        self,
        dtype: str,
        layout: LatentLayout,
        shared: mma.DynamicShared,
        tile: WarpTile,
        scores: softmax.Scores,
    ) -> None:
        super().__init__(dtype, layout, shared, tile, scores)
        self._own = range(self._slices // layout.depths)
        if layout.rows == 16:  # Few sums, and a part of the queries: both stay in registers.
            self._held = [self._queries(i, 0) for i in self._own]

    def _first_value(self, tile: WarpTile) -> Size:
        lane = _block.thread() % _block.WARP
        return self._layout.keys.at(lane % 16, tile.column // 8 + lane // 16)

    def _place(self, tile: WarpTile) -> None:
        """Also works out where the lane puts the first scores, and where it takes them from."""
        lane, layout = _block.thread() % _block.WARP, self._layout
        down = layout.rows // 16
        warp = _block.thread() // _block.WARP
        line, rest = warp % down * 16, warp // down
        across = _KEYS // 16
        key, depth = rest % across * 16, rest // across
        # A warp's slices are as far apart as there are warps for them: see `Lines.beyond`.
        self._q = layout.queries.at(line + lane % 16, lane // 16 + depth * 2)
        self._k = layout.keys.at(key + lane % 8 + lane // 16 * 8, lane // 8 % 2 + depth * 2)
        own = (depth * layout.rows + line + self.group) * _PITCH + key + self.member * 2
        all_ = (tile.line + self.group) * _PITCH + self.member * 2
        self._put, self._take = (layout.scores + place * 4 for place in (own, all_))

    def _queries(self, i: int, down: int) -> list[Any]:
        return super()._queries(i * self._layout.depths, down)

    def _key_fragments(self, stage: Size, pair: int, i: int) -> list[Any]:
        return super()._key_fragments(stage, pair, i * self._layout.depths)

    def _scores(self, stage: Size) -> list[Any]:
        """Those of the warp's lines, of which all warps compute some."""
        self._leave(self._products(stage))
        _meet()
        found = []
        for tile, half in itertools.product(range(_KEYS // 8), range(2)):
            place = self._take + (half * 8 * _PITCH + tile * 8) * 4
            pairs = [self._pair(place, depth) for depth in range(self._layout.depths)]
            found += [sum(values[1:], values[0]) for values in zip(*pairs, strict=True)]
        return found

    def _pair(self, place: Size, depth: int) -> list[Any]:
        element = emit.register_type("float32")
        place = place + depth * self._layout.rows * _PITCH * 4
        return _block.lanes(self._shared.load(place, element, 2))

    def _products(self, stage: Size) -> list[Any]:
        """The warp's part of 16 x 16 scores."""
        sums = [emit.constant(emit.register_type("float32"), 0.0)] * 8
        for i in self._own:
            queries = self._held[i] if self._held else self._queries(i, 0)
            self._multiply([queries], self._key_fragments(stage, 0, i), sums, 2, 0)
        return sums

    def _leave(self, scores: Sequence[Any]) -> None:
        for place in range(0, len(scores), 2):
            pair = vector.from_elements(
                emit.widen(scores[0].type, 2), list(scores[place : place + 2])
            )
            tile, half = place // 4, place % 4 // 2
            self._shared.store(pair, self._put + (half * 8 * _PITCH + tile * 8) * 4)
