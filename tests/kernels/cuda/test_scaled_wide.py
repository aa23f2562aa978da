"""Products by weights of 8 and 4 bits whose sums meet others in float32, and scales in float16.

Sums of 16 bits would be rounded before.
"""

from dataclasses import replace

import cuda_harness
import ml_dtypes
import numpy as np
import pytest
import wgmma_registers
from cuda_program import EmulatedModel
from grouped_cases import check as check_groups
from row_groups import scaling
from test_kernels import check
from test_tensor_cores import quantized
from warpgroup_cases import HOPPER

from heddle.graph import DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import scaled
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.spec import Body, Operand, Spec, Step


def wide(spec: Spec) -> Spec:
    """Plus a matrix of float32, by scales of float16; the sum has x's dtype."""
    x, weight, scales, *others = spec.operands
    result = replace(spec.result, dtype="float32")
    steps = (Step("add", (0, 1), "float32"), Step("cast", (2,), x.dtype))
    return replace(
        spec,
        operands=(x, weight, Operand("float16", scales.shape), *others),
        result=result,
        outputs=(replace(result, dtype=x.dtype),),
        epilogue=Body((result, result), steps, (3,)),
    )


STRIPS = {
    "a row": quantized("bfloat16", 1, 72, 256, 4, 32),
    "nine rows": quantized("bfloat16", 9, 40, 192, 8, 96),
    "many rows": quantized("float16", 70, 40, 128, 4, 64),
}


@pytest.mark.parametrize("name", STRIPS)
def test_strips(name):
    spec = wide(STRIPS[name])
    assert scaled.fits(spec)
    check(spec, {})


@pytest.mark.parametrize(("bits", "held"), [(4, "uint8"), (8, "int8"), (8, "float8_e4m3fn")])
def test_multiply_adds(bits, held):
    check(wide(quantized("float32", 9, 24, 64, bits, 32, held)), {})


TILES = {
    # spec, elements that buffers are shifted by
    "rows of a short tile": (quantized("bfloat16", 40, 136, 256, 4, 32), 0),
    "rows of a tall one": (quantized("bfloat16", 130, 136, 128, 8, 64), 0),
    "half of a panel": (quantized("float16", 70, 27, 64, 4, 32), 0),
    "unaligned": (quantized("bfloat16", 66, 40, 64, 8, 32), 1),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_of_warpgroups(monkeypatch, name):
    """A panel has 32 columns of float32: those of a warpgroup leave in two parts."""
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)
    spec, shift = TILES[name]
    spec = wide(spec)
    assert warpgroup_plan.plan_for(spec, HOPPER)
    assert wgmma_registers.check(to_ptx(spec, HOPPER))
    check(spec, {}, shift)


def test_groups_of_rows():
    spec = wide(scaling("quantized_grouped_matmul", "bfloat16", "uint8", 64, 40, 90, 2))
    check_groups(spec, {}, np.array([0, 5, 88]))
    assert warpgroup_plan.plan_for(spec, HOPPER)
    check_groups(spec, {}, np.array([0, 5, 88]), HOPPER.arch)


@pytest.mark.parametrize("rows", [3, 20])
def test_a_program_of_weights_with_minimums(rows):
    """A product and its gate, of few rows in one kernel, each with its own minimums."""
    half, narrow, rng = DType.float16, DType.bfloat16, np.random.default_rng(0)
    with Graph("gated", [TensorType(narrow, ("n", 64))]) as graph:
        products, weights, wanted = [], {}, []
        for name in ("gate", "up"):
            integers = rng.integers(0, 256, (40, 32)).astype(np.uint8)
            scales = rng.uniform(0.5, 1, (40, 2)).astype(np.float16) / np.float16(16)
            minimums = (scales * np.float16(-9)).astype(np.float16)
            sides = {"n": (DType.uint8, integers), "s": (half, scales), "m": (half, minimums)}
            given = []
            for part, (dtype, array) in sides.items():
                weights[name + part] = array
                given.append(graph.add_weight(Weight(name + part, dtype, array.shape)))
            products.append(ops.quantized_matmul(graph.inputs[0], *given, bits=4, group=32))
            n = np.stack([integers & 15, integers >> 4], axis=-1).reshape(40, 64)
            scales, minimums = (np.repeat(np.float64(x), 32, axis=1) for x in (scales, minimums))
            wanted.append(n * scales + minimums)
        gate, up = (ops.cast(product, DType.float32) for product in products)
        graph.output(ops.cast(ops.silu(gate) * up, narrow))
    model = EmulatedModel(graph, weights)
    x = rng.standard_normal((rows, 64)).astype(ml_dtypes.bfloat16)
    (found,), _ = model(x)
    gate, up = (np.float64(x) @ w.T for w in wanted)
    result = gate / (1 + np.exp(-gate)) * up
    near = 2e-2 * np.abs(result).max()
    np.testing.assert_allclose(found.astype(np.float64), result, rtol=2e-2, atol=near)
