"""The bounds that kernels/functions/vector_math.py states, over the whole range of both formats."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from native import ARCHS, load, run

from heddle.kernels import bodies
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.powers_of_two import capped, exp2_falling
from heddle.kernels.spec import Body, Operand, Spec, Step

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _gelu_tanh(x):
    return x * _sigmoid(2 * np.sqrt(np.longdouble(2) / np.pi) * (x + 0.044715 * x**3))


# name: the reference in more precision, and the bounds in float32 and float64
EXACT = {
    "exp": (np.exp, 2.0, 2.0),
    "expm1": (np.expm1, 2.0, 2.0),
    "log": (np.log, 1.0, 1.0),
    "log1p": (np.log1p, 1.0, 1.0),
    "softplus": (lambda x: np.logaddexp(np.longdouble(0), x), 2.0, 2.0),
    "tanh": (np.tanh, 3.0, 3.0),
    "erf": (lambda x: _erf(x).astype(np.longdouble), 6.0, 2.0),
    "sigmoid": (_sigmoid, 3.0, 3.0),
    "silu": (lambda x: x * _sigmoid(x), 4.0, 4.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0, 2.0),
    "sqrt": (np.sqrt, 0.5, 0.5),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]


def _apply(op, x, arch, attrs=()):
    operand = Operand(str(x.dtype), x.shape)
    body = Body((operand,), (Step(op, (0,), operand.dtype, attrs),), (1,))
    spec = Spec("map", (operand,), operand, (operand,), (), body)
    return run(spec, [x], arch=arch)[0][0]


def _points(dtype: str, count: int) -> np.ndarray:
    """Every magnitude from the least denormal on, the ordinary range in detail, and the edges."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2 ** (info.bits - 1), count, f"uint{info.bits}")
    wild = bits.view(dtype)
    wild = wild[np.isfinite(wild)]
    plain = rng.uniform(-20, 20, 2 * count).astype(dtype)
    near = (1 + rng.uniform(-0.3, 0.3, count)).astype(dtype)
    top = math.log(float(info.max))
    edge = rng.uniform(-1.2 * top, 1.01 * top, count).astype(dtype)
    smallest = [info.smallest_subnormal, info.tiny, info.max]
    fixed = np.array(SPECIAL + smallest, dtype)
    return np.concatenate([wild, -wild, plain, near, edge, fixed])


def _ulps(got, wanted, dtype: str):
    """The distance in units in the last place, with the denormals' unit at the bottom."""
    info = np.finfo(dtype)
    finite = np.isfinite(wanted) & (np.abs(wanted) <= info.max) & np.isfinite(got)
    wanted, got = wanted[finite].astype(np.longdouble), got[finite].astype(np.longdouble)
    exponent = np.floor(np.log2(np.maximum(np.abs(wanted), info.tiny)))
    return np.abs(got - wanted) / np.exp2(exponent - info.nmant)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", EXACT)
def test_error_is_bounded(op, dtype, arch):
    reference, *bounds = EXACT[op]
    x = _points(dtype, 20_000)
    if op == "silu":
        x = x[~(x < 1 - math.log(np.finfo(dtype).max))]
    got = _apply(op, x, arch)
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.longdouble)), np.longdouble)
        stored = exact.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(stored))
    infinite = np.isinf(stored)
    # At the very top of the range one unit decides between a number and infinity.
    edge = np.abs(exact) > 0.999999 * np.finfo(dtype).max
    np.testing.assert_array_equal(got[infinite & ~edge], stored[infinite & ~edge])
    assert _ulps(got, exact, dtype).max() <= bounds[dtype == "float64"]


@pytest.mark.parametrize("arch", ARCHS)
def test_erf_where_float32_errs_most(arch):
    """Every number between these: the greatest error of all is among them, 5.94 ulp."""
    first, last = np.array([3.735, 3.745], np.float32).view(np.uint32)
    x = np.arange(first, last, dtype=np.uint32).view(np.float32)
    exact = _erf(x.astype(np.float64)).astype(np.float64)
    assert 5.9 < _ulps(_apply("erf", x, arch), exact, "float32").max() < 6


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu_error_is_relative_to_its_input(form, dtype, arch):
    x = _points(dtype, 20_000)
    x = x[np.abs(x) < 1e6]
    got = _apply("gelu", x, arch, (("approximate", form),))
    wide = x.astype(np.longdouble)
    exact = _gelu_tanh(wide) if form == "tanh" else wide * (1 + _erf_of_half(wide)) / 2
    bound = 4 * np.finfo(dtype).eps * np.abs(wide) + np.finfo(dtype).smallest_subnormal
    assert (np.abs(got - exact) <= bound).all()


NARROW = {"gelu": "none", "gelu, tanh form": "tanh", "silu": None}
"""The functions that take less care before their results are rounded to 16 bits."""


def _narrow_body(name: str, *more: Step, dtype: str = "float32", size: int = 1) -> Body:
    """`name` of its one input, and `more`."""
    attrs = (("approximate", NARROW[name]),) if NARROW[name] else ()
    step = Step(name.partition(",")[0], (0,), dtype, attrs)
    return Body((Operand("float32", (size,)),), (step, *more), (1 + len(more),))


def _rounded(name: str, x, dtype: str, arch: str):
    """`name` of float32, cast to `dtype`."""
    narrow = Operand(dtype, x.shape)
    body = _narrow_body(name, Step("cast", (1,), dtype), size=x.size)
    return run(Spec("map", (narrow,), narrow, (narrow,), (), body), [x], arch=arch)[0][0]


def _exact(name: str, x):
    if name == "silu":
        return x * _sigmoid(x)
    return _gelu_tanh(x) if "tanh" in name else x * (1 + _erf_of_half(x)) / 2


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW)
def test_before_rounding_to_16_bits(name, dtype, arch):
    """Seen through the bits that rounding leaves: the error is that of both."""
    x = _points("float32", 20_000)
    x = x[np.abs(x) < (87 if name == "silu" else 1e6 if dtype == "bfloat16" else 6e4)]
    got = _rounded(name, x, dtype, arch)
    exact = _exact(name, x.astype(np.longdouble))
    bits, least = (10, 2.0**-24) if dtype == "float16" else (7, 2.0**-133)
    rounding = 2.0 ** -(bits + 1) * np.abs(exact) + least
    own = 2.0 ** -(bits + 5) * np.abs(exact) if name == "silu" else 2.0**-15 * np.abs(x)
    assert (np.abs(got.astype(np.longdouble) - exact) <= rounding + own).all()
    assert np.isfinite(got.astype(np.longdouble)).all()
    ends = np.abs(x) > 5
    if name != "silu":
        np.testing.assert_array_equal(np.abs(got[ends].astype(np.float32)) < 1e-27, x[ends] < 0)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", NARROW)
def test_specials_before_rounding_to_16_bits(name, arch):
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, -200, 200] * 40, np.float32)
    got = _rounded(name, x, "bfloat16", arch)
    zero, _, top, bottom, nan, below, above = got[:7].astype(np.float32)
    assert zero == 0
    assert np.isnan(nan)
    assert top == math.inf
    assert above == 200
    assert abs(below) < 1e-27
    assert np.isnan(bottom) if name == "silu" else abs(bottom) < 1e-27


def _narrowed(body: Body, inputs: int = 1) -> bool:
    """Whether the first step of `body` is computed for 16 bits."""
    return inputs in bodies._narrow(body, inputs)


@pytest.mark.parametrize("name", NARROW)
def test_what_others_read_is_exact(name):
    product = Step("mul", (1, 0), "float32")
    assert _narrowed(_narrow_body(name, product, Step("cast", (2,), "bfloat16")))
    assert _narrowed(_narrow_body(name, dtype="bfloat16"))
    # A sum may cancel what both have in common; float32 is not narrow.
    total = Step("add", (1, 0), "float32")
    assert not _narrowed(_narrow_body(name, total, Step("cast", (2,), "bfloat16")))
    assert not _narrowed(_narrow_body(name))
    both = _narrow_body(name, Step("cast", (1,), "bfloat16"))
    assert not _narrowed(dataclasses.replace(both, results=(1, 2)))


def test_the_narrower_of_two_is_not_enough():
    casts = Step("cast", (1,), "bfloat16"), Step("cast", (1,), "float16")
    body = dataclasses.replace(_narrow_body("silu", *casts), results=(2, 3))
    assert bodies._narrow(body, 1)[1] == "float16"


def _erf_of_half(x):
    return _erf(x / np.sqrt(np.longdouble(2))).astype(np.longdouble)


@pytest.mark.parametrize("op", ["tanh", "erf", "sqrt", "expm1", "log1p"])
def test_zero_keeps_its_sign(op):
    got = _apply(op, np.array([0.0, -0.0] * 20, np.float32), ARCHS[-1])
    np.testing.assert_array_equal(np.signbit(got), [False, True] * 20)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("function", "reference", "bound"),
    [
        (vm.exp_falling, np.exp, 2),
        (exp2_falling, np.exp2, 3),
        (partial(exp2_falling, result="float16"), np.exp2, 2**6),
        (partial(exp2_falling, result="bfloat16"), np.exp2, 2**11),
    ],
    ids=["exp", "exp2", "exp2 for float16", "exp2 for bfloat16"],
)
def test_falling_exponential(function, reference, bound, dtype, arch, monkeypatch):
    """No op of its own: softmax and attention use it below their greatest score."""
    step = bodies._STEPS["exp"]
    x = -np.abs(_points(dtype, 20_001))
    bits = x.view(f"u{x.itemsize}")
    bits[:512] = np.array(np.nan, dtype).view(bits.dtype) + np.arange(512, dtype=bits.dtype)
    with monkeypatch.context() as patch:
        patch.setitem(bodies._STEPS, "exp", lambda _, __, value: function(value))
        load.cache_clear()  # the same spec with another meaning
        got = _apply("exp", x, arch)
    load.cache_clear()
    assert bodies._STEPS["exp"] is step
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble))
    normal = exact >= np.finfo(dtype).tiny * 1.000001
    small = exact < np.finfo(dtype).tiny * 0.999999
    rounded = np.abs(got[small] - exact[small]) <= bound * np.finfo(dtype).smallest_subnormal
    assert ((got[small] == 0) | rounded).all()
    assert _ulps(got[normal], exact[normal], dtype).max() <= bound
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("cap", "slope"), [(50.0, 1.0), (0.3, -4.0)])
def test_capped(cap, slope, dtype, arch, monkeypatch):
    """No op of its own: attention caps its scores by it."""
    x = _points(dtype, 20_001)
    with monkeypatch.context() as patch:
        patch.setitem(bodies._STEPS, "exp", lambda _, __, value: capped(value, cap, slope))
        load.cache_clear()  # the same spec with another meaning
        got = _apply("exp", x, arch)
    load.cache_clear()
    exact = np.tanh(x.astype(np.longdouble) * slope / cap) * cap
    normal = np.abs(exact) >= np.finfo(dtype).tiny * 2**8
    assert _ulps(got[normal], exact[normal], dtype).max() <= 16
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=np.finfo(dtype).tiny)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
