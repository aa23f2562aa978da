"""A 16-bit result is rounded before the epilogue sees it, as if it had been stored."""

import ml_dtypes
import numpy as np
import pytest
from cuda_program import EmulatedModel

from heddle.graph import DType, Graph, TensorType, ops

SHAPES = {
    "softmax": [(3, 40)],
    "rms_norm": [(3, 40), (40,)],
    "layer_norm": [(3, 40), (40,), (40,)],
    "cumsum": [(3, 40)],
    "rope": [(3, 8), (3, 4), (3, 4)],
    "attention": [(1, 1, 5, 8)] * 3,
    "matmul": [(4, 8), (8, 16)],
    "mean": [(3, 40)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_widened_behind_an_op_has_its_bits(name):
    types = [TensorType(DType.bfloat16, shape) for shape in SHAPES[name]]
    with Graph(name, types) as graph:
        value = getattr(ops, name)(*graph.inputs)
        graph.output(ops.cast(value, DType.float32) * 1.0, ops.cast(value, DType.float32) + 0.25)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(type.shape.static).astype(ml_dtypes.bfloat16) for type in types]
    model = EmulatedModel(graph, {})
    assert len(model.program.kernels) == 1
    (plain, more), _ = model(*arrays)
    np.testing.assert_array_equal(plain, plain.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(more, plain + np.float32(0.25))
