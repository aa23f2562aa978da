"""The emulation of AVX-512 by itself: against exact arithmetic, and against the instructions."""

import math
import re
from fractions import Fraction

import avx512_emulation
import ml_dtypes
import numpy as np
import pytest
from avx512_instructions import (
    BY_NAME,
    DOTS,
    LEVEL,
    V3,
    V4,
    emulate,
    integers,
    kernel,
    patterns,
    results,
    same,
)

from heddle.graph.compiler.codegen import cpu


def test_sums_of_products_of_words():
    a, b = (integers(np.int16, 300, seed) for seed in (0, 1))
    products = a.astype(np.int64) * b
    wanted = products.reshape(300, 16, 2).sum(-1).astype(np.int32)
    same(emulate("vpmaddwd", a, b, dtype=np.int32), wanted)


def test_sums_of_products_of_bytes():
    total, a, b = (integers(t, 300, n) for n, t in enumerate((np.int32, np.uint8, np.int8)))
    products = a.astype(np.int64) * b
    wanted = (total + products.reshape(300, 16, 4).sum(-1)).astype(np.int32)
    same(emulate("vpdpbusd", total, a, b, dtype=np.int32), wanted)


def test_saturated_sums_of_products_of_bytes():
    a, b = (integers(t, 300, n) for n, t in enumerate((np.uint8, np.int8)))
    a[:2], b[0], b[1] = 255, 127, -128
    products = a.astype(np.int64) * b
    wanted = products.reshape(300, 32, 2).sum(-1).clip(-(2**15), 2**15 - 1).astype(np.int16)
    same(emulate("vpmaddubsw", a, b, dtype=np.int16), wanted)


def test_permutations():
    rng = np.random.default_rng(0)
    numbers, places = patterns(np.float32, 100, 0), integers(np.int32, 100, 1)
    wanted = np.take_along_axis(numbers.view(np.uint32), places & 15, 1)
    same(emulate("vpermps", numbers, places, dtype=np.uint32), wanted)
    first, second, places = (rng.integers(0, 2**16, (100, 32), np.uint16) for _ in range(3))
    wanted = np.take_along_axis(first, places & 31, 1)
    same(emulate("vpermw", first, places, dtype=np.uint16), wanted)
    wanted = np.take_along_axis(np.concatenate([first, second], 1), places & 63, 1)
    same(emulate("vperm[it]2w", first, places, second, dtype=np.uint16), wanted)


def rounded_to_bfloat16(numbers):
    """As in Intel's manual: denormals as zero, NaN cut off and quiet."""
    bits = numbers.view(np.uint32)
    cut = (bits >> 16).astype(np.uint16)
    with np.errstate(all="ignore"):
        found = numbers.astype(ml_dtypes.bfloat16).view(np.uint16)
    found = np.where(np.isnan(numbers), cut | 0x40, found)
    return np.where(np.abs(numbers) < np.finfo(np.float32).tiny, cut & 0x8000, found)


def halfway(rows):
    """Numbers at, right below and right above the middle between two bfloat16."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**16, (rows, 16)) << 16
    return (bits + 0x8000 + rng.integers(-1, 2, bits.shape)).astype(np.uint32).view(np.float32)


def test_rounding_to_bfloat16():
    numbers = np.concatenate([patterns(np.float32, 300, 0), halfway(300)])
    found = emulate("vcvtneps2bf16", numbers, dtype=np.uint16)[:, :16]
    same(found, rounded_to_bfloat16(numbers))
    others = numbers[::-1]
    found = emulate("vcvtne2ps2bf16", numbers, others, dtype=np.uint16)
    same(found, rounded_to_bfloat16(np.concatenate([others, numbers], axis=1)))


def test_denormal_numbers():
    numbers = patterns(np.float32, 300, 0)
    found = emulate("vfpclassps", numbers, dtype=np.uint16)[:, 0]
    denormal = (numbers != 0) & (np.abs(numbers) < np.finfo(np.float32).tiny)
    same(found, np.packbits(denormal, axis=1, bitorder="little").view(np.uint16)[:, 0])


def nearest(exact, digits=24, least=-126):
    """A fraction as a number of so many digits, to nearest even; zero below 2**least."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - digits + 1)
    found = round(size / unit) * unit  # Python rounds halves to even.
    if found >= Fraction(2) ** 128:
        return math.copysign(math.inf, exact)
    return math.copysign(float(found) if found >= Fraction(2) ** least else 0.0, exact)


def multiply_and_add(a, b, c):
    """c + a b for numbers that are normal or special, rounded once."""
    whole = c + a * b
    if not math.isfinite(whole) or whole == 0:
        return whole
    return nearest(Fraction(c) + Fraction(a) * Fraction(b))


def dot_of_pairs(total, left, right):
    """VDPBF16PS of one lane, by fractions."""
    for place in (1, 0):
        a, b, c = (
            float(np.copysign(0, x) if abs(x) < 2.0**-126 else x)
            for x in (left[place], right[place], total)
        )
        total = multiply_and_add(a, b, c)
    return total


def dots(totals, left, right):
    sides = [side.reshape(*totals.shape, 2).astype(np.float64) for side in (left, right)]
    wanted = [
        dot_of_pairs(totals[at], *(side[at] for side in sides)) for at in np.ndindex(totals.shape)
    ]
    wanted = np.array(wanted).astype(np.float32).reshape(totals.shape)
    return emulate("vdpbf16ps", totals, left, right, dtype=np.float32), wanted


def narrow(numbers):
    """The upper halves of the bits."""
    bits = (np.ascontiguousarray(numbers).view(np.uint32) >> 16).astype(np.uint16)
    return bits.view(ml_dtypes.bfloat16)


def beside_each_other(first, second):
    return np.stack([narrow(first), narrow(second)], -1).reshape(len(first), 32)


def test_dot_products_of_any_bits():
    parts = [patterns(np.float32, 200, seed) for seed in range(5)]
    with np.errstate(invalid="ignore"):
        same(*dots(parts[0], beside_each_other(*parts[1:3]), beside_each_other(*parts[3:])))


@pytest.mark.parametrize("exponent", [0, -126, 127])
def test_dot_products_of_like_numbers(exponent):
    """Ties, sums that cancel, become denormal, and overflow."""
    rng = np.random.default_rng(3)

    def numbers(powers):
        digits = rng.integers(8, 2**9, (200, 16)) * rng.choice([-1, 1], (200, 16))
        return np.ldexp(digits, rng.integers(*powers, digits.shape)).astype(np.float32)

    half = exponent // 2
    parts = [numbers((half - 12, half + 4)) for _ in range(4)]
    with np.errstate(over="ignore"):
        totals = numbers((exponent - 26, exponent - 7))
    same(*dots(totals, beside_each_other(*parts[:2]), beside_each_other(*parts[2:])))


def test_odd_elements_come_first():
    """Beside 2**24 units are 2, and halves go to multiples of 4."""
    totals, one = np.full((1, 16), 2.0**24, np.float32), np.ones((1, 16), np.float32)
    for even, odd, sum_of_all in ((1, 1, 0), (1, 2, 4), (2, 1, 2)):
        sides = (beside_each_other(even * one, odd * one), beside_each_other(one, one))
        found, _ = dots(totals, *sides)
        assert (found == 2.0**24 + sum_of_all).all()


def test_a_sum_is_flushed_as_if_it_had_more_exponents():
    """In no comparison with an instruction: the manual says only that denormals become zero."""
    tiny = np.float32(2.0**-126)
    for product, wanted in ((2.0**-152, tiny), (2.0**-150, 0.0), (2.0**-149, 0.0)):
        left, right = np.float32(2.0**-70), np.float32(-product * 2.0**70)
        sides = [narrow(np.full((1, 32), side)) for side in (left, right)]
        text = avx512_emulation.emulated(kernel(BY_NAME["vdpbf16ps"]), V3)
        sides[1][:, 1::2] = 0
        operands = [np.full((1, 16), tiny), *sides]
        same(results(text, V3, operands, np.float32), np.full((1, 16), wanted, np.float32))


@pytest.mark.parametrize(("name", "dtype"), [("vreduceps", "f4"), ("vreducepd", "f8")])
def test_what_is_left_of_a_number(name, dtype):
    rng = np.random.default_rng(4)
    numbers = patterns(dtype, 300, 5)
    plain = np.ldexp(rng.standard_normal(numbers.shape), rng.integers(-40, 30, numbers.shape))
    numbers = np.concatenate([numbers, plain.astype(dtype), np.rint(plain).astype(dtype)])
    digits = np.finfo(dtype).nmant + 1

    def left(x):
        """Rounded down, where a zero is negative."""
        if math.isnan(x) or math.isinf(x):
            return x - x if math.isnan(x) else 0.0
        exact = Fraction(x) - math.floor(x)
        if exact == 0:
            return -0.0
        exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
        unit = Fraction(2) ** (exponent - (exact < Fraction(2) ** exponent) - digits + 1)
        return float(exact // unit * unit)

    wanted = np.array([left(float(x)) for x in numbers.ravel()]).astype(dtype)
    same(emulate(name, numbers, dtype=dtype), wanted.reshape(numbers.shape))


# VSCALEF where the power is NaN or infinite (SDM, its table of special cases): by the number's kind
# what becomes of it for a NaN, for +inf and for -inf. None stands for itself.
SPECIAL_SCALES = {
    "quiet": (math.nan, math.inf, 0.0),
    "signalling": (math.nan, math.nan, math.nan),
    "infinite": (math.nan, None, math.nan),
    "zero": (math.nan, math.nan, None),
    "finite": (math.nan, math.inf, 0.0),
}


def kind_of(x, bits, mantissa):
    if math.isnan(x):
        return "quiet" if bits >> (mantissa - 1) & 1 else "signalling"
    return "infinite" if math.isinf(x) else "finite" if x else "zero"


@pytest.mark.parametrize(("name", "dtype"), [("vscalefps", "f4"), ("vscalefpd", "f8")])
def test_numbers_are_scaled(name, dtype):
    rng, mantissa = np.random.default_rng(6), np.finfo(dtype).nmant
    numbers, powers = (patterns(dtype, 600, seed) for seed in (7, 8))
    far = 2 * np.finfo(dtype).maxexp + mantissa
    inside = rng.uniform(-far, far, powers.shape).astype(dtype)
    powers = np.where(rng.random(powers.shape) < 0.7, inside, powers)
    powers[::3] = np.rint(inside[::3])
    # Results that are denormal, of numbers that would be so halfway.
    some, least = numbers[1::3], np.finfo(dtype).minexp
    numbers[1::3] = rng.uniform(1, 2, some.shape) * 2.0 ** rng.integers(-mantissa, 0, some.shape)
    powers[1::3] = rng.integers(least - mantissa, least, some.shape)

    def scaled(x, bits, power):
        if math.isfinite(power):
            # Of float32, float64 loses nothing: it is rounded once.
            return np.ldexp(x, math.floor(max(-far, min(power, far))))
        kind = kind_of(x, bits, mantissa)
        found = SPECIAL_SCALES[kind][0 if math.isnan(power) else 1 if power > 0 else 2]
        found = x if found is None else found
        return math.copysign(found, x) if kind == "finite" else found

    bits = numbers.view(f"u{numbers.itemsize}").ravel().tolist()
    with np.errstate(all="ignore"):
        rows = zip(numbers.ravel().astype("f8"), bits, powers.ravel().tolist(), strict=True)
        wanted = np.array([scaled(*row) for row in rows]).astype(dtype)
        found = emulate(name, numbers, powers, dtype=dtype)
    same(found, wanted.reshape(numbers.shape))


def test_all_are_here():
    names = {*avx512_emulation.V4, *avx512_emulation.DOTS}
    assert set(re.findall(r"@llvm\.x86\.([\w.]+)\(", str(BY_NAME))) == names


@pytest.mark.parametrize("name", BY_NAME)
def test_what_a_level_has_stays(name):
    """Its code has the instruction; it is emulated for the levels below alone."""
    text, levels = kernel(BY_NAME[name]), (V3, V4, DOTS)
    register = {"vcvtneps2bf16": "ymm", "vfpclassps": "k"}.get(name, "zmm")
    for machine in levels:
        module, target = cpu.optimized(avx512_emulation.emulated(text, machine), machine)
        found = re.search(rf"\t{name}z?\t.*%{register}", target.emit_assembly(module))
        assert bool(found) == (levels.index(machine) >= levels.index(LEVEL[name]))


REFUSED = {
    "avx512.psad.bw.512": "call <8 x i64> @llvm.x86.avx512.psad.bw.512(<64 x i8> %a, <64 x i8> %b)",
    "i32 11,": BY_NAME["vreduceps"].replace("i32 9", "i32 11"),
    "i16 1,": BY_NAME["vscalefps"].replace("i16 -1", "i16 1"),
    "i32 1)": BY_NAME["vfpclassps"].replace("i32 32", "i32 1"),
    "i32 8)": BY_NAME["vscalefps"].replace("i32 4)", "i32 8)"),
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_is_not_emulated_stops_the_test(part):
    with pytest.raises(NotImplementedError, match=re.escape(part)):
        avx512_emulation.emulated(kernel(REFUSED[part]), V3)


def test_other_uses_of_bfloat16_are_refused():
    """Not every CPU that has them flushes denormals alike."""
    text = kernel("fadd <32 x bfloat> %a, %a")
    with pytest.raises(RuntimeError, match="i16"):
        cpu.to_object(avx512_emulation.emulated(text, V3), V3)
