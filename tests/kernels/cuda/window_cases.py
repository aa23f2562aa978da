"""How convolutions and pooling are checked on the emulator."""

import numpy as np
from cuda_harness import run
from reference import evaluate, numpy_dtype, shape

DIMS = {"d0": 5, "d1": 7}
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 4e-3}


def check(spec, shift=0, dims=DIMS):
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(shape(o.shape, dims)).astype(numpy_dtype(o.dtype)) for o in spec.inputs
    ]
    (found,), status = run(spec, arrays, dims, shift)
    assert status == [0, 0, 0, 0]
    (wanted,) = (array.astype(np.float64) for array in evaluate(spec, dims, arrays))
    tolerance = TOLERANCE[spec.result.dtype]
    scale = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(found.astype(np.float64), wanted, tolerance, tolerance * scale)
