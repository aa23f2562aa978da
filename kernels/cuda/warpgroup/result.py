"""The way out of a product by wgmma: a warp's 16 rows go through shared memory to the outputs.

A panel is those rows of as many columns as fill lines of 128 bytes. Each warp has two: TMA stores
one while the other is filled, and goes on while the next tile is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.cuda.warpgroup.panels import PANEL, PANELS, WARP_ROWS, Panel
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec


def by_tma(spec: Spec) -> bool:
    """Whether TMA may store what is computed: one output, which fits where the sums were."""
    (output, *others), result = spec.outputs, spec.result
    item = emit.ITEM_SIZE[output.dtype]
    n = result.shape[-1]
    whole = not isinstance(n, int) or n * item % mma.CHUNK == 0
    return not others and item == emit.ITEM_SIZE[result.dtype] and whole


@dataclass(frozen=True)
class _Spot:
    """A panel's first row and column in a product, of the tile at `where`, and its columns.

    It may be filled when all but `left` stores of the warp before it have read their panels.
    """

    where: Place
    row: Size
    column: Size
    columns: int
    left: int = 0


class WayOut:
    """Writes sums of a tile through the epilogue.

    Args:
        frame: The kernel's; the way out reads its sizes, so that it is made where all see them.
        shared: Shared memory, where the panels of all warps start at byte `start`.
        tensor_map: Of the output, with boxes that are panels; None where TMA does not store it.
    """

    def __init__(
        self, frame: _frame.Frame, shared: mma.DynamicShared, start: int, tensor_map: Any
    ) -> None:
        self._frame, self._shared, self._start = frame, shared, start
        self._map, self._write = tensor_map, frame.writer()

    def __call__(self, sums: Sequence[Any], where: Place) -> None:
        """A warp writes its rows of the tile, with the sums that its threads have."""

        def body(lanes: int) -> None:
            each = self._panel(0).columns // 2
            for number, begin in enumerate(range(0, len(sums), each)):
                part = sums[begin : begin + each]
                spot = self._spot(where, number, len(part), left=min(number, PANELS - 1))
                self._put(self._panel(number % PANELS), part, spot, lanes)

        with emit.when(has_rows(where)):
            self._in_vectors(where, body)

    def together(
        self, count: int, sums: Callable[[Size, Size, int], Sequence[Any]], where: Place
    ) -> None:
        """A warpgroup writes its rows of the tile, whichever of its warps has had them.

        `sums(warp, first, each)` are so many of the `count` that the threads of a warp have had.
        """
        first = _warp() // instructions.WARPS * instructions.WARPS
        rows = where.m - (where.row + first * WARP_ROWS)
        warps = emit.minimum(
            (emit.maximum(rows, 0) + (WARP_ROWS - 1)) // WARP_ROWS, instructions.WARPS
        )

        def body(lanes: int) -> None:
            panel = self._panel(0)
            each = panel.columns // 2
            panels, rest = divmod(count, each)

            def put(warp: Size, number: Size, size: int) -> None:
                part = sums(warp, number * each, size)
                self._put(panel, part, self._spot(where, number, size, warp), lanes)

            for index in emit.loop(
                _warp() % instructions.WARPS, warps * panels, instructions.WARPS
            ):
                put(first + index // panels, index % panels, each)
            for index in (
                emit.loop(_warp() % instructions.WARPS, warps, instructions.WARPS) if rest else ()
            ):
                put(first + index, panels, rest)

        self._in_vectors(where, body)

    def turned(self, sums: Sequence[Any], where: Place) -> None:
        """A warpgroup writes 64 columns of the tile, whose sums lie as columns by rows.

        Its panels are the tile's rows, 16 of them each: every warp has columns of all of them.
        Where a panel has fewer columns, one part of the columns follows another.
        """
        warpgroup, number = _warp() // instructions.WARPS, _warp() % instructions.WARPS
        where = replace(where, column=where.column + warpgroup * instructions.ROWS)
        with emit.when(emit.compare("less", where.column, where.n)):
            for start in range(0, instructions.ROWS, self._panel(0).columns):
                self._part_turned(sums, where, start, warpgroup, number)

    def _part_turned(
        self, sums: Sequence[Any], where: Place, start: int, warpgroup: Size, number: Size
    ) -> None:
        """A warpgroup writes the columns of a panel, from its column `start` on.

        The warp is its number `number`.
        """
        count = len(sums) // 8
        each = count // instructions.WARPS  # Panels that a warp writes.

        def fill() -> None:
            for i in range(count):
                panel = self._panel(i % each, warpgroup * instructions.WARPS + i // each)
                panel.fill_turned(sums[8 * i : 8 * i + 8], number * WARP_ROWS - start)

        def body(lanes: int) -> None:
            for i in range(each):
                row = where.row + (number * each + i) * WARP_ROWS
                with emit.when(emit.compare("less", row, where.m)):
                    panel = self._panel(i)
                    spot = _Spot(where, row, where.column + start, panel.columns)
                    self._deliver(panel, spot, lanes)

        self._wait_until_read(0)
        instructions.meet(warpgroup + 1, instructions.THREADS)
        columns = self._panel(0).columns
        if columns == instructions.ROWS:
            fill()
        else:
            with emit.when(emit.compare("equal", number * WARP_ROWS // columns, start // columns)):
                fill()
        tma.fence()
        instructions.meet(warpgroup + 1, instructions.THREADS)
        self._in_vectors(where, body)

    def prefetch(self) -> None:
        """Brings the map of the output, which is not empty, to the cache of maps, if it is there.

        One thread calls.
        """
        if self._map is None:
            return
        frame, output = self._frame, self._frame.spec.outputs[0]
        rows, columns = frame.shape(frame.spec.result.shape[-2:])
        sides = frame.outputs[0], output.dtype, emit.index(0), rows, columns
        with emit.when(staging.Matrix(*sides).whole()):
            tma.prefetch(self._map)

    def finish(self) -> None:
        """Waits until nothing reads shared memory any more."""
        if self._map is not None:
            tma.wait_until_read(0)

    def _wait_until_read(self, left: int) -> None:
        """Waits until all but `left` stores of the warp have read their panels."""
        if self._map is not None:
            with emit.when(_speaks()):
                tma.wait_until_read(left)

    def _in_vectors(self, where: Place, body: Callable[[int], None]) -> None:
        most = self._panel(0).each
        _frame.in_vectors(self._frame, [self._write.inputs], [where.n], body, most=most)

    def _panel(self, number: int, warp: Size | None = None) -> Panel:
        """A panel of a warp, this one unless told."""
        start = ((_warp() if warp is None else warp) * PANELS + number) * PANEL + self._start
        return Panel(self._shared, self._frame.spec.result.dtype, start)

    def _spot(
        self, where: Place, number: Size, count: int, warp: Size | None = None, left: int = 0
    ) -> _Spot:
        """Where panel `number` of a warp lies, this one unless told; it has so many sums."""
        row = where.row + (_warp() if warp is None else warp) * WARP_ROWS
        column = where.column + number * self._panel(0).columns
        return _Spot(where, row, column, 2 * count, left)

    def _put(self, panel: Panel, sums: Sequence[Any], spot: _Spot, lanes: int) -> None:
        if self._by_tma(panel, spot, lanes):  # Also one that has fewer columns.
            self._wait_until_read(spot.left)
        instructions.meet_in_warp()  # All lanes have read the panel before.
        panel.fill(sums)
        self._deliver(panel, spot, lanes)

    def _by_tma(self, panel: Panel, spot: _Spot, lanes: int) -> bool:
        n = spot.where.n if isinstance(spot.where.n, int) else 1
        whole = lanes == panel.each or (lanes > 1 and n % panel.each == 0)
        return whole and self._map is not None

    def _deliver(self, panel: Panel, spot: _Spot, lanes: int) -> None:
        """Writes what is in the panel, put there by the warp, or by others before a barrier."""
        if self._by_tma(panel, spot, lanes) and spot.columns == panel.columns:
            self._store(panel, spot, lanes)
            return
        instructions.meet_in_warp()
        for row, right, *place in self._vectors(panel, spot, lanes):
            values = self._results(panel.load(row, right, lanes), spot, place)
            _frame.store_all(self._frame, values, place[0] * spot.where.n + place[1])

    def _store(self, panel: Panel, spot: _Spot, lanes: int) -> None:
        if self._frame.spec.epilogue is not None:
            instructions.meet_in_warp()
            dtype = self._frame.spec.outputs[0].dtype
            for row, right, *place in self._vectors(panel, spot, lanes):
                (value,) = self._results(panel.load(row, right, lanes), spot, place)
                panel.store(value, dtype, row, right)
        tma.fence()
        instructions.meet_in_warp()
        with emit.when(_speaks()):
            start = [pieces.word(size) for size in (spot.where.number, spot.row, spot.column)]
            tma.store(self._map, panel.pointer, start)

    def _results(self, value: Any, spot: _Spot, place: Sequence[Size]) -> list[Any]:
        row, column = place
        return self._write.results(value, row * spot.where.n + column, (row, column))

    def _vectors(
        self, panel: Panel, spot: _Spot, lanes: int
    ) -> Iterator[tuple[Size, Size, Size, Size]]:
        """Vectors of a panel: row and column there, and in the whole result."""
        across, where = spot.columns // lanes, spot.where
        for index in emit.loop(_lane(), WARP_ROWS * across, _block.WARP):
            row, right = index // across, index % across * lanes
            down, along = spot.row + row, spot.column + right
            inside = emit.compare("less", down, where.m)
            with emit.when(inside & emit.compare("less", along, where.n)):
                yield row, right, where.number * where.m + down, along


def has_rows(where: Place) -> Any:
    """Whether a warp has rows of the result, of the tile at `where`."""
    return emit.compare("less", where.row + _warp() * WARP_ROWS, where.m)


def _lane() -> Any:
    return _block.thread() % _block.WARP


def _speaks() -> Any:
    """Whether this lane speaks for its warp."""
    return emit.compare("equal", _lane(), 0)


def _warp() -> Any:
    return _block.thread() // _block.WARP
