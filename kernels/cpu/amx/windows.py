"""Convolution of bfloat16 in AMX tiles, whose rows are neighbouring windows.

A pair of tiles of windows goes by panels of a group of channels, of which the second cache holds as
many as it has room for, and what the windows see stays in the first one (see `pictures`). Sums
are written beside the next panel's products (see `held`), those that are no window's dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.amx.meanwhile import AHEAD, APART, rows_of
from heddle.kernels.cpu.amx.pairs import Pairs, Part
from heddle.kernels.cpu.amx.pictures import Grid, Pictures
from heddle.kernels.cpu.amx.sides import ALONG, PANEL_ROW, WORD, Sides, bytes_at
from heddle.kernels.cpu.amx.tiles import PAIR, TILE_ROW
from heddle.kernels.cpu.products.blocks import PANEL, Block, Rows
from heddle.kernels.cpu.products.results import Results
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec
from heddle.kernels.windows import Windows

HELD = 768 << 10
"""Bytes of panels that the second cache holds beside pixels."""


def grid_of(spec: Spec, machine: Machine) -> Grid | None:
    """How `spec` is computed so, if it is: see `Grid.of`; panels of odd channels need room."""
    if not machine.tiles or spec.operands[0].dtype != "bfloat16":
        return None
    grid = Grid.of(spec)
    return grid if grid and (not grid.evened or grid.panel <= HELD) else None


def emit_tasks(frame: host.Frame, grid: Grid, groups: int, together: int) -> None:
    """Emits the loop over tasks: `together` panels of a group by a block."""
    products = Products(frame, grid, groups)
    panels = products.results.panels
    items, rows = grid.blocks(frame.spec)
    shape = (groups, frame.size(items), rows, sizes.ceildiv(panels, together))
    for task in emit.loop(frame.first, frame.last):
        part, item, row, run = sizes.split(task, shape)
        last = sizes.least((run + 1) * together, panels)
        products.compute(item * grid.items, row * grid.rows, part, run * together, last)


@dataclass(frozen=True)
class Run:
    """Windows of a block by panels from `first` to `last - 1` of group `part`.

    Those are `items` pictures of the batch from `item` on, or `rows` along the first axis of one,
    from `row` on; a picture is `pairs` pairs of tiles.
    """

    item: Size
    items: Size
    row: Size
    rows: Size
    pairs: Size
    part: Size
    first: Size
    last: Size


@dataclass(frozen=True)
class Due:
    """The sums of pair number `pair` by a panel, which are written if it is time."""

    run: Run
    pair: Size
    panel: Size
    sums: Any


class Products:
    """The products of a kernel; make one at the function's start."""

    def __init__(self, frame: host.Frame, grid: Grid, groups: int) -> None:
        self.grid, self.windows = grid, Windows.of(frame)
        lanes = host.lanes_for(frame.machine, ["float32"])
        self.results = Results(frame, lanes, "float32", groups)
        self.together = HELD // grid.panel
        if isinstance(self.results.panels, int):
            self.together = min(self.together, self.results.panels)
        self.together = max(1, self.together)
        self.b = frame.inputs[1]
        self._evened = None
        if grid.evened:
            self._evened = Evened(self)
            self.b = self._evened.data
        self._pictures = Pictures(frame, self.windows, grid, groups)
        # Both sides have whole steps on the stack, though they may be short ones.
        sides = Sides(frame.inputs[0], self.b, "bfloat16", grid.steps * ALONG)
        self._pairs = Pairs(sides, self._pictures, rows_stay=True, words=grid.step // 2)
        self._sums = host.byte_buffer(2 * PAIR * PANEL_ROW)

    def compute(self, item: Size, row: Size, part: Size, first: Size, last: Size) -> None:
        """Emits the results of the block from `item` and `row` on by the panels of a group."""
        grid, windows = self.grid, self.windows
        items = sizes.least(emit.index(grid.items), windows.batch - item)
        rows = sizes.least(emit.index(grid.rows), windows.counts[0] - row)
        self._pictures.put(item, items, row, part)
        pairs = sizes.ceildiv(rows * grid.across, PAIR)
        for begin in emit.loop(first, last, self.together):
            end = sizes.least(begin + self.together, last)
            run = Run(item, items, row, rows, pairs, part, begin, end)
            if self._evened:
                self._evened.put(run)
            for pair in emit.loop(0, items * pairs):
                for panel in emit.loop(begin, end):
                    self._add(run, pair, panel)
            due = self._due(run, items * pairs - 1, end - 1)
            for r in emit.loop(0, PAIR):
                self.write(due, r)

    def _add(self, run: Run, pair: Size, panel: Size) -> None:
        """Computes the sums of a pair by a panel, and writes those of the one before."""
        fresh = emit.compare("equal", panel, run.first)
        opens = emit.compare("equal", pair, 0)
        top = emit.select(fresh, pair - 1, pair)
        due = self._due(run, top, emit.select(fresh, run.last, panel) - 1)
        place = panel - run.first if self._evened else run.part * self.results.panels + panel
        place = place * self.grid.panel
        number, inside = sizes.split(pair, (1, run.pairs))
        height = sizes.least(emit.index(PAIR), run.rows * self.grid.across - inside * PAIR)
        rows = Rows(number * self.grid.places + inside * PAIR, height, 0)
        part = Part(rows, 0, 0, self.grid.steps, True, place)
        beside = Beside(self, place, opens, due, (fresh & opens) ^ True)
        self._pairs.add(part, self._sums_of(run, pair, panel), beside)

    def _due(self, run: Run, pair: Size, panel: Size) -> Due:
        return Due(run, pair, panel, self._sums_of(run, pair, panel))

    def _sums_of(self, run: Run, pair: Size, panel: Size) -> Any:
        number = (pair * (run.last - run.first) + (panel - run.first)) % 2
        return bytes_at(self._sums, number * (PAIR * PANEL_ROW))

    def write(self, due: Due, r: Size) -> None:
        """Writes row `r` of the sums of a pair by a panel, if it is a window's."""
        run, counts = due.run, self.windows.counts
        number, inside = sizes.split(due.pair, (1, run.pairs))
        at = sizes.split(inside * PAIR + r, (1, *self.grid.extents[1:]))
        here = emit.compare("less", at[0], run.rows)
        row = (run.item + number) * counts[0] + (run.row + at[0])
        for where, count in zip(at[1:], counts[1:], strict=True):
            here = here & emit.compare("less", where, count)
            row = row * count + where
        column = run.part * self.results.each + due.panel * PANEL
        with emit.when(here):
            self.results.write(Block(row - r, PAIR, 0, column), due.sums, r, r + 1)


@dataclass(frozen=True)
class Beside:
    """What is done beside the products of a pair by a panel, which is at byte `panel` of b.

    The pair that `opens` a run asks for it. What is `due` is written if it is `now`.
    """

    products: Products
    panel: Size
    opens: Any
    due: Due
    now: Any

    def ask(self, step: Any) -> None:
        """Asks for the panel, if this is the first pair."""
        size = self.products.grid.panel // self.products.grid.steps
        with emit.when(self.opens):
            for line in range(0, size // LINE, APART):
                place = self.panel + step * size + (AHEAD + line * LINE)
                memory.prefetch(self.products.b, place, "int8", level=2)

    def write(self, step: Any) -> None:
        """Writes some rows of what is due."""
        each = -(-PAIR // self.products.grid.steps)
        with emit.when(self.now):
            for r in rows_of(step * each, each, 0, PAIR):
                self.products.write(self.due, r)


class Evened:
    """Panels on the stack in which a zero follows the channels of each tap, which are odd."""

    def __init__(self, products: Products) -> None:
        self._products = products
        grid = products.grid
        self._taps = grid.steps * grid.step // grid.channels
        self.data = host.byte_buffer(products.together * grid.panel)

    def put(self, run: Run) -> None:
        """Puts the panels of a run on the stack."""
        products, each = self._products, self._products.grid.channels - 1
        words = -(-self._taps * each // 2)
        lanes = TILE_ROW // WORD
        b = products.results.frame.inputs[1]

        def element(panel: Size, number: Size, part: int) -> Any:
            """Row `number` of a panel in the low halves of words."""
            word = (panel * words + number // 2) * PANEL + part
            found = memory.load(b, word, "uint32", lanes)
            odd = emit.compare("equal", number % 2, 1)
            return emit.select(odd, found >> 16, found & 0xFFFF)

        for number in emit.loop(0, run.last - run.first):
            panel = run.part * products.results.panels + run.first + number
            place = number * (products.grid.panel // WORD)
            for tap in emit.loop(0, self._taps):
                for pair in range((each + 1) // 2):
                    for part in range(0, PANEL, lanes):
                        first = tap * each + 2 * pair
                        value = element(panel, first, part)
                        if 2 * pair + 1 < each:
                            value = value | (element(panel, first + 1, part) << 16)
                        where = place + (tap * ((each + 1) // 2) + pair) * PANEL + part
                        memory.store(value, self.data, where, "uint32")
