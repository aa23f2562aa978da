"""What comes before and after a decoder's layers, compiled for CUDA as whole programs."""

import numpy as np
from cuda_program import EmulatedModel

from heddle.graph import Dim, DType, Graph, TensorType, ops
from heddle.graph.reference import evaluate

F32, I64 = DType.float32, DType.int64


def test_sampling():
    types = [TensorType(F32, ("rows", 50)), TensorType(I64, ("rows", 2))]
    with Graph("sample", types) as graph:
        logits, seeds = graph.inputs
        tokens = ops.sample(logits, seeds, 0.7, k=12, top_p=0.9, min_p=0.02)
        graph.output(tokens, ops.argmax(logits, axis=0), ops.cumsum(logits, axis=0))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((9, 50)).astype(np.float32), rng.integers(0, 99, (9, 2))]
    found, status = EmulatedModel(graph, {})(*arrays)
    assert status == [0, 0, 0, 0]
    for array, wanted in zip(found, evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


def test_positions():
    """Angles computed in the graph from counted positions, then turned."""
    sequence = Dim("sequence", 1, 9)
    with Graph("positions", [TensorType(F32, ("batch", sequence, 2, 8))]) as graph:
        (x,) = graph.inputs
        rates = ops.pow(10000.0, ops.range(4, dtype=F32) * -0.25)
        angles = ops.unsqueeze(ops.range(sequence, dtype=F32), 1) * rates
        cos, sin = (ops.unsqueeze(table, 1) for table in (ops.cos(angles), ops.sin(angles)))
        graph.output(ops.rope(x, cos, sin))
    x = np.random.default_rng(0).standard_normal((2, 7, 2, 8)).astype(np.float32)
    (found,), _ = EmulatedModel(graph, {})(x)
    np.testing.assert_allclose(found, evaluate(graph, [x])[0], rtol=1e-5, atol=1e-5)
