"""Products in squares of another size: the same answers from another launch."""

import cuda_cases as cases
import pytest
from test_kernels import check

from heddle.kernels import tuning
from heddle.kernels.registry import find


@pytest.mark.parametrize(
    "name",
    [
        "matmul, float32",
        "matmul transposed, float64",
        "quantized_matmul 4 bits, float32",
    ],
)
def test_small_squares(name):
    spec = cases.ALL[name]
    row = find(spec.op, "cuda")
    shipped = row.launch(spec)
    with tuning.forced({spec.op: {"square": 32}}):
        small = row.launch(spec)
        check(spec, {"d0": 33, "d1": 70})
    assert (small.block[0], shipped.block[0]) == (64, 256)
    assert small.grid != shipped.grid
