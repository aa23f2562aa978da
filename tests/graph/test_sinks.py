"""Sinks of ragged and paged attention in graphs: mistakes, what they mean, and compiled."""

import re

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, compile, ops
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32, I64 = DType.float32, DType.int64
HEADS = 4
ATTRS = {"scale": 0.3, "causal": True, "window": 0, "softcap": 0.0}


def types_of(op, sinks):
    """Of rows of tokens with `HEADS` heads of 8 on two key heads, and of these sinks."""
    keys = ("k", 2, 8) if op == "ragged_attention" else (9, 4, 2, 8)
    rows = [(I64, ("n",))] * 2
    if op == "paged_attention":
        rows = [(I64, ("rows + 1",)), (I64, ("rows",)), (DType.int32, ("rows", "m"))]
    operands = [(F32, ("t", HEADS, 8)), *[(F32, keys)] * 2, *rows, sinks]
    return [TensorType(*operand) for operand in operands]


@pytest.mark.parametrize("op", ["ragged_attention", "paged_attention"])
@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ((DType.bfloat16, (HEADS,)), "sinks: wanted float32, got bfloat16; cast it first"),
        ((F32, (2,)), "sinks: wanted [4], one for each head, got [2]"),
        ((F32, (1, HEADS)), "sinks: wanted [4], one for each head, got [1, 4]"),
    ],
)
def test_mistakes(op, sinks, message):
    place = rf"test_sinks\.py:\d+: {op}: "
    with (
        pytest.raises(GraphError, match=place + re.escape(message)),
        Graph("g", types_of(op, sinks)) as graph,
    ):
        getattr(ops, op)(*graph.inputs)


@pytest.mark.parametrize("softcap", [-1.0, np.inf, np.nan])
def test_a_cap_is_a_number_above_zero(softcap):
    message = f"softcap: wanted 0, or a finite number above it, got {softcap}"
    types = types_of("ragged_attention", (F32, (HEADS,)))
    with pytest.raises(GraphError, match=re.escape(message)), Graph("g", types) as graph:
        ops.ragged_attention(*graph.inputs, softcap=softcap)


def row(queries, keys):
    """Operands of one row, without sinks."""
    rng = np.random.default_rng(0)
    shapes = (queries, HEADS, 8), (keys, 2, 8), (keys, 2, 8)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [*arrays, np.array([0, queries]), np.array([0, keys])]


def test_a_sink_is_one_more_key_whose_value_is_zeros():
    """The first element of queries is 1 and of keys 0, but of that key."""
    attend = ROWS["ragged_attention"].reference
    query, key, value, of_queries, of_keys = row(3, 5)
    query[..., 0], key[..., 0] = 1, 0
    one_more = np.zeros((1, 2, 8), np.float32)
    one_more[0, :, 0] = [2.0, -1.0]
    sinks = np.repeat(one_more[0, :, 0], 2) * np.float32(ATTRS["scale"])
    found = attend(query, key, value, of_queries, of_keys, sinks, **ATTRS)
    key, value = np.concatenate([one_more, key]), np.concatenate([one_more * 0, value])
    wanted = attend(query, key, value, of_queries, of_keys + np.array([0, 1]), **ATTRS)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sink", [-np.inf, 0.0, np.inf])
def test_without_a_key_a_query_gets_zeros_whatever_the_sink(sink):
    """Of five queries the last two see keys."""
    operands = [*row(5, 2), np.full(HEADS, sink, np.float32)]
    with Graph("g", types_of("ragged_attention", (F32, (HEADS,)))) as graph:
        graph.output(ops.ragged_attention(*graph.inputs, **ATTRS))
    (wanted,) = evaluate(graph, operands)
    np.testing.assert_array_equal(wanted[:3], 0)
    assert wanted[3:].any() == (sink < np.inf)
    (found,) = InferenceSession(threads=1).load(compile(graph, "cpu:native")).execute(*operands)
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=1e-6)
