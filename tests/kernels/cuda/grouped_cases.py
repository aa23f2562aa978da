"""Products of rows sorted by group, on the emulator against their reference."""

import numpy as np
import row_groups
from cuda_harness import run
from reference import evaluate

from heddle.kernels.registry import MACHINES


def check(spec, dims, offsets, machine=None, shift=0, tolerance=2e-2):
    arrays = row_groups.arrays(spec, dims, offsets)
    (found,), status = run(spec, arrays, dims, shift, MACHINES[machine] if machine else None)
    assert status == [0, 0, 0, 0]
    (wanted,) = (array.astype(np.float64) for array in evaluate(spec, dims, arrays))
    scale = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=tolerance * scale)
