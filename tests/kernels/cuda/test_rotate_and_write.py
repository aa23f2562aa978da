"""rotate_and_write on the emulator, and assembled."""

import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_harness import run

CASES = {
    "halves": ragged.rotating(),
    "neighbours": ragged.rotating(size=40, interleaved=True),
    "odd halves": ragged.rotating(size=22, key_heads=1),
    "rounded to bfloat16": ragged.rotating(cache="bfloat16", heads=4, size=128),
    "neighbours of bfloat16": ragged.rotating("bfloat16", interleaved=True),
    "a part": ragged.rotating(cache="bfloat16", size=128, part=96),
    "a part, neighbours": ragged.rotating(size=64, part=32, interleaved=True),
    "a part that is no whole vector": ragged.rotating("bfloat16", size=40, part=14),
    "a part, and others that are none": ragged.rotating(size=44, part=16),
}
ROWS = [1, 5, 0, 3], [7, 5, 3, 20]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name, shift):
    """Reading bytes of the caches that nobody wrote would be an error of the emulator."""
    spec = CASES[name]
    dims, arrays = ragged.rotation(spec, *ROWS)
    (keys, values, queries), status = run(spec, arrays, dims, shift)
    assert status == [0, 0, 0, 0]
    wanted = ragged.rotated(spec, arrays)
    offsets, lengths, table = arrays[-3:]
    size = arrays[0].shape[1]
    step = 2**-8 if spec.result.dtype == "bfloat16" else 1e-6
    places = [
        (table[row, position // size], position % size)
        for row, length in enumerate(lengths)
        for position in range(length - (offsets[row + 1] - offsets[row]), length)
    ]
    for found, exact in ((keys, wanted[0]), (values, wanted[1])):
        found, exact = (np.stack([cache[place] for place in places]) for cache in (found, exact))
        np.testing.assert_allclose(*(x.astype(np.float32) for x in (found, exact)), step, 1e-6)
    exact = wanted[2].astype(np.float32)
    np.testing.assert_allclose(queries.astype(np.float32), exact, step, 1e-6)


@pytest.mark.parametrize(
    ("number", "place", "value", "status"),
    [(-3, 2, 1, [2, 1, 5, 2]), (-2, 1, 400, [1, 400, 0, 0]), (-1, (1, 1), 99, [1, 99, 0, 0])],
)
def test_what_is_wrong_is_reported(number, place, value, status):
    spec = CASES["halves"]
    dims, arrays = ragged.rotation(spec, [2, 3], [4, 7])
    arrays[number][place] = value
    status[2] = status[2] or {-2: 4 * dims["d4"] + 1, -1: dims["d1"]}[number]
    assert run(spec, arrays, dims)[1] == status


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_register_is_spilled(name, arch):
    text = check_no_spills(CASES[name], arch)
    if name == "rounded to bfloat16":
        assert "ld.global.v4.b32" in text
