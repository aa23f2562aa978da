"""How weights of 8 and 4 bits are read and widened on AVX-512, eight along k of a tile's vectors.

On Zen 5 shuffles share a port with products; conversions, additions and shifts do not. So with few
rows fewer instructions win, with many those that run beside the products.
"""

from __future__ import annotations

from typing import Any, Protocol

from heddle.kernels import convert, crosslane, emit, host, memory
from heddle.kernels.cpu import _float8
from heddle.kernels.cpu.products.blocks import PANEL, Tile
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.sizes import Size

arith, llvm, vector = dialect("arith"), dialect("llvm"), dialect("vector")

STEP = 8
"""Elements along k that are taken at once: the 4-bit weights in a uint32."""

TOGETHER = 4
"""Weights of 8 bits along k that lie together: a word of 32 bits for each column."""

MANY, MANY_OF_PAIRS = 8, 4
"""Rows of a tile from which on int8 is widened beside their products, of float32 and of pairs."""


class Reader(Protocol):
    """The weights of a panel, from step to step."""

    bytes: int
    """What a step takes of a panel."""

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""


class _Words:
    """Words of 32 bits for each column, in rows of `together` along k."""

    def __init__(self, frame: host.Frame, lanes: int, together: int) -> None:
        self._weights, self._lanes, self._together = frame.inputs[1], lanes, together
        self._k = frame.size(frame.spec.operands[0].shape[-1])

    def rows(self, tile: Tile, k: Size) -> list[list[Any]]:
        """The vectors of each row of a step."""
        first = (tile.panel * self._k + k) // self._together * PANEL + tile.part
        columns = range(0, tile.vectors * self._lanes, self._lanes)
        return [
            [
                memory.load(self._weights, first + (row * PANEL + i), "uint32", self._lanes)
                for i in columns
            ]
            for row in range(STEP // self._together)
        ]


class _Bytes:
    """Weights of int8."""

    bytes = STEP * PANEL

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._words = _Words(frame, lanes, TOGETHER)
        self._tiles = frame.machine.tiles  # one port shifts there, two add

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        self._rows, self._height = self._words.rows(tile, k), tile.height

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        return self._widened(number, self._height >= MANY)

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        many = self._height >= MANY_OF_PAIRS
        joined = _joined_by_shifts if many or self._tiles else _joined
        return list(map(joined, *(self._widened(2 * number + i, many) for i in range(2))))

    def _widened(self, number: int, many: bool) -> list[Any]:
        widened = _by_shifts if many and not self._tiles else _by_sums
        return [widened(word, number % TOGETHER) for word in self._rows[number // TOGETHER]]


class _Nibbles:
    """Weights of 4 bits, a word for eight along k: bits of the even ones below the odd."""

    bytes = STEP * PANEL // 2

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._words = _Words(frame, lanes, STEP)

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        (self._row,) = self._words.rows(tile, k)

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        shift = 4 * (number // 2) + 16 * (number % 2)
        lowest = [word >> shift if shift else word for word in self._row]
        return [_looked_up(word) for word in lowest]

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        halves = [_halves_of(word) for word in self._row]
        return [_looked_up_halves(half >> (4 * number) if number else half) for half in halves]


class _Floats:
    """Weights of 8-bit floats."""

    bytes = STEP * PANEL

    def __init__(self, frame: host.Frame, lanes: int) -> None:
        self._words = _Words(frame, lanes, TOGETHER)
        self._dtype = frame.spec.operands[1].dtype

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        self._rows = self._words.rows(tile, k)
        split = [[_float8.split(word, self._dtype) for word in row] for row in self._rows]
        self._pairs = [list(pair) for row in split for pair in zip(*row, strict=True)]

    def row(self, number: int) -> list[Any]:
        """Element `number` along k of each column, as float32."""
        pairs = self._pairs[number // 2]
        return [convert.half(pair, number % 2) for pair in pairs]

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


def _by_shifts(words: Any, byte: int) -> Any:
    """The int8 of each word in its byte `byte`, as float32: extended, then converted."""
    highest = words << (24 - 8 * byte) if byte < 3 else words
    extended = arith.shrsi(highest, emit.like(highest, 24))
    return convert.cast(extended, "int32", "float32")


def _by_sums(words: Any, byte: int) -> Any:
    """As `_by_shifts`: a byte plus 128 becomes the end of a mantissa, and what it adds goes."""
    halves = words >> 16 if byte > 1 else words
    mask, lowest = (0xFF00, 2**15) if byte % 2 else (0xFF, 2**23)
    exponent = (127 + lowest.bit_length() - 1) << 23
    bits = (halves & mask) ^ (exponent | mask & 0x8080)
    return emit.bitcast(bits, emit.register_type("float32")) - float(lowest + 128)


def _joined(first: Any, second: Any) -> Any:
    """Integers in float32, which are bfloat16 in its upper half, as pairs of those."""
    low, high = (_halves_of(value) for value in (first, second))
    count = emit.lanes_of(low)
    order = [i // 2 * 2 + 1 + (i % 2) * count for i in range(count)]
    return crosslane.shuffle(low, high, order)


def _joined_by_shifts(first: Any, second: Any) -> Any:
    """As `_joined`."""
    low, high = (emit.bitcast(value, emit.integer(32)) for value in (first, second))
    return low >> 16 | high


def _halves_of(value: Any) -> Any:
    """The lanes of 32 bits as integers of 16."""
    return vector.bitcast(emit.widen(emit.integer(16), 2 * emit.lanes_of(value)), value)


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
