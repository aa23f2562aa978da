"""What attention of ragged rows in AMX tiles is held to, emulated, whichever kernel computes it."""

import amx_emulation
import numpy as np
import ragged_batches as ragged
from native import check, load_apart, run

ARCH = "sapphirerapids"


def close(spec, counts, lengths):
    """Exponentials are rounded to bfloat16; everything is multiplied in tiles."""
    dims, arrays = ragged.batch(spec, counts, lengths)
    found = check(spec, dims, arrays, ARCH, rtol=1e-5, atol=1e-3)
    assert amx_emulation.products
    return found


def a_row_alone_has_its_bits(spec, counts, lengths):
    """The first row, of a token, by itself and among others; keys are in blocks."""
    dims, arrays = ragged.batch(spec, counts, lengths)
    (all_of_them,), _ = run(spec, arrays, dims, ARCH)
    query, key, value, _, lengths, table = arrays
    alone = [query[:1], key, value, np.array([0, 1]), lengths[:1], table[:1]]
    (found,), _ = run(spec, alone, dims | {"d0": 1, "d2": 2, "d3": 1}, ARCH)
    assert found.tobytes() == all_of_them[:1].tobytes()


def stays_in_its_buffers(spec, counts, lengths):
    """Each of the stack ends where memory ends."""
    dims, arrays = ragged.batch(spec, counts, lengths)
    (found,), _ = run(spec, arrays, dims, ARCH, load=load_apart)
    (wanted,), _ = run(spec, arrays, dims, ARCH)
    assert found.tobytes() == wanted.tobytes()
