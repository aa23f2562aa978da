"""The way out of a product by wgmma: a warp's 16 rows go through shared memory to the outputs.

A panel is those rows of as many columns as fill lines of 128 bytes. Each warp has two: TMA stores
one while the other is filled, and goes on while the next tile is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit
from heddle.kernels.cuda import _block, _frame, _mma, _pieces, _staging, _tma, _warpgroup
from heddle.kernels.cuda._result import Place
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

vector = dialect("vector")

WARP_ROWS = 16
"""Rows of a warp, of the 64 of its warpgroup."""

PANEL = WARP_ROWS * _staging.LINE
"""Bytes of a panel."""

PANELS = 2
"""Of each warp."""


def by_tma(spec: Spec) -> bool:
    """Whether TMA may store what is computed: one output, which fits where the sums were."""
    (output, *others), result = spec.outputs, spec.result
    item = emit.ITEM_SIZE[output.dtype]
    n = result.shape[-1]
    whole = not isinstance(n, int) or n * item % _mma.CHUNK == 0
    return not others and item == emit.ITEM_SIZE[result.dtype] and whole


@dataclass(frozen=True)
class Panel:
    """One of a warp's, from byte `start` of shared memory on, as `dtype`."""

    shared: _mma.DynamicShared
    dtype: str
    start: Size

    @property
    def each(self) -> int:
        """Elements of a chunk."""
        return _mma.CHUNK // emit.ITEM_SIZE[self.dtype]

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return _staging.LINE // emit.ITEM_SIZE[self.dtype]

    @property
    def pointer(self) -> Any:
        """Where it is."""
        return self.shared.at(self.start)

    def fill(self, sums: Sequence[Any]) -> None:
        """Puts the thread's sums, as `_warpgroup.Matrices.parts` has them, of all columns."""
        lane, pairs = _lane(), [sums[i : i + 2] for i in range(0, len(sums), 2)]
        if emit.ITEM_SIZE[self.dtype] == 2:
            words = [_warpgroup.packed(pair, self.dtype) for pair in pairs]
            for i in range(0, len(words), 4):  # Rows 0 and 8, then the same 8 columns on.
                target = self._at(lane % WARP_ROWS, lane // WARP_ROWS + i // 2)
                _warpgroup.store_matrices(words[i : i + 4], self.shared.at(target))
            return
        for i, pair in enumerate(pairs):
            chunk = lane % 4 // 2 + i // 2 * 2
            target = self._at(lane // 4 + i % 2 * 8, chunk) + lane % 2 * 8
            self.shared.store(vector.from_elements(emit.widen(pair[0].type, 2), pair), target)

    def load(self, row: Size, column: Size, lanes: int) -> Any:
        """Neighbouring results, in registers."""
        kind = emit.memory_type(self.dtype)
        return convert.from_memory(
            self.shared.load(self._place(row, column), kind, lanes), self.dtype
        )

    def store(self, value: Any, dtype: str, row: Size, column: Size) -> None:
        """Puts neighbouring outputs, of as many bytes, where results were."""
        self.shared.store(convert.to_memory(value, dtype), self._place(row, column))

    def _place(self, row: Size, column: Size) -> Size:
        return self._at(row, column // self.each) + column % self.each * emit.ITEM_SIZE[self.dtype]

    def _at(self, row: Size, chunk: Size) -> Size:
        within = _staging.swizzled(row, chunk, _staging.LINE)
        return self.start + row * _staging.LINE + within * _mma.CHUNK


class WayOut:
    """Writes sums of a tile through the epilogue.

    Args:
        frame: The kernel's; the way out reads its sizes, so that it is made where all see them.
        shared: Shared memory, where the panels of all warps start at byte `start`.
        tensor_map: Of the output, with boxes that are panels; None where TMA does not store it.
    """

    def __init__(
        self, frame: _frame.Frame, shared: _mma.DynamicShared, start: int, tensor_map: Any
    ) -> None:
        self._frame, self._shared, self._start = frame, shared, start
        self._map, self._write = tensor_map, frame.writer()

    def __call__(self, count: int, sums: Callable[[int, int], Sequence[Any]], where: Place) -> None:
        """A warp writes its rows of the tile: `sums(first, each)` of the `count` in a thread."""
        first = self._panel(0)

        def body(lanes: int) -> None:
            rows = where.n if isinstance(where.n, int) else 0
            whole = lanes == first.each or (lanes > 1 and rows and rows % first.each == 0)
            each = first.columns // 2
            for number in range(count // each):
                way = self._store if whole and self._map is not None else self._write_all
                panel, part = self._panel(number % PANELS), sums(number * each, each)
                way(panel, part, where, number * first.columns, lanes)

        with emit.when(has_rows(where)):
            _frame.in_vectors(self._frame, [self._write.inputs], [where.n], body, most=first.each)

    def finish(self) -> None:
        """Waits until nothing reads shared memory any more."""
        if self._map is not None:
            _tma.wait_until_read(0)

    def _panel(self, number: int) -> Panel:
        start = (_warp() * PANELS + number) * PANEL + self._start
        return Panel(self._shared, self._frame.spec.result.dtype, start)

    def _store(
        self, panel: Panel, sums: Sequence[Any], where: Place, column: int, lanes: int
    ) -> None:
        speaks = emit.compare("equal", _lane(), 0)
        with emit.when(speaks):
            # Those of this tile but the last one; in a tile's first panel, all.
            _tma.wait_until_read(min(column // panel.columns, PANELS - 1))
        _warpgroup.meet_in_warp()
        panel.fill(sums)
        if self._frame.spec.epilogue is not None:
            _warpgroup.meet_in_warp()
            dtype = self._frame.spec.outputs[0].dtype
            for row, right, *place in self._vectors(panel, where, column, lanes):
                (value,) = self._results(panel.load(row, right, lanes), where, place)
                panel.store(value, dtype, row, right)
        _tma.fence()
        _warpgroup.meet_in_warp()
        with emit.when(speaks):
            start = [where.number, where.row + _warp() * WARP_ROWS, where.column + column]
            _tma.store(self._map, panel.pointer, [_pieces.word(size) for size in start])

    def _write_all(
        self, panel: Panel, sums: Sequence[Any], where: Place, column: int, lanes: int
    ) -> None:
        _warpgroup.meet_in_warp()  # All lanes have read the panel before.
        panel.fill(sums)
        _warpgroup.meet_in_warp()
        for row, right, *place in self._vectors(panel, where, column, lanes):
            values = self._results(panel.load(row, right, lanes), where, place)
            _frame.store_all(self._frame, values, place[0] * where.n + place[1])

    def _results(self, value: Any, where: Place, place: Sequence[Size]) -> list[Any]:
        row, column = place
        return self._write.results(value, row * where.n + column, (row, column))

    def _vectors(
        self, panel: Panel, where: Place, column: int, lanes: int
    ) -> Iterator[tuple[Size, Size, Size, Size]]:
        """Vectors of a panel from `column` on: row and column there, and in the whole result."""
        across, first_row = panel.columns // lanes, where.row + _warp() * WARP_ROWS
        for index in emit.loop(_lane(), WARP_ROWS * across, _block.WARP):
            row, right = index // across, index % across * lanes
            down, along = first_row + row, where.column + column + right
            inside = emit.compare("less", down, where.m)
            with emit.when(inside & emit.compare("less", along, where.n)):
                yield row, right, where.number * where.m + down, along


def has_rows(where: Place) -> Any:
    """Whether a warp has rows of the result, of the tile at `where`."""
    return emit.compare("less", where.row + _warp() * WARP_ROWS, where.m)


def _lane() -> Any:
    return _block.thread() % _block.WARP


def _warp() -> Any:
    return _block.thread() // _block.WARP
