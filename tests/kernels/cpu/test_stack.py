"""Buffers on a kernel's stack, each put where memory ends: nothing is read or written behind one.

On a stack another buffer follows, so that what a kernel does there is seen in its results at most.
"""

import numpy as np
import pytest
import ragged_batches as ragged
from native import load_apart, run
from reference import evaluate

CROWD = {"heads": 182, "size": 96, "values": 40}
"""So many queries of a key head that rows that decode are multiplied as prompts are."""


@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("options", [{"size": 16}, {"size": 200, "heads": 14}, CROWD])
def test_ragged_attention(options, arch):
    """There may be more steps beside which the next keys are asked for than lines of these."""
    spec = ragged.attention("ragged_attention", **options)
    dims, arrays = ragged.batch(spec, [24, 1], [300, 300])
    (found,), _ = run(spec, arrays, dims, arch, load=load_apart)
    (wanted,) = evaluate(spec, dims, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
