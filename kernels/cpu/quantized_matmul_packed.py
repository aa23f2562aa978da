"""a @ b for weights in 8 or 4 bits, in panels of 32 columns (see `_panels`), each group scaled.

A group's sums are scaled once, when they are complete: a weight is so never rounded, and a scale
costs little. Where a is bfloat16 and the machine has dot products of pairs, the weights become
bfloat16, which holds them exactly, and a step takes two elements along k; else all is float32.

Products of eight rows or more leave ports free on which weights are widened beside them, but not
enough for floats: so the first tile of a block keeps its pairs for those below it. With AMX more
than a few rows are multiplied in tiles instead (see `_amx_narrow`); AVX2 has a file of its own
(see `_avx2_narrow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from heddle.kernels import bodies, emit, host, memory, sizes
from heddle.kernels.cpu import _amx_narrow, _avx2_narrow, _beside, _panels
from heddle.kernels.cpu._blocks import PANEL, Block, Strip, Tile
from heddle.kernels.cpu._narrow_weights import RIGHT, STEP, Reader
from heddle.kernels.cpu._panels import LINE, Tasks
from heddle.kernels.cpu._tile import add_rows, merged, rows_of
from heddle.kernels.cpu._widened import Keeping, Kept, Pairs
from heddle.kernels.cpu.matmul_packed import add_dots
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

llvm = dialect("llvm")

STRETCH = 2048
"""Elements along k that all tiles of a block go through before the next, at most."""

DOTS, FLOATS = 5, 4
"""Rows whose sums hide the latency of dot products and of multiplications, two each cycle."""

FEW = 1
"""Rows that take no tiles: dot products cost them less than widening weights through the stack."""


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    lanes = host.lanes_for(machine, ["float32"])
    for frame in _beside.frames(spec, machine):
        if machine.vector_bytes == 32:
            _avx2_narrow.emit_blocks(frame)
        else:
            _emit_blocks(frame, lanes)


def _emit_blocks(frame: host.Frame, lanes: int) -> None:
    """Emits the products of all blocks of one product."""
    tasks = Tasks(frame, lanes, "float32")
    product = _Product(frame, lanes)
    if not product.in_tiles:
        _panels.emit_blocks(tasks, product.multiply)
        return
    run = _amx_narrow.Run(frame, tasks, product.right)
    for rows, first, last in tasks.runs():
        few = emit.compare("less_equal", emit.as_index(rows.height), FEW)
        with emit.when(few):
            for panel in emit.loop(first, last):
                product.multiply(tasks, tasks.block(rows, panel), run.sums(0))
        with emit.when(emit.compare("greater", emit.as_index(rows.height), FEW)):
            run.compute(rows, first, last)


class _Product:
    """The sums of blocks of rows."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        spec = frame.spec
        a, weights, scales = spec.operands
        self._frame, self._lanes = frame, lanes
        self._k, self._groups = frame.size(a.shape[-1]), frame.size(scales.shape[1])
        self._group = spec.attr("group")
        # Sums are scaled where a group ends, and where a stretch ends within one.
        self._span = math.gcd(self._group, STRETCH) if self._group > STRETCH else self._group
        self._stretch = min(STRETCH // self._span * self._span, self._k)
        self._pairs = frame.machine.dots and a.dtype == "bfloat16"
        self.in_tiles = frame.machine.tiles and self._pairs
        self._most = FEW if self.in_tiles else rows_of(frame.machine)
        self.right: Reader = RIGHT[weights.dtype](frame, lanes)
        self._soon = _panels.SPACE.value("ahead", spec, frame.machine.arch) << 10
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)
        keeps = self._pairs and not self.in_tiles
        self._kept = Pairs(self._stretch, lanes) if keeps else None

    def multiply(self, tasks: Tasks, block: Block, scratch: Any) -> None:
        """Emits the sums of a block, and what writes them."""
        frame, lanes = self._frame, self._lanes
        for place in emit.loop(0, block.height * PANEL, lanes):
            memory.store(self._zero, scratch, place, "float32")
        one = emit.compare("less_equal", emit.as_index(block.height), rows_of(frame.machine))
        depth = emit.select(one, emit.as_index(self._k), self._stretch)
        for start in emit.loop(0, self._k, depth):
            stop = sizes.least(start + depth, self._k)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            for strip in _panels.strips(frame, block, lanes):
                tasks.ask_strip(strip, complete)
                for tile, right in self._tiles(strip, one, start):
                    self._add(tile, right, start, stop, scratch)
                tasks.write_strip(strip, scratch, complete)

    def _tiles(self, strip: Strip, one: Any, start: Size) -> Iterator[tuple[Tile, Any]]:
        """Emits the Python body of a `for tile, right in` this, of which one is run.

        A strip is the `one` of its block, or the first one, or below it.
        """
        every = range(self._most, 0, -1)
        if self._kept is None:
            for tile in _panels.tiles(self._frame, strip, every):
                yield tile, self.right
            return
        top, bottom = emit.as_index(strip.top), emit.as_index(strip.bottom)
        first = emit.compare("equal", top, 0) & emit.compare("less", bottom, strip.block.height)
        below = emit.compare("greater", top, 0)
        halves = range(self._most, self._most // 2 - 1, -1)  # several are no lower than that
        cases: list[tuple[Any, range, Any]] = [
            (one, every, self.right),
            (first, halves, Keeping(self.right, self._kept, start)),
            (below, halves, Kept(self._kept, start)),
        ]
        for condition, heights, right in cases:
            with emit.when(condition):
                for tile in _panels.tiles(self._frame, strip, heights):
                    yield tile, right

    def _add(self, tile: Tile, right: Any, start: Size, stop: Size, scratch: Any) -> None:
        """Adds the products along k from `start` to `stop - 1` to the sums."""
        places, aligned = tile.places(self._lanes), self._lanes * emit.ITEM_SIZE["float32"]
        copies, left_at = self._copies(tile.height), self._left_reader(tile)
        ahead, pace = self._ahead(tile, start, stop)

        # `due` is carried: computed from k, it would take k's register, and LLVM load all that k
        # leads to before, into registers that it lacks.
        def add_step(k: Any, due: Any, *sums: Any) -> list[Any]:
            self._ask(tile, due, pace)
            right.start(tile, k)
            if self._pairs:
                rows = map(right.pairs, range(STEP // 2))
                added = add_rows(sums, k // 2, left_at, rows, copies, add_dots)
            else:
                added = add_rows(sums, k, left_at, map(right.row, range(STEP)), copies)
            return [due + pace, *added]

        for first in emit.loop(start, stop, self._span):
            due = ahead + (first - start) // STEP * pace
            zeros = [self._zero] * (len(places) * copies)
            _, *sums = emit.carry(first, first + self._span, STEP, [due, *zeros], add_step)
            scales = self._scales(tile, first)
            for number, (value, place) in enumerate(zip(merged(sums, copies), places, strict=True)):
                # Volatile: LLVM would keep totals in registers that it lacks, and spill them.
                pointer = memory.at(scratch, place, "float32")
                total = llvm.load(value.type, pointer, alignment=aligned, volatile_=True)
                total = emit.fma(value, scales[number % 2], total)
                llvm.store(total, pointer, alignment=aligned, volatile_=True)

    def _copies(self, height: int) -> int:
        """How often there are the sums of a tile, so that none waits for itself."""
        latency = DOTS if self._pairs else FLOATS
        return next(copies for copies in (1, 2, 4) if copies == 4 or copies * height >= latency)

    def _left_reader(self, tile: Tile) -> Callable[[int, Any], Any]:
        """What reads elements of the tile's rows, or pairs of them, into every lane."""
        a, dtype = self._frame.inputs[0], self._frame.spec.operands[0].dtype
        group, kind = (2, "uint32") if self._pairs else (1, dtype)

        def left_at(r: int, step: Any) -> Any:
            place = memory.at(a, (tile.row + r) * self._k + step * group, dtype)
            word = memory.load(place, 0, kind, alignment=emit.ITEM_SIZE[dtype])
            return emit.splat(word, self._lanes)

        return left_at

    def _scales(self, tile: Tile, k: Any) -> list[Any]:
        """Those of both vectors, of the group that begins with element `k`.

        Those of the groups that are asked for next are asked for, too.
        """
        scales, dtype = self._frame.inputs[2], self._frame.spec.operands[2].dtype
        place = (tile.panel * self._groups + k // self._group) * PANEL + tile.part
        if tile.part == 0:
            groups = max(1, self._soon // (self._group // STEP * self.right.bytes))
            for line in range(0, PANEL, LINE // emit.ITEM_SIZE[dtype]):
                memory.prefetch(scales, place + (groups * PANEL + line), dtype)
        places = (place, place + self._lanes)
        return [memory.load(scales, place, dtype, self._lanes) for place in places]

    def _ahead(self, tile: Tile, start: Size, stop: Size) -> tuple[Any, Any]:
        """What to ask for beside the first step of a stretch, and how much beside each.

        Tiles ask for the next stretch, each for a share like that of its rows, so that memory is
        busy at all times. A block of one tile asks for what comes soon.
        """
        frame, size = self._frame, self.right.bytes
        rows = emit.as_index(tile.all_rows)
        one = emit.compare("less_equal", rows, rows_of(frame.machine))
        stretch = (stop - start) // STEP * size
        panel = (tile.panel * self._k + start) // STEP * size
        first = panel + emit.select(one, self._soon, stretch) + stretch * tile.top // rows
        return first, emit.index(size * tile.height) // rows

    def _ask(self, tile: Tile, first: Any, pace: Any) -> None:
        """Prefetches `pace` bytes of the weights, at most those of a step, from `first` on."""
        if tile.part == 0:  # the columns beside them lie in the same lines, or the next
            lines = self.right.bytes // LINE
            for line in range(lines):
                place = first + pace * line // lines
                memory.prefetch(self._frame.inputs[1], place, "int8")


def supports(spec: Spec) -> str | None:
    """Whole groups of int8, of 4 bits in uint32, or of 8-bit floats; no prologue."""
    a, weights, scales = (operand.dtype for operand in spec.operands)
    if a not in ("float32", "bfloat16") or weights not in RIGHT:
        return f"wanted float32 or bfloat16 by {', '.join(RIGHT)}, got {a} by {weights}"
    if scales not in ("float32", "float16", "bfloat16"):
        return f"scales: wanted float32, float16 or bfloat16, got {scales}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products and tiles multiply bfloat16 alone."""
    return ("dots", "tiles") if spec.operands[0].dtype == "bfloat16" else ()


KERNEL = Kernel(
    "quantized_matmul_packed",
    "cpu",
    emit_quantized,
    _beside.launch,
    _beside.supports_each(supports),
    split=_beside.split,
    overwrites="epilogue",
    uses=uses,
)
