"""Tiles of transpose: elements of 16 bits move in pairs where sizes are even, else one by one."""

import cuda_cases as cases
import numpy as np
import pytest
from cuda_harness import run_call
from reference import numpy_dtype


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("sizes", [(130, 70), (64, 128), (66, 3), (1, 70), (2, 2)])
def test_pairs(sizes, shift):
    rows, columns = sizes
    x, turned = (cases.tensor("bfloat16", 2, *shape) for shape in (("d0", "d1"), ("d1", "d0")))
    spec = cases.plain("transpose", [x], turned, permutation=(0, 2, 1))
    array = np.random.default_rng(0).standard_normal((2, rows, columns), np.float32)
    arrays = [array.astype(numpy_dtype("bfloat16"))]
    (found,), _ = run_call(spec, arrays, {"d0": rows, "d1": columns}, shift=shift)
    np.testing.assert_array_equal(found, arrays[0].transpose(0, 2, 1))
