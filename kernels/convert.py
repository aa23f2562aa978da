"""Conversions between dtypes, in registers and to and from memory, without any library call.

bfloat16 is rounded with integer operations: LLVM may turn its own conversion into a call.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect

arith = dialect("arith")


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
    return value


def to_memory(value: Any, dtype: str) -> Any:
    """The inverse of `from_memory`, rounded to nearest even."""
    kind = emit.widen(emit.memory_type(dtype), emit.lanes_of(value))
    if dtype == "bool":
        return arith.extui(kind, value)
    if dtype == "float16":
        return arith.truncf(kind, value)
    if dtype == "bfloat16":
        bits = emit.bitcast(value, emit.integer(32))
        rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        quiet = (bits >> 16) | 0x40
        is_nan = emit.compare("not_equal", value, value)
        return arith.trunci(kind, emit.select(is_nan, quiet, rounded))
    return value


def rounded(value: Any, dtype: str) -> Any:
    """A float32 value rounded to float16 or bfloat16 and back; others pass through."""
    if dtype not in ("float16", "bfloat16"):
        return value
    return from_memory(to_memory(value, dtype), dtype)


def cast(value: Any, source: str, target: str) -> Any:
    """A register value of dtype `source` as one of dtype `target`.

    Floats become integers by truncation, saturated, NaN as 0; integers wrap; a float is rounded to
    nearest even once, also from float64 to the 16-bit floats.
    """
    if source == target:
        return value
    if target == "bool":
        return emit.compare("not_equal", value, 0)
    if emit.is_float(source) and emit.is_float(target):
        return _float_to_float(value, target)
    if emit.is_float(source):
        return _float_to_integer(value, target)
    if emit.is_float(target):
        return _integer_to_float(value, source, target)
    return _resize(value, source, emit.register_type(target))


def _resize(value: Any, source: str, element: Any) -> Any:
    kind = emit.widen(element, emit.lanes_of(value))
    have, want = emit.bits_of(emit.element_of(value)), emit.bits_of(element)
    if have == want:
        return value
    if have > want:
        return arith.trunci(kind, value)
    return (arith.extui if emit.is_unsigned(source) else arith.extsi)(kind, value)


def _float_to_float(value: Any, target: str) -> Any:
    element = emit.register_type(target)
    have, want = emit.bits_of(emit.element_of(value)), emit.bits_of(element)
    kind = emit.widen(element, emit.lanes_of(value))
    if have < want:
        return arith.extf(kind, value)
    if have > want:
        narrow = arith.truncf(kind, value)
        value = narrow if target == "float32" else _to_odd(value, narrow)
    return rounded(value, target)


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


def _integer_to_float(value: Any, source: str, target: str) -> Any:
    """Through float64 for the 16-bit floats, so that there is one rounding."""
    narrow = target in ("float16", "bfloat16")
    if source != "bool" and emit.ITEM_SIZE[source] < 4:
        value, source = _resize(value, source, emit.integer(32)), "int32"
    wide = emit.register_type("float64" if narrow else target)
    kind = emit.widen(wide, emit.lanes_of(value))
    number = (arith.uitofp if emit.is_unsigned(source) else arith.sitofp)(kind, value)
    return _float_to_float(number, target) if narrow else number
