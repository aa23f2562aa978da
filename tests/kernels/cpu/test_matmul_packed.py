"""pack_b and matmul_packed."""

import math
from collections import defaultdict
from dataclasses import replace

import machine_code
import ml_dtypes
import numpy as np
import pytest
from native import ARCHS, DOTS, check, random, run
from reference import evaluate

from heddle.kernels.cpu.products.blocks import Shares
from heddle.kernels.registry import MACHINES, find
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


def product(dtype, leading, m, k, n, batched=False, epilogue=None, pairs=False):
    wide = dtype if dtype in ("float64", "int32") or pairs else "float32"
    a, result = Operand(wide, (*leading, m, k)), Operand(dtype, (*leading, m, n))
    before = leading if batched else ()
    b = Operand(dtype, (*before, *panels(n, k, 2 if pairs else 1)))
    outputs = (result,)
    return Spec("matmul_packed", (a, b), result, outputs, (), None, epilogue)


def test_tiles_of_rows_a_set_apart():
    """More than one have eight rows or fewer, but no fewer than half a tile: those add alike."""
    for rows in range(1, 129):
        count = Shares(rows, 12, 8).count
        low, high = rows // count, -(-rows // count)
        assert count == 1 or low >= 6, rows
        assert high <= (12 if rows <= 12 else 9), rows
        assert high <= 8 or rows <= 18, rows


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("m", [12, 13, 17, 25, 70])
def test_rows_a_set_apart(m, arch):
    check(product("float32", (), m, 1024, 40), arch=arch, atol=1e-4)
    check(product("bfloat16", (), m, 2048, 40, pairs=True), arch=arch, atol=1e-3)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("m", "k"), [(197, 3072), (560, 3072), (198, 2048), (200, 3072)])
def test_steps_compute_no_addresses(m, k, arch):
    """Where a tile begins is known before its steps: not each one's load finds it out again."""
    text = machine_code.assembly(product("float32", (), m, k, 768), MACHINES[arch])
    counts = []
    for loop in machine_code.loops(text, "vfmadd231ps"):
        products = sum(name.startswith("vfmadd") for name in loop)
        counts.append((products, sum(not name.startswith(("v", "prefetch")) for name in loop)))
    tiles = [scalars for products, scalars in counts if products >= 2 * 2 * 6]
    assert tiles
    assert max(tiles) <= 24


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


@pytest.mark.parametrize("arch", ARCHS)
def test_stretches(arch):
    """None, one, and several, the last of which alone writes."""
    for k in (0, 1000, 2500):
        check(product("float32", (), 30, k, 33), arch=arch, rtol=1e-5, atol=1e-4)
        check(product("float32", (), 30, "d0", 33), {"d0": k}, arch=arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("n", [161, "d2"])
@pytest.mark.parametrize("k", [1, 64, 101, "d1"])
@pytest.mark.parametrize("pairs", [False, True])
def test_few_rows(pairs, k, n):
    """One row by pairs of panels, others by units of four; what is left of each."""
    spec = product("bfloat16" if pairs else "float32", (), "d0", k, n, pairs=pairs)
    sizes = {size: number for size, number in (("d1", 45), ("d2", 280)) if size in (k, n)}
    for m in (1, 2, 5, 6):
        check(spec, {"d0": m, **sizes}, arch="x86-64-v3", rtol=1e-5, atol=2e-5 if pairs else 1e-4)


@pytest.mark.parametrize("m", [1, 3, 65, 70])
def test_few_rows_that_are_known(m):
    check(product("float32", (), m, 40, 100), arch="x86-64-v3", rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("batched", [False, True])
def test_batches(batched):
    spec = product("float32", (2, "d0"), 13, 20, 40, batched)
    check(spec, {"d0": 3}, rtol=1e-5, atol=1e-5)


def test_all_sizes_dynamic():
    spec = product("float32", (), "d0", "d1", "d2")
    check(spec, {"d0": 20, "d1": 50, "d2": 70}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [*ARCHS, "sapphirerapids"])
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


FEW = defaultdict(tuple, {"x86-64-v3": (1, 2, 3, 4, 5)})
"""Rows whose bits are those of others, too, by level: elsewhere a few have several sums each."""


@pytest.mark.parametrize("arch", [*ARCHS, "sapphirerapids"])
@pytest.mark.parametrize("n", [64, 70, 90])
def test_the_row_does_not_depend_on_the_other_rows(n, arch):
    """Row 0 of a product with 4 rows or more is bitwise the same however many there are.

    Beside AMX from 13 rows on; fewer of them are alike, too.
    """
    spec = product("float32", (), "d0", 2500, n)
    if arch == "sapphirerapids":
        alike(spec, (4, 5, 7), arch, of=12)
        alike(spec, (13, 24, 97), arch, of=130)
    else:
        alike(spec, (*FEW[arch], 4, 5, 7, 24), arch)


@pytest.mark.parametrize("n", [64, 70])
@pytest.mark.parametrize("arch", DOTS)
def test_the_row_of_pairs_does_not_depend_on_the_other_rows(arch, n):
    """From half the rows of a tile on."""
    alike(product("bfloat16", (), "d0", 2500, n, pairs=True), (*FEW[arch], 6, 7, 13, 24), arch)


def test_the_row_by_large_weights_does_not_depend_on_the_other_rows():
    """Up to 12 rows are few there, in two tiles."""
    alike(product("float32", (), "d0", 2500, 230), (1, 6, 7, 11, 12, 13), "x86-64-v3")


def alike(spec, counts, arch, of=300):
    """Whether the rows of so many are bitwise those of fewer."""
    rng = np.random.default_rng(0)
    kind = spec.operands[0].dtype
    a, b = random(rng, (of, 2500), kind), random(rng, spec.operands[1].shape, kind)
    (whole,), _ = run(spec, [a, b], {"d0": of}, arch)
    for rows in counts:
        (part,), _ = run(spec, [a[:rows], b], {"d0": rows}, arch)
        assert whole[:rows].tobytes() == part.tobytes(), rows


@pytest.mark.parametrize("arch", DOTS)
def test_pairs_at_every_height(arch):
    spec = product("bfloat16", (), "d0", 31, 33, pairs=True)
    for m in (*range(13), 31, 96, 100):
        check(spec, {"d0": m}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("k", "batched"), [(1, False), (65, True), ("d1", False)])
def test_pairs_of_batches(k, batched, arch):
    spec = product("bfloat16", (2, "d0"), 25, k, 100, batched, pairs=True)
    check(spec, {"d0": 3, "d1": 131}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", DOTS)
def test_pairs_and_an_epilogue(arch):
    shape = ("d0", 100)
    steps = (Step("add", (0, 1), "bfloat16"), Step("cast", (2,), "float32"))
    body = Body((Operand("bfloat16", shape),), steps, (3,))
    spec = product("bfloat16", (), "d0", 64, 100, epilogue=body, pairs=True)
    spec = replace(spec, outputs=(Operand("float32", shape),))
    check(spec, {"d0": 17}, arch=arch, rtol=1.6e-2, atol=1e-2)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("k", [1536, 2309])
def test_the_error_of_pairs_is_that_of_float32_sums(k, arch):
    """A sum of k products is within k 2^-24 of the sum of their magnitudes, then rounded."""
    spec = product("bfloat16", (), 12, k, 32, pairs=True)
    cast = Body((), (Step("cast", (0,), "float32"),), (1,))
    wide = replace(spec, result=Operand("float32", (12, 32)), epilogue=cast)
    spec = replace(wide, outputs=(Operand("float32", (12, 32)),))
    rng = np.random.default_rng(0)
    arrays = [random(rng, operand.shape, "bfloat16") for operand in spec.operands]
    got = run(spec, arrays, arch=arch)[0][0]
    exact = evaluate(spec, {}, arrays)[0]
    magnitude = evaluate(spec, {}, [np.abs(array) for array in arrays])[0]
    assert (np.abs(got - exact) <= k * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("arch", DOTS)
def test_the_element_beyond_an_odd_k_is_not_read(arch):
    """The pair of a row's last element would have the next row's first, which is infinite."""
    spec = product("bfloat16", (), 3, 5, 4, pairs=True)
    rng = np.random.default_rng(0)
    a, b = (random(rng, operand.shape, "bfloat16") for operand in spec.operands)
    a[1] = np.inf
    (got,), _ = run(spec, [a, b], arch=arch)
    assert np.isfinite(got[0].astype(np.float32)).all()


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
    wanted = "a: wanted float32, float64 or bfloat16, got int32"
    assert supports(product("int32", (), 3, 4, 5)) == wanted
    plain = product("float32", (), 3, 4, 5)
    wide = Operand("float64", plain.operands[1].shape)
    spec = Spec(plain.op, (plain.operands[0], wide), plain.result, plain.outputs)
    assert supports(spec) == "b: wanted a float for float32, got float64"
    pairs = Operand("bfloat16", plain.operands[0].shape)
    spec = Spec(plain.op, (pairs, plain.operands[1]), plain.result, plain.outputs)
    assert supports(spec) == "b: wanted bfloat16 for bfloat16, got float32"
    body = Body((plain.operands[0],), (), (0,))
    spec = Spec(plain.op, plain.operands, plain.result, plain.outputs, (), body)
    assert supports(spec) == "it takes no prologue"
    pack = packing("float32", (3, 4), False)
    spec = Spec(pack.op, pack.operands, pack.result, pack.outputs, pack.attrs, body)
    wanted = "it takes no prologue and no epilogue"
    assert find("pack_b", "cpu").supports(spec) == wanted
    wanted = "group: wanted 1 or what makes 4 bytes, got 4 of bfloat16"
    assert find("pack_b", "cpu").supports(packing("bfloat16", (3, 4), False, 4)) == wanted


@pytest.mark.parametrize("arch", DOTS)
def test_sums_are_rounded_to_bfloat16_once(arch):
    """One times each column: between two numbers, beyond the largest, and none at all."""
    spec = product("bfloat16", (), 3, 2, 64, pairs=True)
    kind = ml_dtypes.bfloat16
    a = np.array([[1, 2.0**-9], [1, 1.5 * 2.0**-8], [1, 3 * 2.0**-8]], kind)
    columns = np.concatenate([np.linspace(-3, 3, 60), [3e38, math.inf, -math.inf, math.nan]])
    b = np.repeat(columns.astype(kind)[:, None], 2, axis=1)
    got = run(spec, [a, b.reshape(2, 1, 32, 2)], arch=arch)[0][0]
    with np.errstate(all="ignore"):
        wanted = (a.astype(np.float32) @ b.T.astype(np.float32)).astype(kind)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
