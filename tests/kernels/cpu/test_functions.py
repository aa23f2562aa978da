"""sin, cos, pow, quotients and rounding over the whole range of their dtypes."""

import numpy as np
import pytest
from native import ARCHS, run

from heddle.kernels.spec import Body, Operand, Spec, Step

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SPECIAL = (0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1e30, -1e30, 2**24 + 1)
ENDLESS = (np.inf, -np.inf, np.nan)


def apply(op, arch, *arrays, result=None):
    operand = Operand(str(arrays[0].dtype), arrays[0].shape)
    output = Operand(result or operand.dtype, operand.shape)
    step = Step(op, tuple(range(len(arrays))), output.dtype)
    body = Body((operand,) * len(arrays), (step,), (len(arrays),))
    return run(Spec("map", (output,), output, (output,), (), body), arrays, arch=arch)[0][0]


def of_every_size(rng, dtype, count):
    """Numbers of all exponents and signs, of ordinary size, and special ones."""
    info = np.finfo(dtype)
    bits = rng.integers(0, 2 ** (info.bits - 1), count, f"uint{info.bits}").view(dtype)
    wild = bits[np.isfinite(bits)]
    plain = rng.uniform(-20, 20, count)
    fixed = [*SPECIAL, *ENDLESS, info.smallest_subnormal, info.tiny, info.max]
    return np.concatenate([wild, -wild, plain, fixed]).astype(dtype)


def ulps(got, exact, dtype):
    info = np.finfo(dtype)
    finite = np.isfinite(got) & np.isfinite(exact)
    got, exact = got[finite].astype(np.longdouble), exact[finite]
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), info.tiny)))
    return (np.abs(got - exact) / np.exp2(exponent - info.nmant)).max()


def same(got, wanted):
    """Bit by bit, whatever the bits of a NaN."""
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 2), ("float64", 3)])
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_waves(op, dtype, bound, arch):
    rng = np.random.default_rng(1)
    near_roots = (rng.integers(1, 2**24, 20_000) * (np.pi / 2)).astype(dtype)
    x = np.concatenate([of_every_size(rng, dtype, 20_000), near_roots])
    got = apply(op, arch, x)
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(x.astype(np.longdouble))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    assert ulps(got, exact, dtype) <= bound


@pytest.mark.parametrize("dtype", FLOATS)
def test_sine_of_minus_zero(dtype):
    same(apply("sin", ARCHS[-1], np.array([0.0, -0.0], dtype)), np.array([0.0, -0.0], dtype))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_powers(dtype, arch):
    rng = np.random.default_rng(2)
    pairs = [
        np.meshgrid(SPECIAL + ENDLESS, SPECIAL + ENDLESS),
        (of_every_size(rng, dtype, 9_000), rng.permutation(of_every_size(rng, dtype, 9_000))),
        (np.exp(rng.uniform(-9, 9, 20_000)), rng.uniform(-20, 20, 20_000)),
        (rng.normal(1, 1e-4, 20_000), rng.normal(0, 1e5, 20_000)),
        (rng.uniform(-9, 9, 2_000), rng.integers(-9, 9, 2_000)),
    ]
    sizes = [min(np.size(a), np.size(b)) for a, b in pairs]
    x, y = (
        np.concatenate([np.ravel(p[i])[:n] for p, n in zip(pairs, sizes, strict=True)])
        for i in (0, 1)
    )
    x, y = x.astype(dtype), y.astype(dtype)
    got = apply("pow", arch, x, y)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        stored = exact.astype(dtype)
    # At the very top of the range one unit decides between a number and infinity.
    below, above = (np.abs(exact) / np.finfo(dtype).max < 1 + side for side in (-1e-6, 1e-6))
    limit = ~np.isfinite(exact) | ~above | (exact == 0)
    same(got[limit], stored[limit])
    exact[~below] = np.nan
    assert ulps(got, exact, dtype) <= 2


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["mod", "floor_divide"])
def test_quotients_of_floats_are_numpys(op, dtype, arch):
    rng = np.random.default_rng(3)
    grid = np.meshgrid(SPECIAL + ENDLESS, SPECIAL + ENDLESS)
    wild = of_every_size(rng, dtype, 20_000)
    x, y = (
        np.concatenate([np.ravel(a), b, rng.integers(-50, 50, 2_000)]).astype(dtype)
        for a, b in zip(grid, (wild, rng.permutation(wild)), strict=True)
    )
    with np.errstate(all="ignore"):
        wanted = {"mod": np.mod, "floor_divide": np.floor_divide}[op](x, y)
    same(apply(op, arch, x, y), wanted)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["mod", "floor_divide"])
def test_quotients_of_integers(op, dtype, arch):
    """Zero, the overflow of the least number by -1, and everything else."""
    info, rng = np.iinfo(dtype), np.random.default_rng(4)
    x, y = (rng.integers(info.min, info.max, 5003, dtype, endpoint=True) for _ in range(2))
    y[:2000] = rng.integers(max(info.min, -4), 5, 2000)
    x[:300], x[300:500] = info.min, info.max
    with np.errstate(all="ignore"):
        wanted = {"mod": np.mod, "floor_divide": np.floor_divide}[op](x, y)
    np.testing.assert_array_equal(apply(op, arch, x, y), wanted)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["left_shift", "right_shift"])
def test_shifts_are_numpys(op, dtype, arch):
    """By every number of places, by more than there are, and by less than none."""
    info, rng = np.iinfo(dtype), np.random.default_rng(5)
    x, y = (rng.integers(info.min, info.max, 1003, dtype, endpoint=True) for _ in range(2))
    y[:800] = rng.integers(max(info.min, -3), info.bits + 3, 800)
    np.testing.assert_array_equal(apply(op, arch, x, y), getattr(np, op)(x, y))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "function"), [("floor", np.floor), ("ceil", np.ceil), ("round", np.rint)]
)
def test_rounding(op, function, dtype, arch):
    rng = np.random.default_rng(5)
    halves = np.arange(-9, 9).astype(dtype) / 2
    x = np.concatenate([of_every_size(rng, dtype, 5_000), halves])
    same(apply(op, arch, x), function(x))


@pytest.mark.parametrize("arch", ARCHS)
def test_logic(arch):
    a, b = (np.resize(flags, 67) for flags in ([False, False, True, True], [False, True]))
    for name in ("and", "or", "xor"):
        found = apply(f"logical_{name}", arch, a, b)
        np.testing.assert_array_equal(found, getattr(np, f"logical_{name}")(a, b))
    np.testing.assert_array_equal(apply("logical_not", arch, a), ~a)
    x = np.array([0, np.nan, np.inf, -np.nan, 1], np.float32)
    np.testing.assert_array_equal(apply("isnan", arch, x, result="bool"), np.isnan(x))
