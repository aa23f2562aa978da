"""Det: determinants of small matrices."""

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("dtype", "kind", "rough"),
    [("float32", "float", 1e-5), ("float64", "double", 1e-12), ("float16", "float16", 1e-3)],
)
def test_determinants(size, dtype, kind, rough):
    x = RNG.uniform(-1, 1, (2, 3, size, size)).astype(dtype)
    x[0, 0, 0, 0] = 0  # nothing to divide by
    x[1, 1] = x[1, 1, :1]  # rows that are all the same
    text = f"m ({kind}[n, 3, {size}, {size}] x) => ({kind}[n, 3] y) {{ y = Det(x) }}"
    wanted = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(computed(text, x)[0], wanted, rtol=rough, atol=rough)


def test_one_matrix_gives_one_number():
    (y,) = computed("m (float[2, 2] x) => (float y) { y = Det(x) }", np.eye(2, dtype=np.float32))
    assert y.shape == ()
    assert y == 1


@pytest.mark.parametrize("shape", ["5, 5", "2, 3", "n, n"])
def test_matrices_that_are_refused(shape):
    with pytest.raises(GraphError, match="Det 'y': wanted square matrices of 1 to 4 known rows"):
        imported(f"m (float[{shape}] x) => (float y) {{ y = Det(x) }}")
