"""integer_matmul: exact and modulo 2**32, and every mistake while building."""

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, ops
from heddle.graph.dialect import context
from heddle.graph.ops.row import ROWS
from heddle.runtime.errors import GraphError

I8, U8, I32 = DType.int8, DType.uint8, DType.int32


def test_extremes_are_exact():
    a, b = np.full((1, 1000), -128, np.int8), np.full((1000, 1), -128, np.int8)
    result = ROWS["integer_matmul"].reference(a, b)
    assert (result.dtype, result.item()) == (np.int32, 128 * 128 * 1000)
    unsigned = ROWS["integer_matmul"].reference(np.full((1, 3), 255, np.uint8), b[:3])
    assert unsigned.item() == -3 * 255 * 128


def test_beyond_32_bits_it_wraps():
    a, b = np.full((1, 2**17), -128, np.int8), np.full((2**17, 1), -128, np.int8)
    assert ROWS["integer_matmul"].reference(a, b).item() == -(2**31)


def types(a=(2, 8), b=(8, 5), dtypes=(I8, I8)):
    return [TensorType(d, s) for d, s in zip(dtypes, (a, b), strict=True)]


MISTAKES = [
    (types(dtypes=(I32, I8)), "a: wanted int8 or uint8, got int32"),
    (types(dtypes=(U8, U8)), "b: wanted int8, got uint8"),
    (types(a=(8,)), "x: wanted rank 2 or more, got rank 1 (int8[8] on cpu:0)"),
    (types(b=(7, 5)), "wanted [..., m, k] and [..., k, n], got [2, 8] and [7, 5]: k is 8 and 7"),
]


@pytest.mark.parametrize(("operands", "message"), MISTAKES)
def test_mistakes(operands, message):
    with pytest.raises(GraphError) as caught, Graph("wrong", operands) as graph:
        graph.output(ops.integer_matmul(*graph.inputs))
    assert str(caught.value).endswith(f": integer_matmul: {message}")


PACKED_MISTAKES = [
    (types(b=(1, 2, 32, 4)), "a: wanted uint8, got int8"),
    (types(b=(1, 2, 32, 4), dtypes=(U8, U8)), "b: wanted int8, got uint8"),
    (types((2, 8), (2, 2, 32), (U8, I8)),
     "b: wanted rank 4 or more, got rank 3 (int8[2, 2, 32] on cpu:0)"),
    (types((2, 9), (2, 2, 32, 4), (U8, I8)),
     "b: wanted panels [2, 3, 32, 4] for n = 40, got [2, 2, 32, 4]"),
    (types((3, 2, 8), (2, 2, 2, 32, 4), (U8, I8)),
     "b: wanted leading dims [3] or none, got [2, 2, 2, 32, 4]"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "message"), PACKED_MISTAKES)
def test_mistakes_in_what_the_compiler_makes(operands, message):
    with context(), pytest.raises(GraphError) as caught:
        ROWS["integer_matmul_packed"].infer(operands, {"columns": Dim(40)})
    assert str(caught.value) == message
