"""Conversions between dtypes, in registers and to and from memory, without any library call.

bfloat16 is rounded by integer operations, unless a machine has an instruction for it: LLVM may turn
its own conversion into a call. So are the floats of 8 bits (OCP 8-bit Floating Point Specification,
version 1.0), without saturation: what is too large becomes infinity, or NaN in float8_e4m3fn, which
has none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from heddle.kernels import crosslane, emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.setting import Setting

arith, vector = dialect("arith"), dialect("vector")

FLOAT8 = {"float8_e4m3fn": (3, 7), "float8_e5m2": (2, 15)}
"""The bits of the mantissa, and the bias of the exponent."""

LARGEST = {"float8_e4m3fn": 0x7E, "float8_e5m2": 0x7B}
"""The code of the largest number."""

HIGH = 0xFFFF0000
"""The bits of a float32 that a bfloat16 has, and of the second of two in a word."""

TWO_REGISTERS = 32
"""Lanes of float32 that fill two registers of AVX-512."""


class Float8Unit(Protocol):
    """What converts floats of 8 bits where a machine has instructions for them."""

    def decode(self, code: Any, dtype: str) -> Any:
        """Codes (i8) as float32."""

    def encode(self, value: Any, dtype: str) -> Any:
        """Float32 as codes."""


_unit: Setting[Float8Unit | None] = Setting("unit", None)


def float8_by(unit: Float8Unit | None) -> AbstractContextManager[None]:
    """What is emitted in it converts floats of 8 bits by `unit`; None: by integer operations."""
    return _unit.to(unit)


def float8_unit() -> Float8Unit | None:
    """The unit in use."""
    return _unit.get()


_rounds: Setting[Callable[[Any], Any] | None] = Setting("rounds", None)


def bfloat16_by(unit: Callable[[Any], Any] | None) -> AbstractContextManager[None]:
    """What is emitted in it rounds float32 to bfloat16 by `unit`; None: as `bfloat16_bits`."""
    return _rounds.to(unit)


def from_memory(value: Any, dtype: str) -> Any:
    """A value of `emit.memory_type(dtype)` as `emit.register_type(dtype)`."""
    lanes = emit.lanes_of(value)
    if dtype == "bool":
        return emit.compare("not_equal", value, 0)
    if dtype == "float16":
        return arith.extf(emit.widen(emit.register_type(dtype), lanes), value)
    if dtype == "bfloat16":
        bits = arith.extui(emit.widen(emit.integer(32), lanes), value)
        return emit.bitcast(bits << 16, emit.register_type(dtype))
    if dtype in FLOAT8:
        unit = _unit.get()
        return unit.decode(value, dtype) if unit else _from_float8(value, dtype)
    return value


def half(pairs: Any, number: int) -> Any:
    """Number 0 or 1 of pairs of bfloat16 in words of 32 bits, as float32."""
    return emit.bitcast(pairs & HIGH if number else pairs << 16, emit.register_type("float32"))


def from_pairs(value: Any) -> Any:
    """As `from_memory` of a vector of bfloat16, its even elements before its odd ones."""
    words = vector.bitcast(emit.widen(emit.integer(32), emit.lanes_of(value) // 2), value)
    return crosslane.joined([half(words, number) for number in range(2)])


def to_memory(value: Any, dtype: str) -> Any:
    """The inverse of `from_memory`, rounded to nearest even."""
    kind = emit.widen(emit.memory_type(dtype), emit.lanes_of(value))
    if dtype == "bool":
        return arith.extui(kind, value)
    if dtype == "float16":
        return arith.truncf(kind, value)
    if dtype == "bfloat16":
        return (_rounds.get() or bfloat16_bits)(value)
    if dtype in FLOAT8:
        unit = _unit.get()
        return unit.encode(value, dtype) if unit else arith.trunci(kind, _to_float8(value, dtype))
    return value


def bfloat16_bits(value: Any) -> Any:
    """The bits of float32 rounded to bfloat16, to nearest even, by integer operations."""
    bits, lanes = emit.bitcast(value, emit.integer(32)), emit.lanes_of(value)
    rounded = bits + ((bits >> 16) & 1) + 0x7FFF
    is_nan = emit.compare("not_equal", value, value)
    word = emit.select(is_nan, bits | 0x400000, rounded)
    if lanes < TWO_REGISTERS:
        return arith.trunci(emit.widen(emit.integer(16), lanes), word >> 16)
    # One instruction for two registers of AVX-512, which would be shifted, narrowed and joined.
    halves = vector.bitcast(emit.widen(emit.integer(16), 2 * lanes), word)
    return crosslane.shuffle(halves, halves, range(1, 2 * lanes, 2))


def _from_float8(code: Any, dtype: str) -> Any:
    """By way of float16, whose mantissa begins with theirs: float8_e5m2 is its upper byte."""
    lanes = emit.lanes_of(code)
    wide = arith.extsi(emit.widen(emit.integer(16), lanes), code)
    # The sign of a float8_e4m3fn was spread over the first bit of the exponent.
    wide = (wide << 7) & 0xBFFF if dtype == "float8_e4m3fn" else wide << 8
    half = emit.bitcast(wide, ir.F16Type.get())
    value = arith.extf(emit.widen(ir.F32Type.get(), lanes), half)
    if dtype == "float8_e5m2":
        return value
    bits = emit.bitcast(value * 2.0**8, emit.integer(32))
    is_nan = emit.compare("equal", code & 0x7F, 0x7F)
    bits = bits | emit.select(is_nan, 0x7FC00000, emit.like(bits, 0))
    return emit.bitcast(bits, ir.F32Type.get())


def _to_float8(value: Any, dtype: str) -> Any:
    """The code of a float32 value, in 32 bits."""
    mantissa, bias = FLOAT8[dtype]
    dropped = 23 - mantissa
    bits = emit.bitcast(value, emit.integer(32))
    magnitude = bits & 0x7FFFFFFF
    half = 2 ** (dropped - 1) - 1
    normal = (magnitude + ((magnitude >> dropped) & 1) + half) >> dropped
    normal = normal - ((127 - bias) << mantissa)
    # A sum with a number whose last bit is that of the denormals is rounded to a multiple of it.
    base = 2.0 ** (24 - bias - mantissa)
    base_bits = (127 + 24 - bias - mantissa) << 23
    total = emit.bitcast(magnitude, ir.F32Type.get()) + base
    denormal = emit.bitcast(total, emit.integer(32)) - base_bits
    is_denormal = emit.compare("less", magnitude, (127 + 1 - bias) << 23)
    code = emit.select(is_denormal, denormal, normal)
    if dtype == "float8_e4m3fn":
        code = emit.minimum(code, 0x7F, unsigned=True)  # also of infinity and NaN
    else:
        code = emit.minimum(code, 0x7C, unsigned=True)
        code = emit.select(emit.compare("not_equal", value, value), 0x7E, code)
    return code | ((bits >> 24) & 0x80)


def rounded(value: Any, dtype: str) -> Any:
    """A float32 value rounded to a narrow float and back; others pass through."""
    if dtype not in emit.NARROW:
        return value
    return from_memory(to_memory(value, dtype), dtype)


def cast(value: Any, source: str, target: str, rounds: bool = True) -> Any:
    """A register value of dtype `source` as one of dtype `target`.

    Floats become integers by truncation, saturated, NaN as 0; integers wrap; a float is rounded to
    nearest even once, also from float64 to the narrow floats: by `to_memory`, where this does not.
    """
    if source == target:
        return value
    if target == "bool":
        return emit.compare("not_equal", value, 0)
    if emit.is_float(source) and emit.is_float(target):
        return _float_to_float(value, target, rounds)
    if emit.is_float(source):
        return _float_to_integer(value, target)
    if emit.is_float(target):
        return _integer_to_float(value, source, target, rounds)
    return _resize(value, source, emit.register_type(target))


def _resize(value: Any, source: str, element: Any) -> Any:
    kind = emit.widen(element, emit.lanes_of(value))
    have, want = emit.bits_of(emit.element_of(value)), emit.bits_of(element)
    if have == want:
        return value
    if have > want:
        return arith.trunci(kind, value)
    return (arith.extui if emit.is_unsigned(source) else arith.extsi)(kind, value)


def _float_to_float(value: Any, target: str, rounds: bool) -> Any:
    element = emit.register_type(target)
    have, want = emit.bits_of(emit.element_of(value)), emit.bits_of(element)
    kind = emit.widen(element, emit.lanes_of(value))
    if have < want:
        return arith.extf(kind, value)
    if have > want:
        narrow = arith.truncf(kind, value)
        value = narrow if target == "float32" else _to_odd(value, narrow)
    return rounded(value, target) if rounds else value


def _to_odd(wide: Any, narrow: Any) -> Any:
    """`wide` rounded to odd, so that rounding the result again is as if done once.

    Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    back = arith.extf(wide.type, narrow)
    bits = emit.bitcast(narrow, emit.integer(32))
    kind = bits.type
    over = emit.compare("greater", emit.absolute(back), emit.absolute(wide))
    inexact = emit.compare("less", back, wide) | emit.compare("greater", back, wide)
    toward_zero = bits - arith.extui(kind, over)
    return emit.bitcast(toward_zero | arith.extui(kind, inexact), emit.element_of(narrow))


def _float_to_integer(value: Any, target: str) -> Any:
    """Clamps to the largest floats inside the range, then converts; both ends stay exact."""
    bits = 8 * emit.ITEM_SIZE[target]
    unsigned = emit.is_unsigned(target)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    wide = emit.integer(max(bits, 32))
    kind = emit.widen(wide, emit.lanes_of(value))
    is_nan = emit.compare("not_equal", value, value)
    below = emit.compare("less_equal", value, float(low))
    above = emit.compare("greater_equal", value, float(high))
    inside = emit.select(is_nan | below | above, 0.0, value)
    whole = (arith.fptoui if unsigned and bits >= 32 else arith.fptosi)(kind, inside)
    whole = emit.select(above, high, emit.select(below, low, whole))
    return _resize(whole, target, emit.integer(bits))


def _integer_to_float(value: Any, source: str, target: str, rounds: bool) -> Any:
    """Through float64 for the narrow floats: integers of up to 53 bits are rounded once."""
    narrow = target in emit.NARROW
    if source != "bool" and emit.ITEM_SIZE[source] < 4:
        value, source = _resize(value, source, emit.integer(32)), "int32"
    wide = emit.register_type("float64" if narrow else target)
    kind = emit.widen(wide, emit.lanes_of(value))
    number = (arith.uitofp if emit.is_unsigned(source) else arith.sitofp)(kind, value)
    return _float_to_float(number, target, rounds) if narrow else number
