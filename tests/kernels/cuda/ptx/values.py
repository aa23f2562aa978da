"""PTX instructions that compute values: a row of `ROWS` for each, by its full name.

A row says as what its operands are read, and has a function of their arrays; registers hold bits,
as signed integers of their width. Where the emulator of MLIR has the meaning, it is called. The
comment above a group names the section of the PTX ISA 9.0 manual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from emulator.compare import RELATION, compare_floats
from emulator.float8 import narrow, widen
from emulator.values import fma, permute_bytes, round_to

SIGNED = {bits: np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)}
UNSIGNED = {bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}
BOOL = np.dtype(bool)
FLOAT = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
KINDS: dict[str, np.dtype] = {
    **{f"s{bits}": dtype for bits, dtype in SIGNED.items()},
    **{f"u{bits}": dtype for bits, dtype in UNSIGNED.items()},
    **{f"b{bits}": dtype for bits, dtype in SIGNED.items()},
    **FLOAT,
    "pred": BOOL,
}


@dataclass(frozen=True)
class Pair:
    """Two values in a register of 32 bits, or of 16: the first one in the lower half."""

    dtype: np.dtype


@dataclass(frozen=True)
class Row:
    """`kinds` of the operands, and a function of their arrays."""

    kinds: tuple[np.dtype | Pair, ...]
    function: Callable


def read_as(kind: np.dtype | Pair, held: np.dtype) -> Callable | None:
    """What makes `kind` of a register of dtype `held`; None where it is that already."""
    if isinstance(kind, Pair):
        return lambda x: x.view(kind.dtype).reshape(-1, 2)
    if kind == held:
        return None
    if kind.itemsize == held.itemsize:
        return lambda x: x.view(kind)
    whole = UNSIGNED[8 * kind.itemsize]
    return lambda x: x.astype(whole).view(kind)


def write_as(found: np.ndarray, held: np.dtype) -> np.ndarray:
    """What an instruction found as a register holds it: narrow signed numbers are extended."""
    if found.dtype == held:
        return found
    if found.ndim == 2:  # A pair.
        return np.ascontiguousarray(found).view(held).reshape(-1)
    if found.dtype.itemsize == held.itemsize:
        return found.view(held)
    if found.dtype.kind not in "iu":
        found = found.view(UNSIGNED[8 * found.dtype.itemsize])
    return found.astype(held)


ROWS: dict[str, Row] = {}


def add(name: str, function: Callable, *kinds: str) -> None:
    ROWS[name] = Row(tuple(KINDS[kind] for kind in kinds), function)


def approximate(function: Callable, error: int) -> Callable:
    """Off by as much as the manual allows, to either side; exact of zeros and infinities.

    .ftz: subnormal numbers are zeros of their sign, in and out.
    """
    least = np.finfo(np.float32).smallest_normal

    def flush(x):
        return np.where(np.abs(x) < least, np.copysign(np.float32(0), x), x)

    def run(x):
        found = flush(function(flush(x)))
        side = np.where(x.view(np.int32) & 1, np.int32(error), np.int32(-error))
        off = (found.view(np.int32) + side).view(np.float32)
        exact = (flush(x) == 0) | ~np.isfinite(x) | (found == 0) | ~np.isfinite(found)
        return np.where(exact, found, flush(off)).astype(np.float32)

    return run


def high_product(a, b):
    """The upper half of a product of 64 bits by 64."""
    half = np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


def shift(function: Callable) -> Callable:
    """Shifts by more than the width are by the width, which NumPy does, too."""
    return lambda a, count: function(a, np.minimum(count, np.uint32(64)).astype(a.dtype))


def extract(a, start, length):
    """bfe: `length` bits from bit `start` on; of signed numbers the last one is spread."""
    bits = 8 * a.itemsize
    start, length = (np.minimum(x & 0xFF, bits).astype(np.int64) for x in (start, length))
    last = np.minimum(start + length, bits)
    whole = a.view(f"u{a.itemsize}")
    up, down = (x.astype(a.dtype) for x in (bits - last, bits - last + start))
    found = np.right_shift((whole << up.view(whole.dtype)).view(a.dtype), down)
    return np.where(length == 0, a.dtype.type(0), found)


def truncating(wide: int, function: Callable) -> Callable:
    """The function in numbers of `wide` bits, its upper half."""

    def run(a, b):
        kind = np.dtype(f"{a.dtype.kind}{wide // 8}")
        return (function(a.astype(kind), b.astype(kind)) >> kind.type(wide // 2)).astype(a.dtype)

    return run


def widened(a, b):
    kind = f"{a.dtype.kind}{2 * a.itemsize}"
    return a.astype(kind) * b.astype(kind)


def _integers() -> None:
    # "Integer Arithmetic Instructions"
    for bits in (16, 32, 64):
        s, u = f"s{bits}", f"u{bits}"
        add(f"add.{s}", np.add, s, s)
        add(f"sub.{s}", np.subtract, s, s)
        add(f"mul.lo.{s}", np.multiply, s, s)
        add(f"mad.lo.{s}", lambda a, b, c: a * b + c, s, s, s)
        add(f"neg.{s}", np.negative, s)
        add(f"abs.{s}", np.abs, s)
        for kind in (s, u):
            add(f"max.{kind}", np.maximum, kind, kind)
            add(f"min.{kind}", np.minimum, kind, kind)
            if bits < 64:
                add(f"mul.wide.{kind}", widened, kind, kind)
                add(f"mul.hi.{kind}", truncating(2 * bits, np.multiply), kind, kind)
    add("popc.b32", lambda x: np.bitwise_count(x).astype(np.int32), "u32")
    add("popc.b64", lambda x: np.bitwise_count(x).astype(np.int32), "u64")
    add("mul.hi.u64", high_product, "u64", "u64")
    for kind in ("s32", "u32", "s64", "u64"):
        add(f"bfe.{kind}", extract, kind, "u32", "u32")
    # "Logic and Shift Instructions"
    for kind in ("pred", "b16", "b32", "b64"):
        add(f"and.{kind}", np.bitwise_and, kind, kind)
        add(f"or.{kind}", np.bitwise_or, kind, kind)
        add(f"xor.{kind}", np.bitwise_xor, kind, kind)
        add(f"not.{kind}", np.invert, kind)
        if kind != "pred":
            signed, unsigned = kind.replace("b", "s"), kind.replace("b", "u")
            add(f"shl.{kind}", shift(np.left_shift), kind, "u32")
            add(f"shr.{signed}", shift(np.right_shift), signed, "u32")
            add(f"shr.{unsigned}", shift(np.right_shift), unsigned, "u32")
    add("prmt.b32", permute_bytes, "b32", "b32", "b32")


def _floats() -> None:
    # "Floating Point Instructions", "Half Precision Floating Point Instructions"
    for kind in FLOAT:
        if kind in ("f32", "f64"):
            add(f"div.rn.{kind}", np.divide, kind, kind)
            add(f"rcp.rn.{kind}", lambda x: x.dtype.type(1) / x, kind)
            add(f"sqrt.rn.{kind}", np.sqrt, kind)
        add(f"neg.{kind}", np.negative, kind)
        add(f"abs.{kind}", np.abs, kind)
        for name, function in (("max", np.fmax), ("min", np.fmin)):
            add(f"{name}.{kind}", function, kind, kind)
        for name, function in (("max", np.maximum), ("min", np.minimum)):
            add(f"{name}.NaN.{kind}", function, kind, kind)
        for mode in (".rn", ""):
            add(f"add{mode}.{kind}", np.add, kind, kind)
            add(f"sub{mode}.{kind}", np.subtract, kind, kind)
            add(f"mul{mode}.{kind}", np.multiply, kind, kind)
        add(f"fma.rn.{kind}", fma, kind, kind, kind)
        for mode, function in (("rni", np.rint), ("rmi", np.floor), ("rpi", np.ceil)):
            add(f"cvt.{mode}.{kind}.{kind}", function, kind)
    for kind in ("f16", "bf16"):
        for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            one, pair = ROWS[f"{name}.rn.{kind}"], Pair(FLOAT[kind])
            ROWS[f"{name}.rn.{kind}x2"] = Row((pair,) * count, one.function)
    # Approximations: errors in units in the last place are those of the tables of each
    add("ex2.approx.ftz.f32", approximate(np.exp2, 2), "f32")
    add("rcp.approx.ftz.f32", approximate(np.reciprocal, 1), "f32")


def _choices() -> None:
    # "Comparison and Selection Instructions"
    for bits in (16, 32, 64):
        for name, relation in RELATION.items():
            for kind in (f"s{bits}", f"u{bits}", f"b{bits}"):
                if kind[0] != "b" or name in ("eq", "ne"):
                    add(f"setp.{name}.{kind}", relation, kind, kind)
    for kind in FLOAT:
        for name in RELATION:
            add(f"setp.{name}.{kind}", compare_floats(name), kind, kind)
            add(f"setp.{name}u.{kind}", compare_floats(f"u{name}"), kind, kind)
        add(f"setp.nan.{kind}", compare_floats("uno"), kind, kind)
        add(f"setp.num.{kind}", compare_floats("ord"), kind, kind)
    for kind in ("b16", "b32", "b64", "s16", "s32", "s64", "f32", "f64"):
        add(f"selp.{kind}", lambda a, b, holds: np.where(holds, a, b), kind, kind, "pred")


def cast(target: np.dtype) -> Callable:
    return lambda x: x.astype(target)


def paired(dtype: np.dtype) -> Callable:
    """The first of two in the upper half."""
    return lambda high, low: np.stack(np.broadcast_arrays(low, high), 1).astype(dtype)


def _conversions() -> None:
    # "Data Movement and Conversion Instructions": mov, cvt
    for kind in ("b16", "b32", "b64", "pred"):
        add(f"mov.{kind}", lambda x: x.view(x.dtype), kind)
    whole = [f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)]
    for target in whole:
        for source in whole:
            add(f"cvt.{target}.{source}", cast(KINDS[target]), source)
        for source in FLOAT:
            kind = KINDS[target].name
            add(f"cvt.rzi.{target}.{source}", round_to(KINDS[target], kind), source)
            add(f"cvt.rn.{source}.{target}", cast(FLOAT[source]), target)
    for name in ("f16", "bf16"):
        add(f"cvt.f32.{name}", cast(FLOAT["f32"]), name)
        add(f"cvt.rn.{name}.f32", cast(FLOAT[name]), "f32")
        add(f"cvt.rn.{name}x2.f32", paired(FLOAT[name]), "f32", "f32")
    add("cvt.f64.f32", cast(FLOAT["f64"]), "f32")
    add("cvt.rn.f32.f64", cast(FLOAT["f32"]), "f64")
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        add(f"cvt.rn.satfinite.{name}x2.f32", narrow(dtype), "f32", "f32")
        ROWS[f"cvt.rn.f16x2.{name}x2"] = Row((Pair(np.dtype(np.int8)),), widen(dtype))


_integers()
_floats()
_choices()
_conversions()
