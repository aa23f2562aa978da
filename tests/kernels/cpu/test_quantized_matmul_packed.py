"""pack_int4 and quantized_matmul_packed."""

import numpy as np
import pytest
from native import ARCHS, DOTS, check, random, run
from quantized_specs import FLOATS, HELD, close, numbers, product
from reference import numpy_dtype

from heddle.kernels.cpu.products import turned
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Spec, Step, fold


def packing(n, length):
    result = Operand("uint32", (fold("ceildiv", n, 32), length // 4, 32))
    return Spec("pack_int4", (Operand("uint8", (n, length)),), result, (result,))


@pytest.mark.parametrize("arch", ARCHS)
def test_packing(arch):
    for n, length in ((1, 4), (33, 16), (64, 68), (100, 12)):
        check(packing(n, length), arch=arch)


def test_packing_any_n():
    check(packing("d0", 48), {"d0": 45})


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_height(dtype, held, arch):
    spec = product(held, "d0", 64, 33, dtype=dtype)
    for m in (*range(1, 18), 31):
        close(spec, {"d0": m}, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(("k", "group"), [(32, 32), (384, 128), (192, 64), (96, 96)])
def test_groups(k, group, held, arch):
    for n in (1, 32, 70):
        close(product(held, 5, k, n, group), arch=arch)


@pytest.mark.parametrize("arch", DOTS[-1:])
@pytest.mark.parametrize(("held", "dtype"), [*zip(HELD, ("bfloat16", "float32") * 2, strict=True)])
@pytest.mark.parametrize(("k", "group"), [(2208, 96), (4096, 4096)])
def test_many_rows_go_along_k_in_stretches(k, group, held, dtype, arch):
    close(product(held, 30, k, 40, group, dtype), arch=arch)


ALIKE = [
    *(("x86-64-v3", "bfloat16", held, 3 if held == "uint32" else 1) for held in HELD),
    ("x86-64-v4", "float32", "int8", 4),
    ("cooperlake", "bfloat16", "uint32", 5),
    ("sapphirerapids", "bfloat16", "int8", 17),
    ("sapphirerapids", "bfloat16", "uint32", 9),
]
"""Architectures, dtypes, and from how many rows of a block on a row's sums are ordered alike.

Fewer rows have several sums of each element, which hide the latency of additions, or (4 bits on
AVX2) sums of numbers that are above the weights, or (AMX) become bytes.
"""


@pytest.mark.parametrize(("arch", "dtype", "held", "fewest"), ALIKE)
def test_the_row_does_not_depend_on_the_other_rows(arch, dtype, held, fewest):
    spec = product(held, "d0", 384, 70, 128, dtype)
    a, weights, scales = numbers(spec, {"d0": 80})
    (whole,), _ = run(spec, [a, weights, scales], {"d0": 80}, arch)
    for rows in (fewest, 4, 5, 6, 7, 8, 10, 11, 13, 24, 70):
        if rows >= fewest:
            (part,), _ = run(spec, [a[:rows], weights, scales], {"d0": rows}, arch)
            assert whole[:rows].tobytes() == part.tobytes(), rows


@pytest.mark.parametrize("held", HELD[:3])
def test_rows_that_do_not_fit_on_the_stack(held):
    """Chunks along k for 7 rows and more, and one row by three panels."""
    spec = product(held, "d0", 4992, 70, 384)
    for m in (1, 7, 12):
        close(spec, {"d0": m}, "x86-64-v3")


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("held", "dtype"), [*zip(HELD, ("bfloat16", "float32") * 2, strict=True)])
def test_rows_that_are_turned_on_the_stack(held, dtype, arch, monkeypatch):
    """Where the last lines have fewer steps, and where there is no room for them."""
    close(product(held, 15, 200, 70, 40, dtype), arch=arch)
    monkeypatch.setattr(turned, "ROOM", 15 * turned.LINE)
    close(product(held, 15, 192, 70, 32, dtype), arch=arch)


@pytest.mark.parametrize(("m", "panels"), [(12, 1), (13, 8), (16, 8), (17, 1)])
def test_panels_that_share_turned_rows(m, panels):
    own = find("quantized_matmul_packed", "cpu").own_launch
    assert own(product("int8", m, 64, 512), MACHINES["cooperlake"]).grid[1] == panels


@pytest.mark.parametrize("held", HELD)
def test_any_m_and_n(held):
    close(product(held, "d0", 64, "d1"), {"d0": 200, "d1": 70})


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_of_16_bits_with_an_epilogue(dtype, held, arch):
    body = Body((Operand(dtype, (40,)),), (Step("add", (0, 1), dtype),), (2,))
    close(product(held, 9, 128, 40, 64, dtype, body), arch=arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("held", "dtype"), [("uint32", "float32"), ("int8", "bfloat16")])
def test_scales_in_float16(held, dtype, arch):
    spec = product(held, "d0", 64, 33, dtype=dtype, scales="float16")
    for m in (1, 2, 13):
        close(spec, {"d0": m}, arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("held", HELD[:2])
def test_every_integer_is_exact(held, dtype, arch):
    """Row i of the identity picks the weights of k = i, times a scale that is a power of two."""
    spec = product(held, 32, 32, 32, dtype=dtype)
    rng = np.random.default_rng(0)
    kind = numpy_dtype(dtype)
    arrays = [np.eye(32, dtype=kind), None, np.full((1, 1, 32), 0.5, kind)]
    arrays[1] = random(rng, spec.operands[1].shape, spec.operands[1].dtype)
    (got,), _ = run(spec, arrays, arch=arch)
    got = got.astype(np.float32)
    if held == "int8":
        wanted = arrays[1][0].swapaxes(1, 2).reshape(32, 32)
    else:
        shifts = 4 * np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32)[:, None]
        wanted = (arrays[1][0][:, None] >> shifts & 15).reshape(32, 32)
    np.testing.assert_array_equal(2 * got, wanted.astype(int) - (8 if held == "uint32" else 0))


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("held", FLOATS)
def test_every_float_of_8_bits_is_exact(held, dtype, arch):
    """Column i has code i somewhere along k, and zeros, which infinity and NaN do not meet."""
    kind, codes = numpy_dtype(dtype), np.arange(256)
    weights = np.zeros((8, 8, 32, 4), np.uint8)
    weights[codes // 32, codes % 32 // 4, codes % 32, codes % 4] = codes
    arrays = [np.ones((1, 32), kind), weights.view(held), np.full((8, 1, 32), 2, kind)]
    (got,), _ = run(product(held, 1, 32, 256, dtype=dtype), arrays, arch=arch)
    values = codes.astype(np.uint8).view(held).astype(np.float32)
    np.testing.assert_array_equal(got[0].astype(np.float32), 2 * values)


def test_refusals():
    supports = find("quantized_matmul_packed", "cpu").supports
    spec = product("int8", 3, 32, 5)
    a, weight, scales = spec.operands

    def with_operands(*operands, prologue=None):
        return Spec(spec.op, operands, spec.result, spec.outputs, spec.attrs, prologue)

    wide, odd = Operand("float16", a.shape), Operand("int16", weight.shape)
    wanted = "wanted float32 or bfloat16 by int8, uint32, float8_e4m3fn, float8_e5m2, got"
    assert supports(with_operands(wide, weight, scales)) == f"{wanted} float16 by int8"
    assert supports(with_operands(a, odd, scales)) == f"{wanted} float32 by int16"
    double = Operand("float64", scales.shape)
    wanted = "scales: wanted float32, float16 or bfloat16, got float64"
    assert supports(with_operands(a, weight, double)) == wanted
    assert supports(product("int8", 3, 0, 5)) == "wanted something along k, got nothing"
    body = Body((a,), (), (0,))
    assert supports(with_operands(a, weight, scales, prologue=body)) == "it takes no prologue"
    pack = packing(3, 8)
    signed = Spec(pack.op, (Operand("int8", (3, 8)),), pack.result, pack.outputs)
    supports = find("pack_int4", "cpu").supports
    assert supports(signed) == "wanted uint8 to uint32, got int8 to uint32"
    epilogue = Spec(pack.op, pack.operands, pack.result, pack.outputs, (), None, body)
    assert supports(epilogue) == "it takes no prologue and no epilogue"
