"""Attention whose values are the first columns of keys: mistakes, laws, one cache of both."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32, I64 = DType.float32, DType.int64
RAGGED = [
    TensorType(F32, ("t", 4, 8)),
    *[TensorType(F32, ("k", 2, 8))] * 2,
    *[TensorType(I64, ("n",))] * 2,
]


@pytest.mark.parametrize("size", [-1, 9])
def test_values_are_of_a_head(size):
    message = re.escape(f"value_size: wanted 0, or 1 to the head size 8, got {size}")
    with (
        pytest.raises(GraphError, match=rf"test_value_size\.py:\d+: ragged_attention: {message}"),
        Graph("g", RAGGED) as graph,
    ):
        ops.ragged_attention(*graph.inputs, value_size=size)


def test_narrow_values_are_the_first_columns_of_wide_ones():
    rng = np.random.default_rng(0)
    query, key, value = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 8), (5, 2, 8), (5, 2, 8))
    )
    operands = query, key, value, np.array([0, 3]), np.array([0, 5])
    attend = ROWS["ragged_attention"].reference
    wanted = attend(*operands, scale=0.3)
    np.testing.assert_array_equal(attend(*operands, scale=0.3, value_size=5), wanted[..., :5])


def test_what_it_costs():
    """Of keys of 8 and values of 6 as many operations as of keys and values of 7."""
    row = ROWS["ragged_attention"]

    def operations(types, size):
        attrs = {"scale": 1.0, "causal": True, "window": 0, "softcap": 0.0, "value_size": size}
        return row.cost(types, attrs, row.infer(types, attrs)).operations

    sevens = [TensorType(x.dtype, [7 if d == 8 else d for d in x.shape]) for x in RAGGED]
    assert operations(RAGGED, 6) == operations(sevens, 0)


def test_one_cache_of_keys_and_values():
    """It is written in place, and read twice by one kernel; what follows joins that."""
    rows, tokens = Dim("rows"), Dim("tokens")
    types = [
        TensorType(F32, (tokens, 6, 24)),
        TensorType(F32, (tokens, 1, 24)),
        TensorType(F32, (9, 4, 1, 24)),
        TensorType(I64, (rows + 1,)),
        TensorType(I64, (rows,)),
        TensorType(DType.int32, (rows, 4)),
    ]
    with Graph("latents", types) as graph:
        query, new, cache, *where = graph.inputs
        cache = ops.paged_write(cache, new, *where)
        found = ops.paged_attention(query, cache, cache, *where, value_size=17)
        assert str(found.shape) == "[tokens, 6, 17]"
        graph.output(found * 2.0, cache)
    artifact = compile(graph, "cpu:native")
    (program,) = artifact.describe()["programs"]
    copied = ["copied_bytes" in row for row in program["main"]["instructions"]]
    assert copied == [True, False, False]
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([dim.evaluate({"tokens": 5}) for dim in type.shape]).astype(np.float32)
        for type in types[:3]
    ]
    arrays += [np.array([0, 1, 5]), np.array([7, 4])]
    arrays += [rng.permutation(8).reshape(2, 4).astype(np.int32)]
    wanted = evaluate(graph, [array.copy() for array in arrays])
    out = [np.empty((5, 6, 17), np.float32), arrays[2]]
    InferenceSession(threads=2).load(artifact).execute(*arrays, out=out)
    for array, result in zip(out, wanted, strict=True):
        np.testing.assert_allclose(array, result, rtol=1e-5, atol=1e-6)
