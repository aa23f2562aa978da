"""Python's operators on values, and what their ops refuse."""

import re

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, compile, ops
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32, I32, BOOL = DType.float32, DType.int32, DType.bool


def test_operators_are_pythons():
    """Compiled, and by the reference, as NumPy has them."""
    with Graph("operators", [TensorType(kind, ("n",)) for kind in (F32, I32, BOOL, BOOL)]) as graph:
        x, i, a, b = graph.inputs
        graph.output(
            *(x**3.0, 2.0**x, x // 0.75, 1.0 // x, x % 0.75, 7.0 % x),
            *(i // 3, 100 // i, i % -3, 100 % i),
            *(a & b, a | b, a ^ b, ~a, True & b, False | b, True ^ b),
            *(i & 6, 6 | i, i ^ -1, ~i, i << 2, 1 << i, i >> 1, -64 >> i, i << 40),
            *(ops.clip(x, -0.5, 0.5), ops.clip(i, 0, 3), ops.isnan(x / 0.0)),
        )
    x = np.array([-2.5, -1.0, -0.2, 0.0, 0.2, 1.25, 3.0], np.float32)
    i = np.arange(-3, 4, dtype=np.int32)
    a, b = np.resize([False, False, True, True], 7), np.resize([False, True], 7)
    with np.errstate(all="ignore"):
        wanted = [
            *(x**3, 2**x, x // np.float32(0.75), 1 // x, x % np.float32(0.75), 7 % x),
            *(i // 3, 100 // i, i % -3, 100 % i),
            *(a & b, a | b, a ^ b, ~a, b, b, ~b),
            *(i & 6, 6 | i, i ^ -1, ~i, i << 2, 1 << i, i >> 1, -64 >> i, 0 * i),
            *(np.clip(x, -0.5, 0.5), np.clip(i, 0, 3), x == 0),
        ]
    found = InferenceSession(threads=1).load(compile(graph, "cpu:native")).execute(x, i, a, b)
    for result, reference, array in zip(found, evaluate(graph, [x, i, a, b]), wanted, strict=True):
        np.testing.assert_allclose(result.to_numpy(), array, rtol=3e-7)
        np.testing.assert_allclose(reference, array, rtol=3e-7)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, i, a: i**2, "pow: wanted a floating-point dtype, got int32; cast it first"),
        (lambda x, i, a: a // a, "floor_divide: wanted a numeric dtype, got bool; cast it first"),
        (lambda x, i, a: a % a, "mod: wanted a numeric dtype, got bool; cast it first"),
        (lambda x, i, a: x & x, "logical_and: wanted bool, got float32; compare it first"),
        (lambda x, i, a: x << x, "left_shift: wanted an integer dtype, got float32"),
        (
            lambda x, i, a: a >> a,
            "right_shift: wanted an integer dtype, got bool; use logical_and and the like",
        ),
        (lambda x, i, a: ~x, "logical_not: wanted bool, got float32; compare it first"),
        (lambda x, i, a: a | i, "logical_or: wanted bool, got int32; compare it first"),
        (lambda x, i, a: a ^ 1, "logical_xor: wanted a number of dtype bool, got 1"),
        (
            lambda x, i, a: ops.sin(i),
            "sin: wanted a floating-point dtype, got int32; cast it first",
        ),
        (lambda x, i, a: ops.round(i), "round: wanted a floating-point dtype, got int32; cast it"),
        (lambda x, i, a: ops.isnan(i), "isnan: wanted a floating-point dtype, got int32; cast it"),
    ],
)
def test_mistakes(build, message):
    types = [TensorType(kind, (3,)) for kind in (F32, I32, BOOL)]
    graph = Graph("mistake", types)
    with pytest.raises(GraphError, match=r"test_operators\.py:\d+: " + re.escape(message)):
        build(*graph.inputs)
