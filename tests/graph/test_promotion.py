"""How operands of different dtypes meet (docs/ops.md)."""

import re

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, ops
from heddle.graph.reference import evaluate
from heddle.runtime.errors import GraphError


def tensor(*shape, dtype=DType.float32):
    return TensorType(dtype, shape)


PROMOTED = [
    ("int8", "int32", "int32"),
    ("uint8", "int16", "int16"),
    ("uint8", "uint64", "uint64"),
    ("int64", "float32", "float32"),
    ("int16", "float16", "float16"),
    ("float16", "float32", "float32"),
    ("bfloat16", "float64", "float64"),
    ("uint8", "uint8", "uint8"),
]


@pytest.mark.parametrize(("left", "right", "result"), PROMOTED)
def test_promotion(left, right, result):
    types = [tensor(2, dtype=DType[left]), tensor(2, dtype=DType[right])]
    with Graph("g", types) as graph:
        x, y = graph.inputs
        assert (x + y).dtype is DType[result]
        assert (y + x).dtype is DType[result]
        assert ops.concat([x, y]).dtype is DType[result]
        assert ops.where(ops.equal(x, x), x, y).dtype is DType[result]
        graph.output(x + y)
    graph.verify()


@pytest.mark.parametrize(
    ("values", "result"),
    [((0.0, -1e4), "float32"), ((1, 2), "int64"), ((1, 0.5), "float32"), ((True, False), "bool")],
)
def test_numbers_alone_are_constants(values, result):
    with Graph("g", [tensor(2)]) as graph:
        chosen = ops.where(graph.inputs[0] > 0.0, *values)
        assert chosen.dtype is DType[result]
        graph.output(chosen)
    (found,) = evaluate(graph, [np.array([1, -1], np.float32)])
    np.testing.assert_array_equal(found, np.array(values, result))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int32", "uint32"),
        ("int8", "uint8"),
        ("uint64", "int8"),
        ("int32", "float16"),
        ("float16", "bfloat16"),
    ],
)
def test_promotion_invalid(left, right):
    types = [tensor(2, dtype=DType[left]), tensor(2, dtype=DType[right])]
    with Graph("g", types) as graph:
        text = f"add: wanted dtypes of which one holds the other, got {left} and {right}; cast one"
        with pytest.raises(GraphError, match=text):
            graph.inputs[0] + graph.inputs[1]
        graph.output()


@pytest.mark.parametrize("other", ["float32", "float8_e5m2", "int8"])
def test_floats_of_8_bits_are_not_promoted_invalid(other):
    types = [tensor(2, dtype=DType.float8_e4m3fn), tensor(2, dtype=DType[other])]
    with Graph("g", types) as graph:
        text = (
            f"add: wanted one dtype where one is a float of 8 bits, got float8_e4m3fn and {other}"
        )
        with pytest.raises(GraphError, match=text):
            graph.inputs[0] + graph.inputs[1]
        graph.output()


@pytest.mark.parametrize(
    "make", [lambda x: x + x, ops.exp, ops.neg, ops.max, lambda x: x < x, ops.softmax]
)
def test_floats_of_8_bits_are_not_computed_in_invalid(make):
    with Graph("g", [tensor(2, dtype=DType.float8_e5m2)]) as graph:
        text = "wanted a dtype to compute in, got float8_e5m2; cast it first"
        with pytest.raises(GraphError, match=text):
            make(graph.inputs[0])
        graph.output()


@pytest.mark.parametrize("number", [1, -3, 0.1, float("inf"), 16777217])
def test_a_number_takes_the_tensors_dtype(number):
    with Graph("g", [tensor(2, dtype=DType.bfloat16)]) as graph:
        value = graph.inputs[0] * number
        assert value.dtype is DType.bfloat16
        graph.output(value)
    graph.verify()


@pytest.mark.parametrize(
    ("dtype", "number", "text"),
    [
        (DType.int8, 300, "add: wanted a number from -128 to 127 (int8), got 300"),
        (DType.uint8, -1, "add: wanted a number from 0 to 255 (uint8), got -1"),
        (DType.int32, 0.5, "add: wanted a number of dtype int32, got the float 0.5; cast first"),
        (DType.float32, 10**400, "add: wanted a number from -3.4028234663852886e+38 to 3.40"),
        (DType.int32, True, "add: wanted a number of dtype int32, got True; cast first"),
        (DType.bool, 1, "add: wanted a number of dtype bool, got 1; cast first"),
        (
            DType.float16,
            1e5,
            "add: wanted a number from -65504.0 to 65504.0 (float16), got 100000.0",
        ),
    ],
)
def test_a_number_that_does_not_fit_invalid(dtype, number, text):
    with Graph("g", [tensor(2, dtype=dtype)]) as graph:
        with pytest.raises(GraphError, match=re.escape(text)):
            graph.inputs[0] + number
        graph.output()


def test_an_array_has_its_own_dtype():
    with Graph("g", [tensor(2)]) as graph:
        assert (graph.inputs[0] + np.ones(2)).dtype is DType.float64
        assert (np.float16(1) * graph.inputs[0]).dtype is DType.float32
        graph.output()
