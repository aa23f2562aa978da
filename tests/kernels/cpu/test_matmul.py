"""Products by a right side as it lies."""

from dataclasses import replace

import numpy as np
import pytest
from native import ARCHS, check, random, run

from heddle.kernels.cpu import matmul
from heddle.kernels.cpu.products import unpacked
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
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [13, 14, 17, 30, 97, 211])
@pytest.mark.parametrize("n", [1, 9, 16, 33, 130])
@pytest.mark.parametrize("transposed", [False, True])
def test_many_rows(transposed, n, m, dtype, arch):
    """Of several tiles and tasks, the last ones of fewer rows and columns."""
    check(product(dtype, (), m, 37, n, transposed=transposed), arch=arch, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("m", [12, 40])
@pytest.mark.parametrize("k", [1, 47, 64, 150])
@pytest.mark.parametrize("transposed", [False, True])
def test_several_chunks_along_k(transposed, k, m, arch, monkeypatch):
    """Between which sums are on the stack; of a size known before, and at the call alone."""
    monkeypatch.setattr(unpacked, "CHUNK", 64 * 64)
    spec = product("float32", (2,), m, k, 43, transposed=transposed)
    check(spec, arch=arch, atol=1e-4)
    spec = product("float32", (2,), m, "d0", 43, transposed=transposed)
    check(spec, {"d0": k}, arch=arch, atol=1e-4)
    check(spec, {"d0": 0}, arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_that_share_a_set_of_the_cache(arch):
    """Tiles of fewer rows."""
    check(product("float32", (), 21, 1024, 20), arch=arch, atol=1e-3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", range(1, matmul.LINES + 1))
def test_few_columns(n, dtype, arch):
    """By lines along k, of a number of rows that is known at the call alone as well."""
    check(product(dtype, (), 21, 35, n, transposed=True), arch=arch, atol=1e-4)
    spec = product(dtype, (), "d0", 35, n, transposed=True)
    for m in (0, 1, 3, 16, matmul.MOST + 13):
        check(spec, {"d0": m}, arch=arch, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leading", [(), (2,)])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 3, 5), (5, 9, 130), (13, 0, 4), (40, 37, 33)])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_turned_left_side(transposed, m, k, n, leading, dtype, arch):
    spec = product(dtype, leading, m, k, n, transposed=transposed)
    a = Operand(dtype, (*leading, k, m))
    turned = replace(spec.with_attr("turned", True), operands=(a, spec.operands[1]))
    check(turned, arch=arch, atol=1e-4)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "n"), [(0, 3), (1, 1), (3, 0), (2, 17), (40, 64), (9, 129)])
@pytest.mark.parametrize("transposed", [False, True])
def test_sizes(transposed, k, n, dtype, arch):
    """Those known before, and those known at the call alone."""
    check(product(dtype, (2,), 3, k, n, transposed=transposed), arch=arch, atol=1e-5)
    spec = product(dtype, ("d0",), 3, "d1", "d2", transposed=transposed)
    check(spec, {"d0": 2, "d1": k, "d2": n}, arch=arch, atol=1e-5)
    spec = product(dtype, ("d0",), 15, "d1", "d2", transposed=transposed)
    check(spec, {"d0": 2, "d1": k, "d2": n}, arch=arch, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
def test_one_right_side_for_all_batches(arch):
    """Their rows are those of one product."""
    check(product("float32", (2, 3), 2, 20, 70, batched=False), arch=arch, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("m", [5, 19])
@pytest.mark.parametrize("n", [6, 70])
@pytest.mark.parametrize("transposed", [False, True])
def test_epilogue(transposed, n, m, arch):
    bias = Operand("float32", (n,))
    residual = Operand("float32", (2, m, n))
    steps = (Step("add", (0, 1), "float32"), Step("add", (3, 2), "float32"))
    body = Body((bias, residual), steps, (4,))
    spec = product("float32", (2,), m, 30, n, epilogue=body, transposed=transposed)
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
    most = 12 if transposed else 50
    a, b = (random(rng, shape, "float32") for shape in ((most, 100), right))
    spec = product("float32", (), most, 100, 45, transposed=transposed)
    (together,), _ = run(spec, [a, b], arch=arch)
    for rows in (1, 2, 4, 7, 11, most - 1):
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
    assert supports(product("float32", (), "d0", 8, 8)) == "wanted a known number of rows, got d0"
    assert supports(product("float32", (), "d0", 8, 8, transposed=True)) is None
    assert supports(product("float32", (), "d0", 8, 9, transposed=True)) == (
        "wanted a known number of rows, got d0"
    )
    plain = product("float32", ("d1",), 8, 8, 8)
    turned, (a, b) = replace(plain, attrs=(*plain.attrs, ("turned", True))), plain.operands
    assert supports(turned) is None
    assert supports(replace(turned, operands=(a, replace(b, shape=b.shape[1:])))) == (
        "beside a turned left side wanted ['d1'] in front of the right one's rows"
    )
    assert supports(replace(spec, beside=(spec,))) == (
        "it takes no prologue, and no product beside it"
    )


def test_where_it_pays():
    """Not for large products, nor for weights that fill their panels."""
    assert matmul.pays((64, 512, 65), False, False)
    assert matmul.pays((12, None, None), True, False)
    assert not matmul.pays((2048, 2048, 2048), False, False)
    assert not matmul.pays((None, 64, 64), False, False)
    assert matmul.pays((64, 512, 65), False, True)
    assert matmul.pays((None, None, 8), False, True)
    assert not matmul.pays((12, 512, 32), False, True)
    assert not matmul.pays((64, 512, 512), False, True)
