"""rope: compiled as models use it, and its mistakes."""

import re

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

F32, F64, I64 = DType.float32, DType.float64, DType.int64
HEADS, SIZE, LONGEST = 3, 16, 64


def angles():
    frequencies = 10000.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    turns = np.outer(np.arange(LONGEST), frequencies)
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_distances_alone(interleaved):
    """RoFormer's property, with rows of tables gathered by the position of each token."""
    sequence = Dim("sequence", 1, LONGEST)
    types = [
        TensorType(F32, ("batch", sequence, HEADS, SIZE)),
        TensorType(I64, ("batch", sequence)),
    ]
    with Graph("rope", types) as graph:
        x, positions = graph.inputs
        tables = [ops.gather(graph.constant(table), positions, 0) for table in angles()]
        cos, sin = (ops.unsqueeze(table, 2) for table in tables)
        graph.output(ops.rope(x, cos, sin, interleaved=interleaved) * 2.0)
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"))
    rng = np.random.default_rng(0)
    x = np.tile(rng.standard_normal((2, 1, HEADS, SIZE), np.float32), (1, 7, 1, 1))
    positions = np.stack([np.arange(7), np.arange(7) * 5 + 20])
    (result,) = model.execute(x, positions)
    found = result.to_numpy()
    np.testing.assert_allclose(found, evaluate(graph, [x, positions])[0], rtol=1e-5, atol=1e-5)
    scores = np.einsum("bshd,bthd->bhst", found, found)
    for distance in range(7):
        same = np.diagonal(scores, distance, -2, -1)
        np.testing.assert_allclose(
            same, np.broadcast_to(same[..., :1], same.shape), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("interleaved", [False, True])
def test_what_is_behind_the_turned_part_stays(interleaved):
    """Bit for bit, numbers that are none, too, which arithmetic with a zero would not leave."""
    types = [TensorType(F32, shape) for shape in ((3, 12), (3, 4), (3, 4))]
    with Graph("rope", types) as graph:
        x, cos, sin = graph.inputs
        graph.output(ops.rope(x, cos, sin, interleaved=interleaved))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(type.shape.static, np.float32) for type in types]
    arrays[0][:, 8:] = [np.inf, -np.inf, -0.0, np.nan]
    (wanted,) = evaluate(graph, arrays)
    parts = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(4), slice(4, 8))
    a, b = (arrays[0][:, part] for part in parts)
    np.testing.assert_array_equal(wanted[:, parts[0]], a * arrays[1] - b * arrays[2])
    np.testing.assert_array_equal(wanted[:, parts[1]], b * arrays[1] + a * arrays[2])
    (result,) = InferenceSession(threads=1).load(compile(graph, "cpu:native")).execute(*arrays)
    found = result.to_numpy()
    assert found[:, 8:].tobytes() == wanted[:, 8:].tobytes() == arrays[0][:, 8:].tobytes()
    np.testing.assert_allclose(found[:, :8], wanted[:, :8], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("columns", "left"), [(8, 8), (10, 10), (6, 16), (9, 16)])
def test_what_is_cut_off_behind_the_turned_part_is_not_copied(columns, left):
    """But all that is turned is needed, in an even number of columns."""
    with Graph("rope", [TensorType(F32, shape) for shape in ((3, 16), (3, 4), (3, 4))]) as graph:
        graph.output(ops.rope(*graph.inputs)[..., :columns])
    module = pipeline.lower(graph.module, "cpu", stop_after="cut")
    (rope,) = (op for op in m.operations(module) if m.name(op) == "rope")
    assert m.tensor(rope.results[0]).shape == (3, left)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 5), (2,), (2,)], "x: wanted an even number as the last dim, got 5"),
        ([(2, "n"), (2,), (2,)], "x: wanted an even number as the last dim, got n"),
        ([(), (2,), (2,)], "x: wanted rank 1 or more, got rank 0"),
        ([(2, 4), (3,), (3,)], "cos: wanted 1 to 2 columns, got [3]"),
        ([(2, 4), (2,), ()], "sin: wanted 1 to 2 columns, got []"),
        ([(2, 4), (2, 0), (2, 0)], "cos: wanted 1 to 2 columns, got [2, 0]"),
        ([(2, 4), (2,), ("n",)], "sin: wanted 1 to 2 columns, got [n]"),
        ([(2, 4), (2,), (1,)], "wanted cos and sin of one shape, got [2] and [1]"),
        ([(2, 4), (1, 2, 1), (1, 2, 1)], "cos: wanted a shape that broadcasts to [2, 1], got "),
        ([(2, 4), (2,), (1, 2)], "wanted cos and sin of one shape, got [2] and [1, 2]"),
        ([(1, 4), (2, 2), (2, 2)], "cos: wanted a shape that broadcasts to [1, 2], got [2, 2]"),
    ],
)
def test_wrong_shapes(shapes, message):
    types = [TensorType(F32, shape) for shape in shapes]
    place = r"test_rotary\.py:\d+: rope: "
    with pytest.raises(GraphError, match=place + re.escape(message)), Graph("g", types) as graph:
        ops.rope(*graph.inputs)


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ((I64, F32, F32), "wanted a floating-point dtype, got int64; cast it first"),
        ((F32, F64, F32), "cos: wanted float32, got float64; cast it first"),
        ((F64, F32, I64), "sin: wanted float32 or float64, got int64; cast it first"),
        ((F64, F32, F64), "wanted cos and sin of one dtype, got float32 and float64"),
    ],
)
def test_wrong_dtypes(dtypes, message):
    types = [TensorType(d, (s,)) for d, s in zip(dtypes, (4, 2, 2), strict=True)]
    with pytest.raises(GraphError, match=re.escape(f"rope: {message}")), Graph("g", types) as graph:
        ops.rope(*graph.inputs)
