"""integer_matmul_packed: exact, whatever the sizes, the numbers and the machine."""

import numpy as np
import pytest
from native import DOTS, check, random, run

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step, fold


def product(leading, m, k, n, batched=False, epilogue=None):
    a, result = Operand("uint8", (*leading, m, k)), Operand("int32", (*leading, m, n))
    before = leading if batched else ()
    b = Operand("int8", (*before, fold("ceildiv", n, 32), fold("ceildiv", k, 4), 32, 4))
    outputs = (result,) if epilogue is None else (Operand("float32", result.shape),)
    return Spec("integer_matmul_packed", (a, b), result, outputs, (), None, epilogue)


def exact(spec, dims=None, arch=DOTS[-1]):
    """`check` with panels that are zero beyond k, as `pack_b` makes them."""
    dims = dims or {}
    rng = np.random.default_rng(0)
    sizes = [[evaluate(size, dims) for size in operand.shape] for operand in spec.inputs]
    arrays = [random(rng, size, o.dtype) for size, o in zip(sizes, spec.inputs, strict=True)]
    k, packed = sizes[0][-1], arrays[1]
    beyond = np.arange(packed.shape[-3] * 4).reshape(-1, 1, 4) >= k
    arrays[1] = np.where(beyond, np.int8(0), packed)
    check(spec, dims, arrays, arch=arch, rtol=1e-6, atol=1e-6)


def evaluate(size, dims):
    if isinstance(size, tuple):
        return fold(size[0], evaluate(size[1], dims), size[2])
    return dims.get(size, size)


@pytest.mark.parametrize("arch", DOTS)
def test_every_height(arch):
    spec = product((), "d0", 31, 33)
    for m in (*range(1, 14), 31, 200):
        exact(spec, {"d0": m}, arch)


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize("k", [1, 16, 23])
def test_static_k(k, arch):
    for n in (1, 32, 100):
        exact(product((), "d0", k, "d1"), {"d0": 25, "d1": n}, arch)


@pytest.mark.parametrize("k", [1, 64, 203])
def test_few_rows(k):
    """One row by pairs of panels, others by units of four; what is left of each."""
    for m in (1, 2, 5):
        exact(product((), "d0", k, "d1"), {"d0": m, "d1": 280}, "x86-64-v3")


@pytest.mark.parametrize("batched", [False, True])
def test_batches(batched):
    exact(product((2, "d0"), 13, 22, 40, batched), {"d0": 3})


@pytest.mark.parametrize("arch", DOTS)
def test_all_sizes_dynamic(arch):
    for k in (1, 2, 4, 7, 48, 385):
        exact(product((), "d0", "d1", "d2"), {"d0": 20, "d1": k, "d2": 70}, arch)


@pytest.mark.parametrize("arch", DOTS)
def test_nothing_saturates(arch):
    """Sums of two products leave 16 bits, and that of all of them leaves 32."""
    spec = product((), 1, 2**17, 32)
    for left, right in ((255, -128), (255, 127)):
        arrays = [np.full((1, 2**17), left, np.uint8), np.full((1, 2**15, 32, 4), right, np.int8)]
        (got,), _ = run(spec, arrays, arch=arch)
        wanted = np.array(left * right * 2**17).astype(np.int32)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("arch", DOTS)
def test_scales_as_epilogue(arch):
    inputs = (Operand("float32", ("d0", 1)), Operand("float32", (40,)))
    steps = (
        Step("cast", (0,), "float32"),
        Step("mul", (3, 1), "float32"),
        Step("mul", (4, 2), "float32"),
    )
    exact(product((), "d0", 64, 40, epilogue=Body(inputs, steps, (5,))), {"d0": 14}, arch)


def test_refusals():
    supports = find("integer_matmul_packed", "cpu").supports
    spec = product((), 3, 8, 5)
    a, b = spec.operands
    assert supports(spec) is None
    signed = Spec(spec.op, (Operand("int8", a.shape), b), spec.result, spec.outputs)
    assert supports(signed) == "wanted uint8 by int8, got int8 by int8"
    body = Body((a,), (), (0,))
    with_prologue = Spec(spec.op, (a, b), spec.result, spec.outputs, (), body)
    assert supports(with_prologue) == "it takes no prologue"
