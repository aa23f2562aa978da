"""Products of rows that a norm in the same kernel computes."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from native import ARCHS, DOTS, check
from test_matmul_packed import product

from heddle.graph import DeviceRef, DType, Graph, TensorType, Weight, compile, ops
from heddle.kernels.cpu.products import beside
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step
from heddle.runtime import InferenceSession

CPU = DeviceRef.CPU()


def normed(dtype, rows, k, widths, op="rms_norm"):
    """Products of the norm of x + y."""
    x, vector = Operand(dtype, (rows, k)), Operand(dtype, (k,))
    vectors = (vector,) if op == "rms_norm" else (vector, vector)
    added = Body((x, x), (Step("add", (0, 1), dtype),), (2,))
    source = Spec(op, (x, *vectors), x, (x,), (("epsilon", 1e-5),), added)
    first, *others = (product(dtype, (), rows, k, n, pairs=dtype == "bfloat16") for n in widths)
    return replace(first, beside=tuple(others), source=source)


@pytest.mark.parametrize(
    ("dtype", "arch"),
    [("float32", ARCHS[0]), ("float32", ARCHS[-1]), ("bfloat16", "sapphirerapids")]
    + [("bfloat16", arch) for arch in DOTS[2:]],
)
def test_one_row(dtype, arch):
    for op, widths in (("rms_norm", (33, 33, 64)), ("layer_norm", (40,))):
        spec = beside.split(normed(dtype, "d0", 70, widths, op))[0].spec
        check(spec, {"d0": 1}, arch=arch, rtol=1e-5, atol=2e-5)


def test_a_spec_says_what_its_source_is():
    spec = normed("float32", "d0", 32, (64, 32))
    assert Spec.from_json(spec.to_json()) == spec
    shapes = [("d0", 32), ("d0", 32), (32,), (2, 32, 32), (1, 32, 32)]
    assert [operand.shape for operand in spec.inputs] == shapes


def test_rows_that_are_known_need_no_choice():
    stages = [
        [share.spec.attr("norm") for share in beside.split(normed("float32", rows, 32, (32,)))]
        for rows in (1, 2)
    ]
    assert stages == [["inside"], ["before", "rest"]]


def test_long_rows_are_refused():
    reason = find("matmul_packed", "cpu").supports(normed("float32", "d0", 65536, (32,)))
    assert reason == f"a norm: wanted rows of at most {beside.ROOM} bytes, got 65536 of float32"


def test_one_and_many_rows_have_the_same_bits():
    """By whichever kernels: each row's answer is that of the row among many."""
    with Graph("step", [TensorType(DType.bfloat16, ("rows", 64), CPU)], input_names=["x"]) as graph:
        x = graph.inputs[0].tensor
        gain, left, right = (
            graph.add_weight(Weight(name, DType.bfloat16, shape, CPU))
            for name, shape in (("gain", (64,)), ("left", (64, 96)), ("right", (64, 96)))
        )
        rows = ops.rms_norm(x, gain, 1e-5)
        graph.output(rows @ left, rows @ right)
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for name, shape in (("gain", (64,)), ("left", (64, 96)), ("right", (64, 96)))
    }
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)
    x = rng.standard_normal((6, 64)).astype(ml_dtypes.bfloat16)
    many = [found.to_numpy() for found in model.execute(x)]
    one = [found.to_numpy() for found in model.execute(x[:1])]
    for whole, part in zip(many, one, strict=True):
        assert whole[:1].tobytes() == part.tobytes()
