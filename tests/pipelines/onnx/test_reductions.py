"""Reductions that no kernel computes as they stand."""

import numpy as np
import pytest
from onnx_texts import computed, imported, ops_of

from heddle.runtime.errors import GraphError


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_a_product_takes_few_steps(size):
    text = f"m (float[2, {size}] x) => (float[2] y) {{ y = ReduceProd <axes = [1]> (x) }}"
    x = np.random.default_rng(0).uniform(0.9, 1.1, (2, size)).astype(np.float32)
    np.testing.assert_allclose(
        computed(text, x, opset=13)[0], x.prod(axis=1, keepdims=True), rtol=1e-5
    )
    assert len(ops_of(imported(text, 13))) < 50


def test_a_product_of_a_size_that_is_not_known():
    text = "m (float[n] x) => (float y) { y = ReduceProd <keepdims = 0> (x) }"
    with pytest.raises(
        GraphError, match=r"known size along axis 0 \(give it by --dim\), got \[n\]"
    ):
        imported(text)


NOTHING = {  # what ONNX says of no elements
    "ReduceMax": {"float": -np.inf, "int8": -128, "uint64": 0, "bool": False},
    "ReduceMin": {"float": np.inf, "int8": 127, "uint64": 2**64 - 1, "bool": True},
    "ReduceLogSumExp": {"float": -np.inf},
}


@pytest.mark.parametrize("kind", NOTHING)
def test_reductions_of_nothing(kind):
    for dtype, value in NOTHING[kind].items():
        text = f"""m ({dtype}[n, 0, 4] x) => ({dtype}[n, p, q] y) <int64[2] axes = {{1, 2}}>
        {{ y = {kind} (x, axes) }}"""
        (found,) = computed(text, np.zeros((2, 0, 4), dtype.replace("float", "float32")))
        np.testing.assert_array_equal(found, np.full((2, 1, 1), value), strict=False)
