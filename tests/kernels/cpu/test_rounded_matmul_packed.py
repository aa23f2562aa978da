"""round_rows and rounded_matmul_packed."""

from dataclasses import replace

import numpy as np
import pytest
from native import DOTS, check, random, run
from reference import numpy_dtype, shape, size

from heddle.graph.ops.row import ROWS
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step, fold

HELD = {"int8": 8, "uint32": 4}
"""What weights are held in, and their bits."""

HEAD = 8


def rounding(m, k, group, bits, dtype="float32", prologue=None):
    result = Operand("uint8", (m, k // group * (group + HEAD)))
    attrs = (("bits", bits), ("group", group))
    return Spec("round_rows", (Operand(dtype, (m, k)),), result, (result,), attrs, prologue)


def product(held, m, k, n, group=32, dtype="float32", epilogue=None, scales=None):
    panels = fold("ceildiv", n, 32)
    a = Operand("uint8", (m, k // group * (group + HEAD)))
    packed = (panels, k // 8, 32) if held == "uint32" else (panels, k // 4, 32, 4)
    operands = (a, Operand(held, packed), Operand(scales or dtype, (panels, k // group, 32)))
    result, attrs = Operand(dtype, (m, n)), (("group", group),)
    return Spec("rounded_matmul_packed", operands, result, (result,), attrs, None, epilogue)


def rows_of(x, bits, group):
    return ROWS["round_rows"].compute(x, bits=bits, group=group)


def numbers(spec, dims, k, seed=0):
    """Rows of ordinary numbers, in 8 bits; any weights; scales of about 1/100."""
    rng, group = np.random.default_rng(seed), spec.attr("group")
    m = size(spec.operands[0].shape[0], dims)
    x = rng.standard_normal((m, k)).astype(np.float32)
    arrays = [rows_of(x, HELD[spec.operands[1].dtype], group)]
    for operand in spec.inputs[1:]:
        arrays.append(random(rng, shape(operand.shape, dims), operand.dtype))
    arrays[2] = (arrays[2] / 100).astype(arrays[2].dtype)
    return arrays


def close(spec, k, dims=None, arch=DOTS[-1]):
    dims = dims or {}
    return check(spec, dims, numbers(spec, dims, k), arch=arch, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bits", [8, 4])
def test_rows_have_the_bytes_of_the_reference(bits, dtype, arch):
    rng = np.random.default_rng(0)
    for m, k, group in ((1, 32, 32), (3, 192, 96), (5, 512, 128)):
        x = (rng.standard_normal((m, k)) * 2.0 ** rng.integers(-90, 90, (m, 1))).astype(
            numpy_dtype(dtype)
        )
        x[::3, :group] = 0
        (found,), _ = run(rounding(m, k, group, bits, dtype), [x], arch=arch)
        assert found.tobytes() == rows_of(x.astype(np.float32), bits, group).tobytes()


@pytest.mark.parametrize("arch", DOTS)
def test_rows_that_are_hard_to_round(arch):
    """Halves, the largest and the smallest numbers, and numbers too small for an inverse."""
    x = np.zeros((6, 32), np.float32)
    x[0] = np.arange(32) - 16 + 0.5
    x[0, 0] = 127
    x[1] = np.finfo(np.float32).max * np.linspace(-1, 1, 32)
    x[2] = 2.0**-120 * np.linspace(-1, 1, 32)
    x[3] = np.nextafter(np.float32(2.0**-120), np.float32(0))
    x[4] = np.finfo(np.float32).smallest_subnormal
    x[5, 3], x[5, 4] = -1e-30, 1e-38
    for bits in (8, 4):
        (found,), _ = run(rounding(6, 32, 32, bits), [x], arch=arch)
        assert found.tobytes() == rows_of(x, bits, 32).tobytes()
    integers = found[:, HEAD:].view(np.int8)
    assert integers[1].max() == 127
    assert integers[1].min() == -127
    assert not integers[3:5].any()


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_results_nan(value, arch):
    """Those of its row, whatever the weights are; other rows do not see it."""
    x = np.ones((3, 64), np.float32)
    x[1, 40] = value
    for held, bits in HELD.items():
        (rows,), _ = run(rounding(3, 64, 32, bits), [x], arch=arch)
        arrays = numbers(product(held, 3, 64, 40), {}, 64)
        (y,), _ = run(product(held, 3, 64, 40), [rows, *arrays[1:]], arch=arch)
        assert np.isnan(y[1]).all()
        assert np.isfinite(y[[0, 2]]).all()


def test_rows_are_computed_by_a_prologue():
    body = Body((Operand("float32", ("d0", 64)),), (Step("neg", (0,), "float32"),), (1,))
    spec = rounding("d0", 64, 32, 8, prologue=body)
    x = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    for arch in DOTS:
        (found,), _ = run(spec, [x], {"d0": 7}, arch)
        assert found.tobytes() == rows_of(-x, 8, 32).tobytes()


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
def test_every_height(held, arch):
    spec = product(held, "d0", 64, 33)
    for m in (*range(1, 14), 31, 70, 200):
        close(spec, 64, {"d0": m}, arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(("k", "group"), [(32, 32), (384, 128), (192, 64), (96, 96)])
def test_groups(k, group, held, arch):
    for n in (1, 32, 70):
        close(product(held, 5, k, "d1", group), k, {"d1": n}, arch)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(("k", "group"), [(2208, 96), (4096, 4096)])
def test_many_rows_go_along_k_in_stretches(k, group, held):
    for arch in ("x86-64-v3", "cooperlake"):
        close(product(held, 30, k, 40, group), k, arch=arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_of_16_bits_with_an_epilogue(dtype, held, arch):
    body = Body((Operand(dtype, (40,)),), (Step("add", (0, 1), dtype),), (2,))
    close(product(held, 9, 128, 40, 64, dtype, body), 128, arch=arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("held", "dtype"), [("uint32", "float32"), ("int8", "bfloat16")])
def test_scales_in_float16(held, dtype, arch):
    spec = product(held, "d0", 64, 33, dtype=dtype, scales="float16")
    for m in (1, 7):
        close(spec, 64, {"d0": m}, arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("held", "extremes"), [("int8", (-128, 127)), ("uint32", (-8, 7))])
def test_the_largest_sums_are_exact(held, extremes, arch):
    """Nothing saturates: all weights are the same extreme, and all integers of a row."""
    group, rows = 2048, np.ones((8, 2048), np.float32)
    rows[1::2] = -1
    for value in extremes:
        if held == "int8":
            weights = np.full((1, group // 4, 32, 4), value, np.int8)
        else:
            weights = np.full((1, group // 8, 32), (value + 8) * 0x11111111, np.uint32)
        scales = np.ones((1, 1, 32), np.float32)
        for m in (1, 3, 8):
            a = rows_of(rows[:m], HELD[held], group)
            spec = product(held, m, group, 32, group)
            (y,), _ = run(spec, [a, weights, scales], arch=arch)
            wanted = rows[:m, :1] * np.float32(1 / 127) * np.float32(127 * value * group)
            np.testing.assert_allclose(y, np.broadcast_to(wanted, y.shape), rtol=3e-7)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
def test_the_row_does_not_depend_on_the_other_rows(held, arch):
    spec = product(held, "d0", 384, 70, 128)
    a, weights, scales = numbers(spec, {"d0": 80}, 384)
    (whole,), _ = run(spec, [a, weights, scales], {"d0": 80}, arch)
    for rows in (1, 2, 5, 7, 13, 70):
        (part,), _ = run(spec, [a[:rows], weights, scales], {"d0": rows}, arch)
        assert whole[:rows].tobytes() == part.tobytes(), rows


def test_refusals():
    supports = find("rounded_matmul_packed", "cpu").supports
    spec = product("int8", 3, 32, 5)
    a, weight, scales = spec.operands

    def refused(*operands, prologue=None):
        return supports(Spec(spec.op, operands, spec.result, spec.outputs, spec.attrs, prologue))

    wanted = "wanted uint8 by int8 or uint32, got"
    assert refused(Operand("float32", a.shape), weight, scales) == f"{wanted} float32 by int8"
    assert refused(a, Operand("uint8", weight.shape), scales) == f"{wanted} uint8 by uint8"
    double = Operand("float64", scales.shape)
    text = "scales: wanted float32, float16 or bfloat16, got float64"
    assert refused(a, weight, double) == text
    assert refused(a, weight, scales, prologue=Body((a,), (), (0,))) == "it takes no prologue"
    supports = find("round_rows", "cpu").supports
    half = rounding(3, 32, 32, 8, "float16")
    assert supports(half) == "wanted float32 or bfloat16, got float16"
    rows = rounding(3, 32, 32, 8)
    tail = Body((), (Step("neg", (0,), "uint8"),), (1,))
    assert supports(replace(rows, epilogue=tail)) == "it takes no epilogue"
