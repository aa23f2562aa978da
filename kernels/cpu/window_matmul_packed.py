"""Convolution with channels last as a product by panels (see `products.panels`): rows are windows.

No matrix of windows is in memory. With AMX those of bfloat16 are rows of tiles (`amx.windows`).
Elsewhere, where the sizes along a row are known, windows are read where they lie
(`products.window_rows`). Else a task is 64 windows by up to eight panels; it copies a stretch of
each of its windows to the stack, where register tiles read it as a row of a, and goes on with the
next stretch. Taps that follow one another in memory are copied at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from heddle.kernels import bodies, emit, host, memory, sizes
from heddle.kernels.cpu import _bfloat16, matmul_packed
from heddle.kernels.cpu.amx import windows as amx_windows
from heddle.kernels.cpu.products import panels as products_panels
from heddle.kernels.cpu.products import window_rows
from heddle.kernels.cpu.products.blocks import PANEL, Block, Tile
from heddle.kernels.cpu.products.panels import BLOCK
from heddle.kernels.cpu.products.results import Results
from heddle.kernels.cpu.products.vectors import adder
from heddle.kernels.emit import compare
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.windows import Windows

STRETCH = 8192
"""Bytes of a window that are on the stack at a time: 64 of them stay in the second cache."""

APART = 64
"""Bytes between rows on the stack: powers of two would share a few sets of the first cache."""

TOGETHER = (8, 4, 2)
"""Panels of a task: copying windows costs little beside as many products."""

ENOUGH, EVEN = 32, 4
"""So many tasks, or a multiple of so many, are shared evenly; else each has fewer panels."""


def emit_windows(spec: Spec, machine: Machine) -> None:
    """Emits the products of windows where they lie, if they can be read there, or of copies."""
    frame = host.frame(spec, machine)
    grid = amx_windows.grid_of(spec, machine)
    if grid:
        with _bfloat16.conversions(machine, loses=True):
            together = _together(spec, product(grid.blocks(spec)))
            amx_windows.emit_tasks(frame, grid, _groups(spec), together)
    elif window_rows.fits(spec):
        _emit_rows(frame)
    else:
        _emit_copies(frame)


def _emit_rows(frame: host.Frame) -> None:
    """Emits the loop over tasks, and over the panels of each."""
    spec = frame.spec
    added = matmul_packed.step_of(spec.operands[0].dtype, frame.machine)
    rows = window_rows.Rows(frame, _groups(spec), added)
    windows, panels = rows.windows, rows.results.panels
    most = _together(spec, _blocks(spec))
    number = sizes.product((windows.batch, *windows.counts[:-1]))
    blocks = sizes.ceildiv(number, window_rows.rows_together(spec))
    even = sizes.ceildiv(number, sizes.greatest(blocks, 1))
    for task in emit.loop(frame.first, frame.last):
        shape = (_groups(spec), blocks, sizes.ceildiv(panels, most))
        part, block, run = sizes.split(task, shape)
        first = block * even
        height = sizes.least(even, number - first)
        for panel in emit.loop(run * most, sizes.least((run + 1) * most, panels)):
            rows.multiply(first, height, part, panel)


def _emit_copies(frame: host.Frame) -> None:
    """Emits the loop over tasks, the stretches of each, and the panels of each of those."""
    spec, machine = frame.spec, frame.machine
    windows, groups = Windows.of(frame), _groups(spec)
    added = matmul_packed.step_of(spec.operands[0].dtype, machine)
    lanes = host.lanes_for(machine, [added.sums])
    results = Results(frame, lanes, added.sums, groups)
    left = _Left(frame, windows, groups)
    room, most = BLOCK * PANEL * emit.ITEM_SIZE[added.sums], _together(spec, _blocks(spec))
    scratch = host.byte_buffer(most * room)
    blocks, runs = sizes.ceildiv(windows.number, BLOCK), sizes.ceildiv(results.panels, most)
    even = sizes.ceildiv(windows.number, sizes.greatest(blocks, 1))
    group = products_panels.group_of(spec)
    steps = sizes.ceildiv(left.k, group)
    whole = sizes.greatest(steps, 1)
    depth = sizes.ceildiv(whole, sizes.ceildiv(whole, left.room // group))
    step = PANEL * group * emit.ITEM_SIZE[spec.operands[1].dtype]
    for task in emit.loop(frame.first, frame.last):
        part, number, run = sizes.split(task, (groups, blocks, runs))
        row, first = number * even, run * most
        height = sizes.least(even, windows.number - row)
        count = sizes.least(emit.index(most), results.panels - first)
        for start in emit.loop(0, whole, depth):
            stop = sizes.least(start + depth, steps)
            left.copy(row, height, part, start * group, sizes.least(stop * group, left.k))
            for panel in emit.loop(0, count):
                # The same stretch of the next panel; behind the last one the next of the first.
                last = emit.compare("equal", panel, count - 1)
                back = emit.as_index((stop - start) - (count - 1) * steps)
                following = emit.select(last, back, steps) * step
                reader = left.reader(start * group)
                add_steps = adder(frame, added, left.k, reader, following)
                column = part * results.each + (first + panel) * PANEL
                packed = part * results.panels + first + panel
                block = Block(row, height, packed, column)
                place = memory.at(scratch, panel * room, "int8")
                products_panels.add_stretch(results, block, place, start, stop, steps, add_steps)


@dataclass(frozen=True)
class _Runs:
    """Elements of a window that follow one another: `count` times `length` of them.

    With `joined`, a run goes through all taps of the last axis.
    """

    joined: bool
    taps: tuple[int, ...]
    length: Size


class _Left:
    """A stretch of 64 windows on the stack; made in the function's entry block."""

    def __init__(self, frame: host.Frame, windows: Windows, groups: int) -> None:
        self._frame, self._windows, self._groups = frame, windows, groups
        self._dtype = frame.spec.operands[0].dtype
        self._raw = memory.raw(self._dtype)
        item = emit.ITEM_SIZE[self._dtype]
        self._lanes = frame.machine.vector_bytes // item
        self.each = sizes.floordiv(windows.channels, groups)
        self.k = self.each * prod(windows.kernel)
        length = STRETCH
        if isinstance(self.k, int):
            length = min(length, -(-self.k * item // APART) * APART)
        self.room = max(length, APART) // item
        self._pitch = self.room + APART // item
        self._data = host.byte_buffer(BLOCK * self._pitch * item)
        joined = groups == 1 and windows.dilations[-1] == 1
        *outer, inner = windows.kernel
        taps, length = (outer, inner * self.each) if joined else (windows.kernel, self.each)
        self._runs = _Runs(joined, tuple(taps), length)

    def reader(self, start: Size) -> Any:
        """See `adder`, for a stretch that begins with element `start`."""

        def left(tile: Tile, r: int, place: Any) -> Any:
            where = (tile.top + r) * self._pitch + (place - start)
            return memory.at(self._data, where, self._dtype)

        return left

    def copy(self, row: Size, height: Size, part: Size, start: Size, stop: Size) -> None:
        """Copies the elements from `start` to `stop - 1` of the windows from `row` on.

        What lies outside of the tensor is zero; `part` is the group of channels.
        """
        windows, runs = self._windows, self._runs
        length = emit.as_index(runs.length)
        for r in emit.loop(0, height):
            item, starts = windows.starts(row + r)
            for run in emit.loop(start // length, sizes.ceildiv(stop, length)):
                tap = list(sizes.split(run, runs.taps))
                inside, low, high = self._inside(starts, tap)
                at = windows.at(starts, [*tap, 0] if runs.joined else tap)
                source = windows.place(item, at) + part * self.each
                low, high = (emit.select(inside, end, 0) for end in (low, high))
                before = run * length
                first = emit.maximum(emit.as_index(start) - before, 0)
                last = emit.minimum(emit.as_index(stop) - before, length)
                target = r * self._pitch + (before - start)
                self._copy_run(source, target, first, last, low, high)

    def _inside(self, starts: list[Any], tap: list[Size]) -> tuple[Any, Any, Any]:
        """Whether a run is inside, and which of its elements are, from the first to the last."""
        windows, runs = self._windows, self._runs
        inside = windows.inside(windows.at(starts, tap))
        if not runs.joined:
            return inside, emit.index(0), emit.as_index(runs.length)
        low, high = windows.taps_inside(len(starts) - 1, starts[-1])
        return inside, low * windows.channels, high * windows.channels

    def _copy_run(
        self, source: Any, target: Any, first: Any, last: Any, low: Any, high: Any
    ) -> None:
        """Copies elements `first` to `last - 1` of a run; those but `low` to `high - 1` are 0."""
        lanes = self._lanes

        def copy(i: Any, mask: Any, inside: Any) -> None:
            value = memory.load(self._frame.inputs[0], source + i, self._raw, lanes, inside)
            memory.store(value, self._data, target + i, self._raw, mask)

        def whole() -> list[Any]:
            for i, mask in host.vectors(first, last, lanes):
                copy(i, mask, mask)
            return []

        def partly() -> list[Any]:
            for i in emit.loop(first, last, lanes):
                mask = host.first_lanes(last - i, lanes)
                begun = host.first_lanes(low - i, lanes) ^ True
                copy(i, mask, mask & begun & host.first_lanes(high - i, lanes))
            return []

        complete = compare("less_equal", low, first) & compare("less_equal", last, high)
        emit.either(complete, [], whole, partly)


def _groups(spec: Spec) -> int:
    groups = spec.operands[1].shape[0]
    assert isinstance(groups, int)
    return groups


def _blocks(spec: Spec) -> Expr:
    """Blocks of windows on vectors."""
    *windows, _ = spec.result.shape
    if window_rows.fits(spec):
        return fold("ceildiv", product(tuple(windows[:-1])), window_rows.rows_together(spec))
    return fold("ceildiv", product(tuple(windows)), BLOCK)


def _tasks(spec: Spec, blocks: Expr, together: int) -> Expr:
    groups = _groups(spec)
    runs = fold("ceildiv", fold("floordiv", spec.result.shape[-1], groups), PANEL * together)
    return product((groups, blocks, runs))


def _together(spec: Spec, blocks: Expr) -> int:
    """Panels of a task."""
    for together in TOGETHER:
        tasks = _tasks(spec, blocks, together)
        if not isinstance(tasks, int) or tasks >= ENOUGH or tasks % EVEN == 0:
            return together
    return TOGETHER[-1]


def launch(spec: Spec) -> Launch:
    """One task for each 64 windows, or some rows of them, by each run of panels of each group."""
    return _launch(spec, _blocks(spec))


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """In AMX tiles, that of larger blocks."""
    grid = amx_windows.grid_of(spec, machine)
    return _launch(spec, product(grid.blocks(spec))) if grid else None


def _launch(spec: Spec, blocks: Expr) -> Launch:
    *windows, n = spec.result.shape
    depth: Expr = fold("mul", fold("floordiv", spec.operands[0].shape[-1], _groups(spec)), 2)
    each = fold("add", fold("mul", depth, prod(spec.attr("kernel"))), bodies.work(spec.epilogue))
    tasks = _tasks(spec, blocks, _together(spec, blocks))
    return Launch((tasks, 1, 1), product((*windows, n, each)))


def supports(spec: Spec) -> str | None:
    """As `matmul_packed`, in a static number of groups."""
    if not isinstance(spec.operands[1].shape[0], int):
        return f"wanted a static number of groups, got {spec.operands[1].shape[0]}"
    return matmul_packed.supports(spec)


KERNEL = Kernel(
    "window_matmul_packed",
    "cpu",
    emit_windows,
    launch,
    supports,
    overwrites="epilogue",
    uses=products_panels.uses_of_bfloat16,
    own_launch=own_launch,
    space=products_panels.SPACE,
)
