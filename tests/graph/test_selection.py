"""argmax, argmin, top_k, take_along, cumsum and range: compiled, and their mistakes."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError, HeddleError

F32, I64 = DType.float32, DType.int64
N = Dim("n", 3, 400)


def model_of(graph, weights=None):
    return InferenceSession(threads=2).load(compile(graph, "cpu:native"), weights)


def check(graph, *cases, weights=None):
    """One artifact, all the inputs, against NumPy."""
    model = model_of(graph, weights)
    for arrays in cases:
        results = zip(model.execute(*arrays), evaluate(graph, arrays, weights), strict=True)
        for found, wanted in results:
            assert found.to_numpy().dtype == wanted.dtype
            np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [F32, DType.float16, DType.uint8, I64])
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_axes_that_are_empty_when_the_model_runs(dtype, axis):
    """The least and the greatest there is, 0 for a place, and NaN for a mean; NumPy raises."""
    with Graph("empty", [TensorType(dtype, (Dim("m", 0, 9), Dim("n", 0, 9)))]) as graph:
        (x,) = graph.inputs
        reductions = [ops.argmax, ops.argmin, ops.max, ops.min, ops.sum, ops.cumsum]
        more = [ops.mean, ops.softmax] if dtype.is_float else []
        graph.output(*(op(x, axis=axis) for op in reductions + more))
    arrays = [np.ones(sizes, dtype.to_numpy()) for sizes in ((0, 3), (3, 0), (0, 0), (2, 2))]
    check(graph, *([array] for array in arrays))


def test_ranges_and_orders_of_symbolic_sizes():
    with Graph("orders", [TensorType(F32, ("m", N))]) as graph:
        (x,) = graph.inputs
        values, indices = ops.top_k(x, 3)
        down, where = ops.top_k(x, 1, axis=0)
        positions = ops.range(1, N, 2)
        graph.output(
            *(values, indices, down, where, positions, ops.range(N, dtype=F32) * 0.5),
            *(
                ops.argmax(x),
                ops.cast(ops.argmin(x * x, axis=0), F32),
                ops.range(3.0, 0, -0.5, F32),
            ),
            *(ops.cumsum(x), ops.cumsum(ops.cast(x, DType.int32), axis=0) + 1),
            *(x + ops.cast(ops.range(N), F32), ops.range(5) + 1, ops.range(4, 4)),
        )
    rng = np.random.default_rng(0)
    check(
        graph, *([rng.standard_normal((m, n), np.float32)] for m, n in ((1, 3), (4, 77), (9, 400)))
    )


@pytest.mark.parametrize(
    "ends",
    [(0.0, 0.9, 0.3), (0.0, 0.1, 0.01), (0, 1.1, 0.1), (5, -1.5, -0.5), (1, 1.0, 3), (0, 7, 2)],
)
def test_a_range_of_known_ends_has_as_many_numbers_as_that_of_numpy(ends):
    with Graph("range") as graph:
        graph.output(ops.range(*ends, DType.float64))
    (found,) = evaluate(graph, [])
    np.testing.assert_allclose(found, np.arange(*ends), rtol=1e-15)


def test_slices_and_counts_from_a_size_on():
    """As a decoder does: the last row, what is behind the past, the positions of what is new."""
    past, new = Dim("past", minimum=0, maximum=50), Dim("new", minimum=1, maximum=9)
    types = [TensorType(F32, (past, 3)), TensorType(F32, (new, 3))]
    with Graph("from", types) as graph:
        before, x = graph.inputs
        both = ops.concat(before, x)
        graph.output(
            *(both[past:], both[-1], both[past:, 1:], both[past + new - 1 :: 2], both[:past]),
            *(ops.range(past, past + new), ops.range(past, past + new, 3, DType.int32) * 2),
            ops.range(new // 2, new),
            *(ops.range(new, dtype=F32) + ops.size(past, F32), ops.size(past * new), x * x[-1:]),
        )
    rng = np.random.default_rng(0)
    check(
        graph,
        *(
            [rng.standard_normal((rows, 3), np.float32) for rows in sizes]
            for sizes in ((0, 1), (50, 9), (7, 2))
        ),
    )


def test_what_a_size_selects_of_a_weight_is_not_known_at_load():
    """Rows of positions, also where their shape is a number."""
    past, new = Dim("past", minimum=0, maximum=50), Dim("new", minimum=1, maximum=9)
    with Graph("positions", [TensorType(F32, (past, 3)), TensorType(F32, (new, 3))]) as graph:
        before, x = graph.inputs
        w = graph.add_weight(Weight("w", F32, (60, 3)))
        near = w[past : past + 4] * 2.0
        graph.output(x + w[past : past + new], near, ops.exp(w[past]), ops.size(past) + 1, before)
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((60, 3), np.float32)}
    sizes = ((0, 1), (50, 9), (7, 2))
    each = ([rng.standard_normal((rows, 3), np.float32) for rows in pair] for pair in sizes)
    check(graph, *each, weights=weights)


def test_top_k_gives_numbers_in_order():
    with Graph("top", [TensorType(F32, (7,))]) as graph:
        graph.output(*ops.top_k(graph.inputs[0], 4))
    x = np.array([1, np.nan, 3, -np.inf, 3, np.inf, 0], np.float32)
    values, indices = (result.to_numpy() for result in model_of(graph).execute(x))
    np.testing.assert_array_equal(values, [np.nan, np.inf, 3, 3])
    np.testing.assert_array_equal(indices, [1, 5, 2, 4])


def test_an_index_outside_is_an_error_of_the_run():
    with Graph("take", [TensorType(F32, (2, 3)), TensorType(I64, (2, 1))]) as graph:
        graph.output(ops.take_along(*graph.inputs))
    model, x = model_of(graph), np.zeros((2, 3), np.float32)
    with pytest.raises(HeddleError, match=r"take_along.*3"):
        model.execute(x, np.array([[0], [3]]))
    with pytest.raises(IndexError, match=r"take_along: wanted indices from 0 to 2"):
        evaluate(graph, [x, np.array([[0], [3]])])


MISTAKES = [
    (lambda x, i: ops.argmax(x, axis=2), "argmax: wanted an axis from -2 to 1, got 2"),
    (lambda x, i: ops.argmin(i > 0), "argmin: wanted a numeric dtype, got bool; cast it first"),
    (lambda x, i: ops.argmax(x[:0], axis=0),
     "argmax: wanted at least one element along axis 0, got float32[0, n] on cpu:0"),
    (lambda x, i: ops.argmax(ops.broadcast_to(x[:1, :1], (2**31, 1)), axis=0),
     "argmax: wanted at most 2147483647 elements along the axis, got float32[2147483648, 1] on "
     "cpu:0"),
    (lambda x, i: ops.top_k(ops.broadcast_to(x[:1, :1], (1, 2**31)), 1),
     "top_k_indices: wanted at most 2147483647 elements along the axis, got "
     "float32[1, 2147483648] on cpu:0"),
    (lambda x, i: ops.cumsum(x, axis=-3), "cumsum: wanted an axis from -2 to 1, got -3"),
    (lambda x, i: ops.top_k(2, 1), "top_k: wanted a tensor value, got int"),
    (lambda x, i: ops.top_k(x, 1, axis=2), "top_k: wanted an axis from -2 to 1, got 2"),
    (lambda x, i: ops.top_k(x, 4), "top_k: k: wanted at most 3, the least size of n, got 4"),
    (lambda x, i: ops.top_k(x, 0), "top_k_indices: k: wanted 1 to n, got 0"),
    (lambda x, i: ops.top_k(x, 1.5), "top_k_indices: k: wanted int, got 1.5"),
    (lambda x, i: ops.take_along(x, x),
     "take_along: indices: wanted an integer dtype, got float32"),
    (lambda x, i: ops.take_along(x, i[0]),
     "take_along: indices: wanted [2, n] except along the last axis, got [1]"),
    (lambda x, i: ops.take_along(x[0:1], i),
     "take_along: indices: wanted [1, n] except along the last axis, got [2, 1]"),
    (lambda x, i: ops.range(None, 3), "range: start: wanted a finite number or a dim, got None"),
    (lambda x, i: ops.range(0, 3, None),
     "range: step: wanted a finite number other than 0, got None"),
    (lambda x, i: ops.range(float("inf")), "range: stop: wanted a finite number or a dim, got inf"),
    (lambda x, i: ops.range(0.0, 1e308, 1e-308),
     "range: wanted a finite number of elements, got inf"),
    (lambda x, i: ops.range(0, 3, 0), "range: step: wanted a finite number other than 0, got 0"),
    (lambda x, i: ops.range(0, x),
     "range: stop: wanted a finite number or a dim, got TensorValue(float32[2, n] on cpu:0)"),
    (lambda x, i: ops.range(0.5, N), "range: start: wanted an int or a dim beside a dim, got 0.5"),
    (lambda x, i: ops.range(N, 9.0), "range: stop: wanted an int or a dim beside a dim, got 9.0"),
    (lambda x, i: ops.range(0, N, -1), "range: step: wanted a positive int beside a dim, got -1"),
    (lambda x, i: ops.range(0, N, 0), "range: step: wanted a finite number other than 0, got 0"),
    (lambda x, i: ops.range(4, N), "range: wanted start <= stop for all sizes in range, "
     "got 4 and n"),
    (lambda x, i: ops.range(N, 4), "range: wanted start <= stop for all sizes in range, "
     "got n and 4"),
    (lambda x, i: ops.size("k"), "iota: wanted dims of the graph's inputs (n), got k"),
    (lambda x, i: ops.range("k"), "iota: wanted dims of the graph's inputs (n), got k"),
    (lambda x, i: ops.range(0.5, 3), "constant: wanted a number of dtype int64, got the float 0.5"),
    (lambda x, i: ops.range(3, dtype=DType.bool), "constant: wanted a number of dtype bool, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), MISTAKES)
def test_mistakes(build, message):
    types = [TensorType(F32, (2, N)), TensorType(I64, (2, 1))]
    place = r"test_selection\.py:\d+: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        build(*graph.inputs)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("iota", [(3,), ()], {"size": Dim(2), "first": Dim(0)}, "start: wanted a scalar, got [3]"),
        ("iota", [(), (1,)], {"size": Dim(2), "first": Dim(0)}, "step: wanted a scalar, got [1]"),
        ("top_k_indices", [(4,)], {"k": 5}, "k: wanted 1 to 4, got 5"),
        ("top_k_indices", [()], {"k": 1}, "x: wanted rank 1 or more, got rank 0 (float32[]"),
    ],
)
def test_what_the_verifier_refuses(name, shapes, attrs, message):
    """Of ops that `ops` has no function for: in texts and in the compiler's own passes."""
    with pytest.raises(GraphError, match=re.escape(message)):
        ROWS[name].infer([TensorType(F32, shape) for shape in shapes], attrs)
