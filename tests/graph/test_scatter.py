"""scatter: compiled, beside other ops, and its mistakes."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.plan import root_value
from heddle.graph.compiler.pipeline import lower
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError, HeddleError

F32, I64 = DType.float32, DType.int64
K = Dim("k", 0, 99)


def model_of(graph):
    return InferenceSession(threads=2).load(compile(graph, "cpu:native"))


def test_into_what_is_computed_and_into_what_is_given():
    """The result lies where x is computed; an input stays as it is."""
    types = [TensorType(F32, ("m", 6)), TensorType(I64, (K,)), TensorType(F32, (K, 6))]
    with Graph("scatter", types) as graph:
        x, places, rows = graph.inputs
        first = ops.scatter(x * 2.0, places, rows)
        second = ops.scatter(first, places, ops.exp(rows), reduce="add")
        graph.output(second, ops.scatter(x, places, rows) + 1.0, ops.relu(first))
    model, rng = model_of(graph), np.random.default_rng(0)
    for size, count in ((4, 9), (1, 3), (7, 0)):
        x, rows = (rng.standard_normal((n, 6), np.float32) for n in (size, count))
        arrays = [x, rng.integers(0, size, count), rows]
        before = x.copy()
        for found, wanted in zip(model.execute(*arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-6)
        np.testing.assert_array_equal(x, before)


def copied(module):
    """How many scatters have their result in another place than what they update."""
    count = 0
    for step in m.operations(module):
        if m.name(step) == "fused" and "scatter" in [m.name(op) for op in m.inner(step)]:
            above, own = m.owner(root_value(step.operands[0])), step.attributes["places"][0].value
            fused = above is not None and m.name(above) == "fused"
            count += not fused or above.attributes["places"][0].value != own
    return count


@pytest.mark.parametrize(
    ("build", "copies"),
    [
        (lambda x, f: f(f(f(x * 2.0))) - 1.0, 0),
        (lambda x, f: ops.reshape(f(ops.reshape(x * 2.0, (-1, 6))), (-1, 6)) - 1.0, 0),
        (lambda x, f: f(f(x)) - 1.0, 1),  # an input stays as it is
        (lambda x, f: f(h := x * 2.0) - h, 1),  # it is read later
        (lambda x, f: f(f(h := x * 2.0)) - f(h), 1),  # the last of two that update it
    ],
    ids=["a chain", "reshaped", "an input", "read later", "two updates"],
)
def test_what_nobody_else_reads_is_updated_where_it_lies(build, copies):
    types = [TensorType(F32, ("m", 6)), TensorType(I64, (K,)), TensorType(F32, (K, 6))]
    with Graph("chain", types) as graph:
        x, places, rows = graph.inputs
        graph.output(build(x, lambda value: ops.scatter(value, places, rows, reduce="add")))
    assert copied(lower(graph.module, "cpu")) == copies
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((7, 6), np.float32), rng.integers(0, 7, 5)]
    arrays.append(rng.standard_normal((5, 6), np.float32))
    (found,) = model_of(graph).execute(*arrays)
    np.testing.assert_allclose(found.to_numpy(), evaluate(graph, arrays)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ["add", "mul"])
@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_sums_of_16_bits_are_rounded_once(dtype, reduce):
    """Each of 100 updates alone is lost beside what it is added to."""
    types = [TensorType(F32, (2,)), TensorType(I64, (100,)), TensorType(F32, (100,))]
    with Graph("sums", types) as graph:
        x, places, updates = graph.inputs
        x, updates = (ops.cast(value, dtype) for value in (x, updates))
        graph.output(ops.cast(ops.scatter(x, places, updates, reduce=reduce), F32))
    unit = 2.0 ** (-12 if dtype is DType.float16 else -9)  # A quarter of a last place of 1.
    update = unit if reduce == "add" else 1 + 4 * unit
    arrays = [np.ones(2, np.float32), np.zeros(100, np.int64), np.full(100, update, np.float32)]
    found = model_of(graph).execute(*arrays)[0].to_numpy()
    wanted = 1 + 100 * unit if reduce == "add" else update**100
    np.testing.assert_allclose(found, [wanted, 1], rtol=2 * unit, atol=0)
    np.testing.assert_array_equal(found, evaluate(graph, arrays)[0])


def test_a_histogram_of_rows():
    """Along the last axis, as take_along reads."""
    types = [TensorType(DType.int32, (Dim("m", 0, 20), 50))]
    with Graph("histogram", types) as graph:
        (values,) = graph.inputs
        rows = values.shape[0]
        bins, ones = (ops.broadcast_to(ops.constant(np.int32(n)), (rows, size))
                      for n, size in ((0, 7), (1, 50)))  # fmt: skip
        graph.output(ops.scatter(bins, values, ones, axis=1, reduce="add"))
    model = model_of(graph)
    for rows in (0, 1, 20):
        values = np.random.default_rng(rows).integers(0, 7, (rows, 50), np.int32)
        found = model.execute(values)[0].to_numpy()
        wanted = [np.bincount(row, minlength=7) for row in values]
        np.testing.assert_array_equal(found, np.reshape(wanted, (rows, 7)))


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_outside_is_an_error_of_the_run(bad):
    types = [TensorType(F32, (3,)), TensorType(I64, (2,)), TensorType(F32, (2,))]
    with Graph("outside", types) as graph:
        graph.output(ops.scatter(*graph.inputs))
    arrays = [np.zeros(3, np.float32), np.array([0, bad]), np.zeros(2, np.float32)]
    with pytest.raises(HeddleError, match=rf"scatter.*{bad}"):
        model_of(graph).execute(*arrays)
    with pytest.raises(IndexError, match=r"scatter: wanted indices from 0 to 2"):
        evaluate(graph, arrays)


MISTAKES = [
    (lambda x, i, u: ops.scatter(x, u, u), "indices: wanted an integer dtype, got float32"),
    (lambda x, i, u: ops.scatter(x, i, i), "wanted operands of one dtype, got float32, int64"),
    (lambda x, i, u: ops.scatter(x, i, u, reduce="sum"),
     "reduce: wanted one of none, add, mul, max, min, got 'sum'"),
    (lambda x, i, u: ops.scatter(x > 0, i, x > 0, axis=1, reduce="add"),
     "wanted a numeric dtype, got bool; cast it first"),
    (lambda x, i, u: ops.scatter(x, i, u, axis=2), "wanted an axis from -2 to 1, got 2"),
    (lambda x, i, u: ops.scatter(x, i, u), "indices: wanted [k] for any k, got [2, 5]"),
    (lambda x, i, u: ops.scatter(x[:1], i, u, axis=-1),
     "indices: wanted [1, k] for any k, got [2, 5]"),
    (lambda x, i, u: ops.scatter(x, i, x, axis=1), "updates: wanted [2, 5], got [2, 3]"),
    (lambda x, i, u: ops.scatter(x, i[0], u), "updates: wanted [5, 3], got [2, 5]"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), MISTAKES)
def test_mistakes(build, message):
    types = [TensorType(F32, (2, 3)), TensorType(I64, (2, 5)), TensorType(F32, (2, 5))]
    place = r"test_scatter\.py:\d+: scatter: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        build(*graph.inputs)
