"""Rows in 8 bits (see `round_rows`) by weights in 8 or 4 bits, in panels of 32 columns.

Sums of a group are integers, which are exact, and are scaled once. A step takes four integers of a
row, as one word in every lane, and four weights of each column. Where the machine has dot products
of bytes, a step is one of them: one side has no sign there, so weights are raised, and a sum begins
with what that adds, taken off. Others add products of pairs in 16 bits: of 4 bits, raised too,
those of a whole unit along k; of 8 bits magnitudes by integers with the signs of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import bodies, convert, emit, host, memory, sizes
from heddle.kernels.cpu import _beside, _panels
from heddle.kernels.cpu._blocks import PANEL, Block, Tile
from heddle.kernels.cpu._panels import LINE, Tasks
from heddle.kernels.cpu._tile import merged, rows_of
from heddle.kernels.cpu.round_rows import HEAD
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

UNIT = 32
"""Elements along k of a turn. Products of so many fit 16 bits where weights are 15 at most: those
of 8 pairs are up to 2 * 8 * 15 * 127 = 30480."""

WORD = 4
"""Integers in a word."""

STRETCH = 2048
"""Elements along k that all tiles of a block go through before the next, at most."""

DOTS = 5
"""Sums that hide the latency of dot products, two each cycle."""


def emit_rounded(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    lanes = host.lanes_for(machine, ["float32"])
    for frame in _beside.frames(spec, machine):
        tasks = Tasks(frame, lanes, "float32")
        _panels.emit_blocks(tasks, _Product(frame, lanes).multiply)


class _Product:
    """The sums of blocks of rows."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        spec = frame.spec
        rows, weights, scales = spec.operands
        self._frame, self._lanes, self._group = frame, lanes, spec.attr("group")
        self._size, self._groups = frame.size(rows.shape[-1]), frame.size(scales.shape[1])
        self._k = self._groups * self._group
        self._nibbles, self._dots = weights.dtype == "uint32", frame.machine.dots
        self._multiply = _by_dots if self._dots else _raised if self._nibbles else _signed
        self._bytes = UNIT * PANEL // (2 if self._nibbles else 1)
        self._soon = _panels.SPACE.value("ahead", spec, frame.machine.arch) << 10
        self._zero = emit.constant(emit.register_type("float32"), 0, lanes)

    def multiply(self, tasks: Tasks, block: Block, scratch: Any) -> None:
        """Emits the sums of a block, and what writes them."""
        frame, lanes = self._frame, self._lanes
        for place in emit.loop(0, block.height * PANEL, lanes):
            memory.store(self._zero, scratch, place, "float32")
        one = emit.compare("less_equal", emit.as_index(block.height), rows_of(frame.machine))
        depth = max(self._group, STRETCH // self._group * self._group)
        heights = range(rows_of(frame.machine), 1, -1)
        step = emit.select(one, emit.as_index(sizes.greatest(self._k, 1)), depth)
        for start in emit.loop(0, self._k, step):
            stop = sizes.least(start + step, self._k)
            complete = emit.compare("equal", emit.as_index(stop), self._k)
            single = emit.compare("equal", emit.as_index(block.height), 1)
            with emit.when(single):
                self._multiply_row(tasks, block, start, stop, scratch)
            with emit.when(single ^ 1):
                for strip in _panels.strips(frame, block, lanes):
                    tasks.ask_strip(strip, complete)
                    for tile in _panels.tiles(frame, strip, heights):
                        self._add(tile, start, stop, scratch)
                    tasks.write_strip(strip, scratch, complete)

    def _multiply_row(self, tasks: Tasks, block: Block, start: Size, stop: Size, sums: Any) -> None:
        """One row goes along a whole panel: memory is read line after line."""
        vectors = PANEL // self._lanes
        tile = Tile(block.row, 0, 1, block.height, block.panel, 0, vectors, block.column)
        self._add(tile, start, stop, sums)
        tasks.write(block, sums, 0, block.height)

    def _add(self, tile: Tile, start: Size, stop: Size, scratch: Any) -> None:
        """Adds the products along k from `start` to `stop - 1` to the sums."""
        places, aligned = tile.places(self._lanes), self._lanes * emit.ITEM_SIZE["float32"]
        due, pace = self._ahead(tile, start, stop)
        for first in emit.loop(start, stop, self._group):
            begin = due + (first - start) // UNIT * pace
            row_at = self._rows(tile, first)
            sums = self._sums(tile, first, row_at, begin, pace)
            scales = self._scales(tile, first)
            for number, (value, place) in enumerate(zip(sums, places, strict=True)):
                row, column = divmod(number, tile.vectors)
                scale = emit.splat(memory.load(row_at(row), 0, "float32"), self._lanes)
                # Volatile: LLVM would keep totals in registers that it lacks, and spill them.
                pointer = memory.at(scratch, place, "float32")
                total = llvm.load(self._zero.type, pointer, alignment=aligned, volatile_=True)
                value = convert.cast(value, "int32", "float32") * scale
                total = emit.fma(value, scales[column], total)
                llvm.store(total, pointer, alignment=aligned, volatile_=True)

    def _sums(self, tile: Tile, first: Size, row_at: Any, due: Any, pace: Any) -> list[Any]:
        """The sums of a group, as integers."""
        copies = 1
        if self._dots:
            copies = next(c for c in (1, 2, 4) if c == 4 or c * tile.height >= DOTS)
        zero = emit.constant(emit.integer(32), 0, self._lanes)
        own = []
        for row in range(tile.height):
            begin = zero
            if self._nibbles or self._dots:
                begin = emit.splat(memory.load(row_at(row), 1, "int32"), self._lanes)
            own += [begin] * tile.vectors
        before = own + [zero] * (len(own) * (copies - 1))

        def unit(k: Any, due: Any, *sums: Any) -> list[Any]:
            self._ask(tile, due, pace)
            words = [memory.at(row_at(r), HEAD + k, "int8") for r in range(tile.height)]
            return [due + pace, *self._unit(tile, first + k, words, sums)]

        _, *sums = emit.carry(0, self._group, UNIT, [due, *before], unit)
        return merged(sums, copies)

    def _unit(self, tile: Tile, k: Size, words: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """The sums with the products of a unit, of rows whose integers begin at `words`."""
        total, share = list(sums), tile.height * tile.vectors
        pairs: list[Any] = [None] * len(total)
        for number in range(UNIT // WORD):
            weights, copy = self._weights(tile, k, number), number * share % len(total)
            for row, word in enumerate(words):
                integers = memory.load(word, number, "uint32")
                integers = self._as_bytes(emit.splat(integers, self._lanes))
                for at, weight in enumerate(weights, copy + row * tile.vectors):
                    total[at], pairs[at] = self._multiply(total[at], pairs[at], weight, integers)
        both = zip(total, pairs, strict=True)
        return [value if pair is None else value + _widened(pair) for value, pair in both]

    def _weights(self, tile: Tile, k: Size, number: int) -> list[Any]:
        """Those of word `number` of a unit, as bytes, of each vector of columns."""
        step, half = (8, number % 2) if self._nibbles else (WORD, 0)
        first = (tile.panel * self._k + k) // step * PANEL + tile.part
        first += (number // 2 if self._nibbles else number) * PANEL
        found = []
        for column in range(tile.vectors):
            place = first + column * self._lanes
            word = memory.load(self._frame.inputs[1], place, "uint32", self._lanes)
            if self._nibbles:
                word = (word >> 4 if half else word) & 0x0F0F0F0F
            elif self._dots:
                word = word ^ 0x80808080
            found.append(self._as_bytes(word))
        return found

    def _as_bytes(self, words: Any) -> Any:
        return vector.bitcast(emit.widen(emit.integer(8), WORD * self._lanes), words)

    def _rows(self, tile: Tile, first: Size) -> Any:
        """`at(r)`: where the group of element `first` of row r begins."""
        place = first // self._group * (self._group + HEAD)

        def at(r: int) -> Any:
            return memory.at(self._frame.inputs[0], (tile.row + r) * self._size + place, "int8")

        return at

    def _scales(self, tile: Tile, k: Any) -> list[Any]:
        """Those of each vector of columns, of the group that begins with element `k`."""
        scales, dtype = self._frame.inputs[2], self._frame.spec.operands[2].dtype
        place = (tile.panel * self._groups + k // self._group) * PANEL + tile.part
        if tile.part == 0:
            ahead = max(1, self._soon // (self._group // UNIT * self._bytes)) * PANEL
            for line in range(0, PANEL, LINE // emit.ITEM_SIZE[dtype]):
                memory.prefetch(scales, place + (ahead + line), dtype)
        columns = (place + i * self._lanes for i in range(tile.vectors))
        return [memory.load(scales, column, dtype, self._lanes) for column in columns]

    def _ahead(self, tile: Tile, start: Size, stop: Size) -> tuple[Any, Any]:
        """What to ask for beside the first unit of a stretch, and how much beside each.

        Tiles ask for the next stretch, each for a share like that of its rows. A block of one tile
        asks for what comes soon.
        """
        rows = emit.as_index(tile.all_rows)
        one = emit.compare("less_equal", rows, rows_of(self._frame.machine))
        stretch = (stop - start) // UNIT * self._bytes
        panel = (tile.panel * self._k + start) // UNIT * self._bytes
        first = panel + emit.select(one, self._soon, stretch) + stretch * tile.top // rows
        return first, emit.index(self._bytes * tile.height) // rows

    def _ask(self, tile: Tile, first: Any, pace: Any) -> None:
        """Prefetches this part's share of `pace` bytes of the weights from `first` on."""
        lines = self._bytes // LINE
        parts = PANEL // (tile.vectors * self._lanes)
        part = tile.part // (tile.vectors * self._lanes)
        for line in range(part * lines // parts, (part + 1) * lines // parts):
            memory.prefetch(self._frame.inputs[1], first + pace * line // lines, "int8")


def _by_dots(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds dot products of four bytes without signs by four with signs."""
    name = "llvm.x86.avx512.vpdpbusd.512"
    return llvm.call_intrinsic(total.type, name, [total, weights, integers], [], []), pairs


def _raised(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds to the sums of pairs of the unit."""
    found = _sums_of_pairs(weights, integers)
    return total, found if pairs is None else _opaque(pairs + found)


def _signed(total: Any, pairs: Any, weights: Any, integers: Any) -> tuple[Any, Any]:
    """Adds products of magnitudes by integers that are negative where the weight is."""
    if emit.lanes_of(weights) == 2**5:
        name = "llvm.x86.avx2.psign.b"
        integers = llvm.call_intrinsic(weights.type, name, [integers, weights], [], [])
    else:
        integers = emit.select(emit.compare("less", weights, 0), -integers, integers)
    found = _sums_of_pairs(emit.absolute(weights), integers)
    return _opaque(total + _widened(found)), pairs


def _sums_of_pairs(weights: Any, integers: Any) -> Any:
    """Bytes without signs by those with signs, pairs added in 16 bits."""
    lanes = emit.lanes_of(weights)
    name = "llvm.x86.avx2.pmadd.ub.sw" if lanes == 32 else "llvm.x86.avx512.pmaddubs.w.512"
    kind = emit.widen(emit.integer(16), lanes // 2)
    return llvm.call_intrinsic(kind, name, [weights, integers], [], [])


def _widened(pairs: Any) -> Any:
    """The sums of pairs of 16 bits, in 32."""
    lanes = emit.lanes_of(pairs)
    name = "llvm.x86.avx2.pmadd.wd" if lanes == 16 else "llvm.x86.avx512.pmaddw.d.512"
    ones = emit.constant(emit.integer(16), 1, lanes)
    kind = emit.widen(emit.integer(32), lanes // 2)
    return llvm.call_intrinsic(kind, name, [pairs, ones], [], [])


def _opaque(total: Any) -> Any:
    """The same, to LLVM another: it would add what several steps add to each other, and spill."""
    if emit.lanes_of(total) * emit.bits_of(emit.element_of(total)) == 512:
        return total
    return llvm.inline_asm(total.type, [total], "", "=x,0")


def supports(spec: Spec) -> str | None:
    """Rows of `round_rows` by whole groups of int8, or of 4 bits in uint32; no prologue."""
    a, weights, scales = (operand.dtype for operand in spec.operands)
    if a != "uint8" or weights not in ("int8", "uint32"):
        return f"wanted uint8 by int8 or uint32, got {a} by {weights}"
    if scales not in ("float32", "float16", "bfloat16"):
        return f"scales: wanted float32, float16 or bfloat16, got {scales}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel(
    "rounded_matmul_packed",
    "cpu",
    emit_rounded,
    _beside.launch,
    _beside.supports_each(supports),
    split=_beside.split,
    overwrites="epilogue",
    uses=lambda spec: ("dots",),
)
