"""Einsum whose terms have a letter twice, beside NumPy's."""

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.runtime.errors import GraphError


@pytest.mark.parametrize("equation", ["ii", "iji->ij", "iij,ij->j", "iii->i", "iji,jkj->ik"])
def test_letters_that_stand_twice_are_diagonals(equation):
    rng, terms = np.random.default_rng(0), equation.split("->")[0].split(",")
    sizes = {"i": 3, "j": 4, "k": 2}
    arrays = [rng.standard_normal([sizes[c] for c in term]).astype(np.float32) for term in terms]
    inputs = ", ".join(f"float{list(a.shape)} x{at}" for at, a in enumerate(arrays))
    names = ", ".join(f"x{at}" for at in range(len(arrays)))
    wanted = np.einsum(equation, *arrays)
    shape = f"[{', '.join('ab'[: wanted.ndim])}]" if wanted.ndim else ""
    text = f'm ({inputs}) => (float{shape} y) {{ y = Einsum <equation = "{equation}"> ({names}) }}'
    np.testing.assert_allclose(computed(text, *arrays)[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_diagonal_of_unknown_sizes_is_refused():
    text = 'm (float[n, n] x) => (float y) { y = Einsum <equation = "ii"> (x) }'
    with pytest.raises(GraphError, match="wanted two axes of one known size for 'i'"):
        imported(text)
