"""Products of a few rows by a right side as it lies."""

from dataclasses import replace

import numpy as np
import pytest
from native import ARCHS, check, random, run

from heddle.kernels.cpu import matmul
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

DTYPES = ("float32", "float64")


def product(dtype, leading, m, k, n, batched=True, epilogue=None, transposed=False):
    a, result = Operand(dtype, (*leading, m, k)), Operand(dtype, (*leading, m, n))
    right = (n, k) if transposed else (k, n)
    b = Operand(dtype, (*(leading if batched else ()), *right))
    attrs = (("transposed", transposed),)
    return Spec("matmul", (a, b), result, (result,), attrs, None, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 2, 3, 5, 6, 7, 11, 12])
@pytest.mark.parametrize("transposed", [False, True])
def test_few_rows(transposed, m, dtype, arch):
    check(product(dtype, (), m, 33, 300, transposed=transposed), arch=arch, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("k", [matmul.DEPTH, 2 * matmul.DEPTH + 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_more_steps_than_are_on_the_stack(transposed, k, arch):
    """Of rows of two tiles, with AVX2."""
    check(product("float32", (), 9, k, 40, transposed=transposed), arch=arch, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "n"), [(0, 3), (1, 1), (3, 0), (2, 17), (40, 64), (9, 129)])
@pytest.mark.parametrize("transposed", [False, True])
def test_sizes(transposed, k, n, dtype, arch):
    """Those known before, and those known at the call alone."""
    check(product(dtype, (2,), 3, k, n, transposed=transposed), arch=arch, atol=1e-5)
    spec = product(dtype, ("d0",), 3, "d1", "d2", transposed=transposed)
    check(spec, {"d0": 2, "d1": k, "d2": n}, arch=arch, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
def test_one_right_side_for_all_batches(arch):
    """Their rows are those of one product."""
    check(product("float32", (2, 3), 2, 20, 70, batched=False), arch=arch, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("transposed", [False, True])
def test_epilogue(transposed, arch):
    bias = Operand("float32", (70,))
    residual = Operand("float32", (2, 5, 70))
    steps = (Step("add", (0, 1), "float32"), Step("add", (3, 2), "float32"))
    body = Body((bias, residual), steps, (4,))
    spec = product("float32", (2,), 5, 30, 70, epilogue=body, transposed=transposed)
    check(spec, arch=arch, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
def test_nothing_behind_the_right_side_counts(arch):
    """Of a row that comes again, and of columns that are not there."""
    rng = np.random.default_rng(0)
    a, b = (random(rng, shape, "float32") for shape in ((3, 21), (37, 21)))
    spec = product("float32", (), 3, 21, 37, transposed=True)
    (alone,), _ = run(spec, [a, b], arch=arch)
    behind = np.full((39, 21), np.nan, np.float32)
    behind[:37] = b
    (beside,), _ = run(spec, [a, behind[:37]], arch=arch)
    np.testing.assert_array_equal(beside, alone)
    assert np.isfinite(alone).all()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("transposed", [False, True])
def test_bits_of_a_row_do_not_depend_on_the_others(transposed, arch):
    rng = np.random.default_rng(0)
    right = (45, 100) if transposed else (100, 45)
    a, b = (random(rng, shape, "float32") for shape in ((12, 100), right))
    spec = product("float32", (), 12, 100, 45, transposed=transposed)
    (together,), _ = run(spec, [a, b], arch=arch)
    for rows in (1, 2, 4, 7):
        spec = product("float32", (), rows, 100, 45, transposed=transposed)
        (some,), _ = run(spec, [a[-rows:], b], arch=arch)
        np.testing.assert_array_equal(some, together[-rows:])


def test_what_it_refuses():
    supports = find("matmul", "cpu").supports
    spec = product("float32", (), 2, 8, 8)
    assert supports(spec) is None
    assert supports(product("bfloat16", (), 2, 8, 8)) == (
        "wanted float32 or float64 on both sides, got bfloat16"
    )
    assert supports(product("float32", (), 13, 8, 8)) == "wanted up to 12 rows, got 13"
    assert supports(product("float32", (), "d0", 8, 8)) == "wanted up to 12 rows, got d0"
    assert supports(product("float32", (4,), 4, 8, 8, batched=False)) == (
        "wanted up to 12 rows, got 16"
    )
    assert supports(replace(spec, beside=(spec,))) == (
        "it takes no prologue, and no product beside it"
    )
