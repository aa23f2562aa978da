"""pack_b and matmul_packed."""

import numpy as np
import pytest
from native import ARCHS, check, random, run
from reference import evaluate

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step, fold

FLOATS = ("float32", "float64", "float16", "bfloat16")


def panels(n, k, group=1):
    """The shape of a packed [k, n]."""
    shape = (fold("ceildiv", n, 32), fold("ceildiv", k, group), 32)
    return shape if group == 1 else (*shape, group)


def packing(dtype, shape, transposed, group=1):
    *leading, rows, columns = shape
    n, k = (rows, columns) if transposed else (columns, rows)
    result = Operand(dtype, (*leading, *panels(n, k, group)))
    attrs = (("group", group), ("transposed", transposed))
    return Spec("pack_b", (Operand(dtype, shape),), result, (result,), attrs)


def product(dtype, leading, m, k, n, batched=False, epilogue=None):
    wide = dtype if dtype in ("float64", "int32") else "float32"
    a, result = Operand(wide, (*leading, m, k)), Operand(dtype, (*leading, m, n))
    before = leading if batched else ()
    b = Operand(dtype, (*before, fold("ceildiv", n, 32), k, 32))
    outputs = (result,)
    return Spec("matmul_packed", (a, b), result, outputs, (), None, epilogue)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_packing(dtype, transposed, arch):
    spec = packing(dtype, ("d0", "d1"), transposed)
    for d0, d1 in ((1, 1), (7, 33), (64, 31), (33, 100)):
        check(spec, {"d0": d0, "d1": d1}, arch=arch)


@pytest.mark.parametrize("transposed", [False, True])
def test_packing_a_batch(transposed):
    check(packing("float32", (3, 40, 33), transposed))
    check(packing("bfloat16", (3, 41, 33), transposed, group=2))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("dtype", "group"), [("bfloat16", 2), ("int8", 4)])
def test_packing_groups(dtype, group, transposed, arch):
    spec = packing(dtype, ("d0", "d1"), transposed, group)
    for d0, d1 in ((1, 1), (7, 33), (64, 31), (34, 103)):
        check(spec, {"d0": d0, "d1": d1}, arch=arch)
    check(packing(dtype, (64, 64), transposed, group), arch=arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_height(dtype, arch):
    spec = product(dtype, (), "d0", 31, 33)
    for m in (*range(1, 14), 31, 200):
        check(spec, {"d0": m}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [1, 31, 32, 100])
@pytest.mark.parametrize("k", [1, 7, 384])
def test_shapes(k, n, arch):
    check(product("float32", (), "d0", k, n), {"d0": 25}, arch=arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("batched", [False, True])
def test_batches(batched):
    spec = product("float32", (2, "d0"), 13, 20, 40, batched)
    check(spec, {"d0": 3}, rtol=1e-5, atol=1e-5)


def test_all_sizes_dynamic():
    spec = product("float32", (), "d0", "d1", "d2")
    check(spec, {"d0": 20, "d1": 50, "d2": 70}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bias_gelu_and_residual_as_epilogue(dtype, arch):
    shape = (2, "d0", 100)
    inputs = (Operand(dtype, (100,)), Operand(dtype, shape))
    steps = (
        Step("add", (0, 1), dtype),
        Step("gelu", (3,), dtype, (("approximate", "none"),)),
        Step("add", (4, 2), dtype),
    )
    spec = product(dtype, shape[:1], "d0", 64, 100, epilogue=Body(inputs, steps, (5,)))
    check(spec, {"d0": 17}, arch=arch, rtol=1e-5, atol=2e-5)


def test_the_row_does_not_depend_on_the_other_rows():
    """Row 0 of a product with 12 rows or more is bitwise the same however many there are."""
    spec = product("float32", (), "d0", 384, 64)
    rng = np.random.default_rng(0)
    a, b = random(rng, (300, 384), "float32"), random(rng, (2, 384, 32), "float32")
    (whole,), _ = run(spec, [a, b], {"d0": 300})
    (part,), _ = run(spec, [a[:24], b], {"d0": 24})
    assert whole[:24].tobytes() == part.tobytes()


def test_the_sum_is_accurate():
    spec = product("float32", (), 12, 1536, 32)
    rng = np.random.default_rng(0)
    arrays = [random(rng, s, "float32") for s in ((12, 1536), (1, 1536, 32))]
    got = run(spec, arrays)[0][0]
    exact = arrays[0].astype(np.float64) @ arrays[1][0].astype(np.float64)
    magnitude = np.abs(arrays[0]).astype(np.float64) @ np.abs(arrays[1][0])
    assert (np.abs(got - exact) / magnitude).max() < 2e-6
    assert evaluate(spec, {}, arrays)[0].shape == got.shape


def test_refusals():
    supports = find("matmul_packed", "cpu").supports
    wanted = "a: wanted float32 or float64, got int32"
    assert supports(product("int32", (), 3, 4, 5)) == wanted
    plain = product("float32", (), 3, 4, 5)
    wide = Operand("float64", plain.operands[1].shape)
    spec = Spec(plain.op, (plain.operands[0], wide), plain.result, plain.outputs)
    assert supports(spec) == "b: wanted a float for float32, got float64"
    body = Body((plain.operands[0],), (), (0,))
    spec = Spec(plain.op, plain.operands, plain.result, plain.outputs, (), body)
    assert supports(spec) == "it takes no prologue"
    pack = packing("float32", (3, 4), False)
    spec = Spec(pack.op, pack.operands, pack.result, pack.outputs, pack.attrs, body)
    wanted = "it takes no prologue and no epilogue"
    assert find("pack_b", "cpu").supports(spec) == wanted
    wanted = "group: wanted 1 or what makes 4 bytes, got 4 of bfloat16"
    assert find("pack_b", "cpu").supports(packing("bfloat16", (3, 4), False, 4)) == wanted
