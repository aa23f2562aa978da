"""Tiles on a CPU that has none: in the LLVM IR that ships, their instructions become calls.

A value of type x86_amx becomes the number of a tile that is kept here, with the shape that it was
made in; all else stays as it is and runs on this CPU. What a processor would refuse, and what only
a mistaken kernel does, is a fault, and no fault goes unseen.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual (SDM), volume 2, the page of
each instruction.
"""

import ctypes
import mmap
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any

import numpy as np

ROWS, ROW_BYTES = 16, 64
"""The largest tile: palette 1 of LDTILECFG."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_READ_END, _WRITE_END = os.pipe2(os.O_NONBLOCK)


class TileError(Exception):
    """What a processor or this file refuses."""


@dataclass(frozen=True)
class Tile:
    """`data` is [16, 64] bytes; what lies outside of `rows` and `row_bytes` is zero."""

    rows: int
    row_bytes: int
    data: np.ndarray

    def words(self, dtype) -> np.ndarray:
        """The tile's words of 32 bits as [rows, words, elements of a word]."""
        used = np.ascontiguousarray(self.data[: self.rows, : self.row_bytes])
        return used.view(dtype).reshape(self.rows, self.row_bytes // 4, -1)

    @cached_property
    def bfloat16s(self) -> np.ndarray:
        """As float32, [2, rows, words]: the even ones of each row, and the odd ones."""
        apart = self.words(np.uint16).transpose(2, 0, 1)
        return (apart.astype(np.uint32, order="C") << 16).view(np.float32)

    @cached_property
    def gentle(self) -> bool:
        """Whether each of its bfloat16 numbers is zero, or from `GENTLE` to 1 / `GENTLE`."""
        sizes = np.abs(self.bfloat16s)
        return bool(((sizes == 0) | ((sizes >= GENTLE) & (sizes <= 1 / GENTLE))).all())


_tiles: list[Tile] = []
faults: list[str] = []
"""What was refused since the last call of a `checked` function began."""
rows_touched: list[int] = []
"""Where the rows of tiles were that it read through the first cache, and wrote."""
products: list[str] = []
"""The products that it made."""


def _kept(tile: Tile) -> int:
    _tiles.append(tile)
    return len(_tiles)


def _tile(number: int) -> Tile:
    if not 1 <= number <= len(_tiles):
        raise TileError(f"a tile that nothing made ({number})")
    return _tiles[number - 1]


def _empty(rows: int, row_bytes: int) -> np.ndarray:
    """LDTILECFG raises #GP for a shape beyond the palette's, and for one that is empty."""
    if not (1 <= rows <= ROWS and 1 <= row_bytes <= ROW_BYTES):
        raise TileError(f"a tile of {rows} rows of {row_bytes} bytes")
    return np.zeros((ROWS, ROW_BYTES), np.uint8)


def tilezero(rows: int, row_bytes: int) -> int:
    """SDM, TILEZERO."""
    return _kept(Tile(rows, row_bytes, _empty(rows, row_bytes)))


def tileloadd64(rows: int, row_bytes: int, base: int, stride: int) -> int:
    """SDM, TILELOADD: row r from `base + r * stride` on; the rest of the tile is zero."""
    rows_touched.extend(base + row * stride for row in range(rows))
    return tileloaddt164(rows, row_bytes, base, stride)


def tileloaddt164(rows: int, row_bytes: int, base: int, stride: int) -> int:
    """SDM, TILELOADDT1: as TILELOADD, with a hint that the first cache shall not keep it."""
    data = _empty(rows, row_bytes)

    def read(places: list[int]) -> bytes:
        # The operating system reads, so that a page without access is an error and no signal.
        moved = _LIBC.writev(_WRITE_END, _spans(places, row_bytes), len(places))
        content = _drained()
        return content if moved == len(places) * row_bytes else b""

    content = _each_row("load", [base + row * stride for row in range(rows)], read)
    data[:rows, :row_bytes] = np.frombuffer(content, np.uint8).reshape(rows, row_bytes)
    return _kept(Tile(rows, row_bytes, data))


def tilestored64(rows: int, row_bytes: int, base: int, stride: int, number: int) -> None:
    """SDM, TILESTORED: row r to `base + r * stride`; the tile has the shape that is stored."""
    tile = _shaped(number, rows, row_bytes)
    places = [base + row * stride for row in range(rows)]
    rows_touched.extend(places)

    def written(some: list[int]) -> bool:
        first = places.index(some[0])
        os.write(_WRITE_END, tile.data[first : first + len(some), :row_bytes].tobytes())
        moved = _LIBC.readv(_READ_END, _spans(some, row_bytes), len(some))
        _drained()
        return moved == len(some) * row_bytes

    _each_row("store", places, written)


def _spans(places: list[int], size: int) -> ctypes.Array:
    """An array of `struct iovec`, a place and a size each, which one readv or writev moves."""
    return (ctypes.c_size_t * (2 * len(places)))(*chain.from_iterable(zip(places, repeat(size))))


def _each_row(what: str, places: list[int], move: Callable[[list[int]], Any]) -> Any:
    """What `move` returns of the rows at `places`; where it fails, the first that it fails of."""
    if found := move(places):
        return found
    row = next(row for row, place in enumerate(places) if not move([place]))
    raise TileError(f"row {row} of a {what} lies outside of memory")


def _drained() -> bytes:
    """What is left in the pipe; a transfer that fails may have moved a part."""
    try:
        return os.read(_READ_END, ROWS * ROW_BYTES)
    except BlockingIOError:
        return b""


def tdpbf16ps(m: int, n: int, k: int, sums: int, left: int, right: int) -> int:
    """SDM, TDPBF16PS: denormals are zero, read or written; every sum is rounded to nearest even.

    The even and the odd elements of a row are summed apart, each from zero on in the order of k by
    fused multiply-add; then both are added to each other, and that to the tile.
    """
    c, a, b = _operands(m, n, k, sums, left, right)
    with np.errstate(all="ignore"):  # What is left over in rows that are dropped may be anything.
        if a.gentle and b.gentle:
            pairs = _gentle_pairs(a.bfloat16s, b.bfloat16s)
        else:
            pairs = _pairs(*(_daz(tile.bfloat16s.astype(np.float64)) for tile in (a, b)))
        before = _daz(c.words(np.float32)[:, :, 0].astype(np.float64))
        return _result(m, n, _flushed(before + pairs))


GENTLE = 2.0**-50
"""Products of bfloat16 numbers from here to 1 / `GENTLE` are float32 numbers and multiples of
2**-114, and so are sums of them, however they are rounded: but for zero, no sum is denormal."""


def _gentle_pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """As `_pairs`, where no number is denormal: a fused multiply-add is an exact product, added."""
    products = np.repeat(x.transpose(2, 0, 1)[..., None], y.shape[2], axis=-1)
    products *= y.swapaxes(0, 1)[:, :, None]
    # From zero on and in order: NumPy adds in pairs along the last axis alone.
    even, odd = np.add.reduce(products, axis=0, initial=np.float32(0))
    return even + odd


def _pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    apart = np.zeros((2, x.shape[1], y.shape[2]), np.float32)
    for step in range(y.shape[1]):
        # A product of two bfloat16 is exact in float64, and a sum of it and a float32 that is
        # rounded to float64 and then to float32 is as if it had been rounded once.
        apart = _flushed(apart + x[:, :, step, None] * y[:, None, step])
    return _flushed(apart[0].astype(np.float64) + apart[1])


def _bytes(of_left: type, m: int, n: int, *operands: int) -> int:
    c, a, b = _operands(m, n, *operands)
    x, y = a.words(of_left).astype(np.int64), b.words(np.int8).astype(np.int64)
    after = c.words(np.int32)[:, :, 0] + np.einsum("mkg,kng->mn", x, y)
    return _result(m, n, (after & 0xFFFFFFFF).astype(np.uint32))


tdpbusd, tdpbssd = partial(_bytes, np.uint8), partial(_bytes, np.int8)
"""SDM: fours of products of bytes, unsigned or signed by signed ones, added modulo 2**32."""


def _operands(m: int, n: int, k: int, *numbers: int) -> list[Tile]:
    """The tiles of a product. The SDM has #UD for shapes that do not fit one another.

    Whole words alone are multiplied: colsb of each has to be a multiple of four.
    """
    if n % 4 or k % 4:
        raise TileError(f"a product of parts of words: {n} and {k} bytes")
    shapes = ((m, n), (m, k), (k // 4, n))
    return [_shaped(number, *shape) for number, shape in zip(numbers, shapes, strict=True)]


def _shaped(number: int, rows: int, row_bytes: int) -> Tile:
    tile = _tile(number)
    if (tile.rows, tile.row_bytes) != (rows, row_bytes):
        found = f"{tile.rows} rows of {tile.row_bytes} bytes"
        raise TileError(f"wanted a tile of {rows} rows of {row_bytes} bytes, found {found}")
    return tile


def _result(rows: int, row_bytes: int, words: np.ndarray) -> int:
    data = np.zeros((ROWS, ROW_BYTES), np.uint8)
    data[:rows, :row_bytes] = np.ascontiguousarray(words).view(np.uint8)
    return _kept(Tile(rows, row_bytes, data))


def _daz(numbers: np.ndarray) -> np.ndarray:
    """float32 in float64, denormals as zero."""
    return np.where(np.abs(numbers) < np.finfo(np.float32).tiny, np.copysign(0, numbers), numbers)


def _flushed(numbers: np.ndarray) -> np.ndarray:
    """float64 to float32; zero where, rounded to 24 bits, it is below the smallest normal."""
    scaled = (numbers * 2.0**100).astype(np.float32)
    tiny = np.abs(scaled) < 2.0 ** (100 - 126)
    return np.where(tiny, np.copysign(0, scaled), numbers.astype(np.float32))


# From LLVM IR to calls

_KINDS = {
    "tilezero": "i64 (i16, i16)",
    "tileloadd64": "i64 (i16, i16, ptr, i64)",
    "tileloaddt164": "i64 (i16, i16, ptr, i64)",
    "tilestored64": "void (i16, i16, ptr, i64, i64)",
    **dict.fromkeys(("tdpbf16ps", "tdpbusd", "tdpbssd"), "i64 (i16, i16, i16, i64, i64, i64)"),
}
_CTYPES = {"i16": ctypes.c_uint16, "i64": ctypes.c_int64, "ptr": ctypes.c_size_t, "void": None}
_INTRINSIC = re.compile(r"@llvm\.x86\.(t\w+)\.internal")


def _callback(name: str):
    """The function `name` for callers in C, which no exception can cross."""
    function = globals()[name]

    def guarded(*arguments: int) -> int | None:
        if name.startswith("tdp"):
            products.append(name)
        try:
            return function(*arguments)
        except Exception as fault:  # also a mistake of this file
            faults.append(f"{name}: {fault}")
            return 0 if _KINDS[name].startswith("i64") else None

    result, arguments = re.fullmatch(r"(\w+) \((.*)\)", _KINDS[name]).groups()
    kinds = [_CTYPES[kind] for kind in (result, *arguments.split(", "))]
    return ctypes.CFUNCTYPE(*kinds)(guarded)


_CALLBACKS = {name: _callback(name) for name in _KINDS}

_TABLE = 0x6A00_0000_0000
"""Where each process has the addresses of its functions: so all have the same text of a kernel."""

_ANONYMOUS_AND_HERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE


def _fill_table() -> None:
    access = mmap.PROT_READ | mmap.PROT_WRITE
    place = ctypes.c_void_p(_TABLE)
    _LIBC.mmap.restype = ctypes.c_void_p
    _LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = _LIBC.mmap(place, mmap.PAGESIZE, access, _ANONYMOUS_AND_HERE, -1, 0)
    assert found == _TABLE, "something else lies where the table of functions should"
    table = (ctypes.c_void_p * len(_KINDS)).from_address(_TABLE)
    table[:] = [ctypes.cast(function, ctypes.c_void_p).value for function in _CALLBACKS.values()]


_fill_table()


def emulated(text: str) -> str:
    """LLVM IR without tiles: their type is a number, their instructions are calls."""
    text = re.sub(r"^declare .*@llvm\.x86\.t\w+\.internal\(.*\n", "", text, flags=re.MULTILINE)
    found = sorted(set(_INTRINSIC.findall(text)))
    for name in found:
        result, kinds = re.fullmatch(r"(\w+) \((.*)\)", _KINDS[name]).groups()
        passed = ", ".join(
            f"{kind} {'zeroext ' * (kind == 'i16')}%{number}"
            for number, kind in enumerate(kinds.split(", "))
        )
        value, returned = ("", "void") if result == "void" else ("%value = ", "i64 %value")
        text += (
            f"\ndefine internal {result} @amx.{name}({passed}) {{\n"
            f"  %place = inttoptr i64 {_TABLE + 8 * list(_KINDS).index(name)} to ptr\n"
            f"  %function = load ptr, ptr %place\n"
            f"  {value}call {result} %function({passed})\n"
            f"  ret {returned}\n}}\n"
        )
    return _INTRINSIC.sub(r"@amx.\1", text).replace("x86_amx", "i64")


def checked(function):
    """`function` of emulated code; it raises what was refused while it ran."""

    def call(*arguments) -> None:
        for kept in (_tiles, faults, rows_touched, products):
            kept.clear()
        function(*arguments)
        assert not faults, faults

    return call
