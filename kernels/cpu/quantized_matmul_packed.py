"""a @ b for weights in 8 or 4 bits, in panels of 32 columns (see `_panels`), each group scaled.

A group's sums are scaled once, when they are complete: a weight is so never rounded, and a scale
costs little. Where a is bfloat16 and the machine has dot products of pairs, the weights become
bfloat16, which holds them exactly, and a step takes two elements along k; else all is float32.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, host, memory
from heddle.kernels.cpu import _float8, _panels
from heddle.kernels.cpu._panels import PANEL, Tile
from heddle.kernels.cpu._tile import add_rows, copies_of, merged
from heddle.kernels.cpu.matmul_packed import HIGH, add_dots
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

STEP = 8
"""Elements along k that are taken at once: the 4-bit weights in a uint32."""


def emit_quantized(spec: Spec, machine: Machine) -> None:
    """Emits the products of all tiles."""
    frame = host.frame(spec, machine)
    weights, scales = spec.operands[1:]
    group = spec.attr("group")
    k, groups = (frame.size(size) for size in (spec.operands[0].shape[-1], scales.shape[1]))
    lanes = host.lanes_for(machine, ["float32"])
    zero = emit.constant(emit.register_type("float32"), 0, lanes)
    pairs = machine.dots and spec.operands[0].dtype == "bfloat16"
    right = RIGHT[weights.dtype](frame, lanes)

    def multiply(tile: Tile) -> list[Any]:
        copies = copies_of(tile.height)
        zeros = [zero] * (2 * tile.height * copies)
        left_at = _panels.left_reader(frame, tile, k, lanes)

        def pair_at(r: int, pair: Any) -> Any:
            place = memory.at(frame.inputs[0], (tile.row + r) * k + pair * 2, "bfloat16")
            return emit.splat(memory.load(place, 0, "uint32", alignment=2), lanes)

        def add_group(number: Any, *totals: Any) -> list[Any]:
            def add_step(inner: Any, *sums: Any) -> list[Any]:
                first = number * group + inner
                right.start(tile, first)
                if pairs:
                    steps = map(right.pairs, range(STEP // 2))
                    return add_rows(sums, first // 2, pair_at, steps, copies, add_dots)
                return add_rows(sums, first, left_at, map(right.row, range(STEP)), copies)

            sums = emit.carry(0, group, STEP, zeros, add_step)
            shares = (tile.panel * groups + number) * PANEL + tile.part
            scale = [
                memory.load(frame.inputs[2], shares + half * lanes, scales.dtype, lanes)
                for half in range(2)
            ]
            found = enumerate(zip(sums, totals, strict=True))
            return [emit.fma(value, scale[i % 2], total) for i, (value, total) in found]

        return merged(emit.carry(0, groups, 1, zeros, add_group), copies)

    _panels.emit_tiles(frame, lanes, "float32", multiply)


class _Bytes:
    """Weights of int8, a row of the panel for each k."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._frame, self._lanes = frame, lanes
        self._depth = frame.size(frame.spec.operands[1].shape[1])

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        first = (tile.panel * self._depth + k) * PANEL
        for pair in range(0, STEP, 2):
            _panels.ask_ahead(self._frame, tile, first + pair * PANEL, "int8", 2 * PANEL)
        self._first = first + tile.part

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        places = (self._first + (number * PANEL + half * self._lanes) for half in range(2))
        weights = self._frame.inputs[1]
        row = [memory.load(weights, place, "int8", self._lanes) for place in places]
        return [convert.cast(value, "int8", "float32") for value in row]

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        first, second = (self.row(2 * number + i) for i in range(2))
        return [_joined(low, high) for low, high in zip(first, second, strict=True)]


class _Nibbles:
    """Weights of 4 bits, a row of the panel for eight k: bits of the even ones below the odd."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._frame, self._lanes = frame, lanes
        self._depth = frame.size(frame.spec.operands[1].shape[1])

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        row = (tile.panel * self._depth + k // STEP) * PANEL
        _panels.ask_ahead(self._frame, tile, row, "uint32", PANEL)
        places = (row + (tile.part + half * self._lanes) for half in range(2))
        weights = self._frame.inputs[1]
        self._words = [memory.load(weights, place, "uint32", self._lanes) for place in places]

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        shift = 4 * (number // 2) + 16 * (number % 2)
        lowest = [word >> shift if shift else word for word in self._words]
        if self._lanes == 2**4:
            return [_looked_up(word) for word in lowest]
        return [convert.cast(word & 15, "int32", "float32") - 8.0 for word in lowest]

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        halves = [_lanes_of(16, word) for word in self._words]
        return [_looked_up_halves(half >> (4 * number) if number else half) for half in halves]


class _Floats:
    """Weights of 8-bit floats, a row of the panel for four k: a word of 32 bits for each column."""

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._frame, self._lanes = frame, lanes
        self._dtype = frame.spec.operands[1].dtype
        self._depth = frame.size(frame.spec.operands[1].shape[1])
        self._looks_up = frame.machine.vector_bytes == 64

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        row = (tile.panel * self._depth + k // _float8.TOGETHER) * PANEL
        rows = [row + number * PANEL for number in range(STEP // _float8.TOGETHER)]
        self._words = []
        for first in rows:
            _panels.ask_ahead(self._frame, tile, first, "uint32", PANEL)
            places = (first + (tile.part + half * self._lanes) for half in range(2))
            weights = self._frame.inputs[1]
            words = [memory.load(weights, place, "uint32", self._lanes) for place in places]
            self._words.append(words)
        if self._looks_up:
            split = [[_float8.split(word, self._dtype) for word in row] for row in self._words]
            self._pairs = [list(pair) for row in split for pair in zip(*row, strict=True)]

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        if not self._looks_up:
            words = self._words[number // _float8.TOGETHER]
            return [_float8.single(word, number % _float8.TOGETHER, self._dtype) for word in words]
        pairs = self._pairs[number // 2]
        words = [pair & HIGH if number % 2 else pair << 16 for pair in pairs]
        return [emit.bitcast(word, emit.register_type("float32")) for word in words]

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        return self._pairs[number]


RIGHT: dict[str, Any] = {
    "int8": _Bytes,
    "uint32": _Nibbles,
    "float8_e4m3fn": _Floats,
    "float8_e5m2": _Floats,
}
"""How weights are read, by their dtype."""


def _joined(first: Any, second: Any) -> Any:
    """Integers in float32, which are bfloat16 in its upper half, as pairs of those."""
    low, high = (_lanes_of(16, value) for value in (first, second))
    count = emit.lanes_of(low)
    order = [i // 2 * 2 + 1 + (i % 2) * count for i in range(count)]
    return crosslane.shuffle(low, high, order)


def _lanes_of(bits: int, value: Any) -> Any:
    """The lanes of 32 bits as integers of fewer."""
    lanes = emit.lanes_of(value) * 32 // bits
    return vector.bitcast(emit.widen(emit.integer(bits), lanes), value)


def _looked_up(numbers: Any) -> Any:
    """-8.0 to 7.0 by the lowest four bits of each lane: a register is the whole table."""
    table = _table(emit.register_type("float32"), 2**4)
    name = "llvm.x86.avx512.permvar.sf.512"
    return llvm.call_intrinsic(table.type, name, [table, numbers], [], [])


def _looked_up_halves(numbers: Any) -> Any:
    """As `_looked_up` in bfloat16; the table is there twice, for either fifth bit."""
    table = vector.bitcast(numbers.type, _table(ir.BF16Type.get(), 2**5))
    name = "llvm.x86.avx512.permvar.hi.512"
    return llvm.call_intrinsic(table.type, name, [table, numbers], [], [])


def _table(element: Any, count: int) -> Any:
    """-8 to 7, over and over."""
    entries = [ir.FloatAttr.get(element, float(number % 16 - 8)) for number in range(count)]
    kind = emit.widen(element, count)
    return arith.constant(kind, ir.DenseElementsAttr.get(entries, kind))


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
    """Dot products multiply bfloat16 alone."""
    return ("dots",) if spec.operands[0].dtype == "bfloat16" else ()


KERNEL = Kernel(
    "quantized_matmul_packed",
    "cpu",
    emit_quantized,
    _panels.launch,
    supports,
    overwrites="epilogue",
    uses=uses,
)
