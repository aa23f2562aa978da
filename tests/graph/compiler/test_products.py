"""Products of sizes that are multiplied in different ways, as whole graphs."""

import ml_dtypes
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.runtime import InferenceSession

SIZES = (1, 2, 3, 8, 9, 12, 13, 17, 33, 65, 97)


@st.composite
def products(draw):
    """Sizes, whether each side is transposed, batches, what is known when, and dtype."""
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    turned = draw(st.booleans()), draw(st.booleans())
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    kind = draw(st.sampled_from(["late", "weight", "symbolic rows"]))
    return (m, k, n), turned, batch, kind, draw(st.sampled_from(["float32", "float64", "bfloat16"]))


def operand(rng, shape, dtype):
    return rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@settings(max_examples=40, deadline=None, database=None)
@given(products())
@example(((97, 65, 2), (True, False), (), "late", "float32"))
@example(((97, 65, 1), (True, False), (2,), "late", "float32"))
@example(((65, 1, 33), (False, True), (2,), "late", "bfloat16"))
@example(((17, 33, 8), (False, False), (), "symbolic rows", "float32"))
@example(((33, 33, 33), (False, True), (), "weight", "float32"))
def test_a_product_with_a_bias_is_exact(case):
    """Of small integers, whose products and sums every dtype holds."""
    (m, k, n), turned, batch, kind, dtype = case
    rng = np.random.default_rng(m * 10000 + k * 100 + n)
    a = operand(rng, (*batch, *((k, m) if turned[0] else (m, k))), dtype)
    right = (n, k) if turned[1] else (k, n)
    b = operand(rng, right if kind == "weight" else (*batch, *right), dtype)
    bias = operand(rng, (n,), dtype)
    wanted = (a.swapaxes(-1, -2) if turned[0] else a).astype(np.float64)
    wanted = wanted @ (b.swapaxes(-1, -2) if turned[1] else b).astype(np.float64)
    rows = [*a.shape]
    if kind == "symbolic rows":
        rows[-1 if turned[0] else -2] = Dim("rows", 1, 200)
    types = [TensorType(DType[dtype], tuple(rows))]
    types += [TensorType(DType[dtype], b.shape)] * (kind != "weight")
    with Graph("product", types) as graph:
        x = graph.inputs[0].tensor
        w = graph.add_weight(Weight("w", DType[dtype], b.shape)) if kind == "weight" else None
        y = graph.inputs[1].tensor if w is None else w
        c = graph.add_weight(Weight("bias", DType[dtype], (n,)))
        product = turn(x, turned[0]) @ turn(y, turned[1])
        graph.output(ops.relu(ops.cast(product, DType.float64) + ops.cast(c, DType.float64)))
    weights = {"bias": bias} | ({} if w is None else {"w": b})
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)
    (found,) = model.execute(*([a, b] if w is None else [a]))
    exact = wanted.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else wanted
    wanted = np.maximum(exact.astype(np.float64) + bias.astype(np.float64), 0)
    np.testing.assert_array_equal(found.to_numpy(), wanted)


def turn(x, turned):
    """The last two axes exchanged."""
    return ops.transpose(x, -1, -2) if turned else x
