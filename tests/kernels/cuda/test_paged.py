"""ragged_attention, paged_attention and paged_write on the emulator, and assembled."""

import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from reference import evaluate

CASES = {
    "ragged": ragged.attention("ragged_attention", window=5),
    "ragged, every key": ragged.attention("ragged_attention", causal=False, size=6),
    "paged": ragged.attention("paged_attention", heads=3, key_heads=1, size=40, block=3),
    "paged, bfloat16": ragged.attention("paged_attention", "bfloat16", heads=12),
    "paged, cache in float16": ragged.attention("paged_attention", cache="float16", window=9),
    "paged, cache of 8 bits": ragged.attention("paged_attention", "bfloat16", "float8_e4m3fn"),
    "ragged, keys of 8 bits": ragged.attention("ragged_attention", cache="float8_e5m2", window=4),
    "writing": ragged.writing(heads=3, size=21),
    "writing bfloat16": ragged.writing("bfloat16"),
}
ROWS = [1, 5, 0, 3], [7, 5, 3, 40]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, shift):
    spec = CASES[name]
    dims, arrays = ragged.batch(spec, *ROWS)
    (found,), status = run(spec, arrays, dims, shift)
    assert status == [0, 0, 0, 0]
    if spec.op == "paged_write":
        # The rest of the result is what it was before.
        rows, size = arrays[2:], arrays[0].shape[1]
        places = [
            (rows[2][row, position // size], position % size)
            for row, (count, length) in enumerate(zip(*ROWS, strict=True))
            for position in range(length - count, length)
        ]
        found = np.stack([found[place] for place in places])
        np.testing.assert_array_equal(found, arrays[1])
        return
    (wanted,) = evaluate(spec, dims, arrays)
    step = 2e-2 if spec.result.dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float64), rtol=step, atol=step
    )


@pytest.mark.parametrize("name", ["paged", "writing"])
def test_what_is_wrong_is_reported(name):
    spec = CASES[name]
    block = spec.operands[0 if name == "writing" else 1].shape[1]
    dims, arrays = ragged.batch(spec, [2, 3], [4, 7])
    held = block * dims["d4"]
    for number, place, value, status in (
        (-3, 2, 1, [2, 1, 5, 2]),
        (-2, 1, held + 1, [1, held + 1, held + 1, 0]),
        (-1, (1, (7 - 1) // block), 99, [1, 99, dims["d1"], 0]),
    ):
        changed = [array.copy() for array in arrays]
        changed[number][place] = value
        assert run(spec, changed, dims)[1] == status


@pytest.mark.parametrize("length", [4, 0])
def test_more_new_tokens_than_the_row_is_long(length):
    spec = CASES["writing"]
    dims, arrays = ragged.batch(spec, [length + 1], [length + 1])
    arrays[3][0] = length
    assert run(spec, arrays, dims)[1] == [1, -1, length, 0]


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("size", [128, 256, 1024])
def test_no_register_is_spilled(size, arch):
    specs = [ragged.attention("paged_attention", "bfloat16", heads=8, size=size), ragged.writing()]
    for spec in (*specs, ragged.attention("ragged_attention", size=size)):
        check_no_spills(spec, arch)
