"""Buffers on a kernel's stack, each put where memory ends: nothing is read or written behind one.

On a stack another buffer follows, so that what a kernel does there is seen in its results at most.
"""

import numpy as np
import pytest
import ragged_batches as ragged
from native import BUFFER, llvm_ir, load_apart, run
from reference import evaluate

from heddle.kernels.cpu.decode.parts import drafts
from heddle.kernels.registry import MACHINES

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


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"heads": 128, "key_heads": 128, "size": 128}, 4),
        ({"heads": 20, "key_heads": 20, "size": 1024}, 3),
        ({"heads": 128, "key_heads": 1, "size": 576, "values": 512}, 1),
    ],
)
def test_a_thread_of_2_mib_has_room(options, tokens):
    """Fewer tokens decode together, as drafts do, where a token has many heads."""
    spec = ragged.attention("paged_attention", **options)
    assert drafts(spec, tiled=False) == tokens
    sizes = [int(found[2]) for found in BUFFER.finditer(llvm_ir(spec, MACHINES["x86-64-v4"]))]
    assert sum(sizes) < 1.9 * 2**20
