import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import Dim, DType, Graph, TensorType, Weight, ops
from heddle.graph.reference import evaluate
from heddle.runtime.errors import InputError


@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_random_graphs_verify_round_trip_and_have_the_shapes_they_say(random_graphs, data):
    case = data.draw(random_graphs)
    case.graph.verify()
    again = Graph.from_text(str(case.graph))
    assert str(again) == str(case.graph)
    results = evaluate(case.graph, case.inputs, case.weights)
    for left, right in zip(results, evaluate(again, case.inputs, case.weights), strict=True):
        assert np.isfinite(left).all()
        np.testing.assert_array_equal(left, right)


def small():
    types = [TensorType(DType.float32, ("n", 2)), TensorType(DType.bfloat16, ("n",))]
    with Graph("small", types) as graph:
        x, y = graph.inputs
        w = graph.add_weight(Weight("w", DType.float32, (2,)))
        graph.output(x * w + ops.reshape(y, ("n", 1)), y + y)
    return graph


def test_values_of_a_small_graph():
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    y = np.array([1, 2, 3], ml_dtypes.bfloat16)
    w = np.array([10, 100], np.float32)
    first, second = evaluate(small(), [x, y], {"w": w})
    np.testing.assert_array_equal(first, [[11, 201], [32, 402], [53, 603]])
    np.testing.assert_array_equal(second, np.array([2, 4, 6], np.float32))


def test_attention_is_softmax_of_scores():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, 5, 4)).astype(np.float32) for _ in range(3))
    row = ops.ROWS["attention"]
    scores = q @ k.swapaxes(-1, -2) / 2
    expected = row.reference(q, k, v, scale=0.5, causal=False, layout="bhsd")
    shares = ops.ROWS["softmax"].reference(scores, axis=-1)
    np.testing.assert_allclose(expected, shares @ v, rtol=1e-5)
    # A causal mask as a bool operand says the same.
    seen = np.tri(5, dtype=bool)
    np.testing.assert_array_equal(
        row.reference(q, k, v, scale=0.5, causal=True, layout="bhsd"),
        row.reference(q, k, v, seen, scale=0.5, causal=False, layout="bhsd"),
    )
    # One query at the end sees every key.
    np.testing.assert_allclose(
        row.reference(q[:, :, -1:], k, v, scale=0.5, causal=True, layout="bhsd"),
        expected[:, :, -1:],
        rtol=1e-5,
    )


def test_packed_product_is_the_product():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 70))
    for transposed in (False, True):
        for group, shape in ((1, (3, 5, 32)), (2, (3, 3, 32, 2))):
            given = b.T if transposed else b
            packed = ops.ROWS["pack_b"].reference(given, transposed=transposed, group=group)
            assert packed.shape == shape
            result = ops.ROWS["matmul_packed"].reference(a, packed, columns=70)
            np.testing.assert_allclose(result, a @ b)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, y, w: ([x], w), "inputs: wanted 2, got 1"),
        (lambda x, y, w: ([x[0], y], w), r"input 0: wanted rank 2 .*got shape \(2,\)"),
        (lambda x, y, w: ([x, y[:1]], w), r"input 1: wanted shape \(3,\) .*got \(1,\)"),
        (lambda x, y, w: ([x.astype(float), y], w), "input 0: wanted dtype float32, got float64"),
        (lambda x, y, w: ([np.ma.array(x), y], w), "input 0: wanted an array without a mask"),
        (lambda x, y, w: ([x, y], {"w": np.ma.array(w["w"])}), "weight 'w': .* without a mask"),
        (lambda x, y, w: ([x, y], {}), "weights: wanted 'w', got none"),
        (lambda x, y, w: ([x, y], {"w": w["w"][:1]}), r"weight 'w': wanted shape \(2,\)"),
    ],
)
def test_wrong_inputs_invalid(change, text):
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    inputs, weights = change(x, y, {"w": np.zeros(2, np.float32)})
    with pytest.raises(InputError, match=text):
        evaluate(small(), inputs, weights)


def test_gather_invalid_index():
    with pytest.raises(IndexError, match="wanted indices from 0 to 2"):
        ops.ROWS["gather"].reference(np.zeros((3, 2)), np.array([-1]), axis=0)


def test_dims_of_attributes_are_bound():
    n = Dim("n", maximum=9)
    with Graph("dims", [TensorType(DType.int32, (n,)), TensorType(DType.int32, (9,))]) as graph:
        x, table = graph.inputs
        graph.output(x + table[:n], x.reshape((1, -1)).broadcast_to((2, n)))
    x, table = np.arange(4, dtype=np.int32), np.arange(9, dtype=np.int32)
    first, second = evaluate(graph, [x, table])
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, [x, x])
