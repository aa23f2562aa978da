"""Drawn tokens and penalties on the emulator, and assembled."""

from itertools import pairwise

import numpy as np
import pytest
import sampling_rows as rows
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from reference import evaluate

SPECS = {
    "drawing": rows.drawing(),
    "drawing, mask": rows.drawing(mask=True),
    "drawing, bfloat16": rows.drawing("bfloat16"),
    "penalties": rows.penalizing(),
    "penalties, bfloat16": rows.penalizing("bfloat16"),
}


@pytest.mark.parametrize("name", rows.SETTINGS)
def test_drawing(name):
    for length, ties, words in ((37, False, 1), (1000, True, None), (4200, False, None)):
        logits = rows.logits(3, length, ties=ties)
        dims, arrays = rows.step(logits, *rows.SETTINGS[name], words=words)
        spec = rows.drawing(mask=words is not None)
        (found,), status = run(spec, arrays, dims)
        assert status == [0, 0, 0, 0]
        np.testing.assert_array_equal(found, evaluate(spec, dims, arrays)[0])


def test_ties():
    """One key has all logits; of those that are kept the first."""
    logits = np.zeros((4, 999), np.float32)
    dims, arrays = rows.step(logits, 1, 0.5, 0, 301)
    (found,), _ = run(rows.drawing(), arrays, dims)
    np.testing.assert_array_equal(found, evaluate(rows.drawing(), dims, arrays)[0])
    assert found.max() < 151


def test_rows_without_an_answer():
    dims, arrays, wanted = rows.broken()
    (found,), _ = run(rows.drawing(mask=True), arrays, dims)
    for token, expected in zip(found, wanted, strict=True):
        assert token == expected if expected is not None else 0 <= token < 50


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_penalties(dtype):
    spec = rows.penalizing(dtype)
    dims, arrays = rows.penalties(dtype)
    (found,), status = run(spec, arrays, dims)
    assert status == [0, 0, 0, 0]
    (wanted,) = evaluate(spec, dims, arrays)
    for row, (start, stop) in enumerate(pairwise(arrays[3])):
        tokens = arrays[2][start:stop, 0]
        np.testing.assert_array_equal(found[row, tokens], wanted[row, tokens])


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SPECS)
def test_no_register_is_spilled(name, arch):
    check_no_spills(SPECS[name], arch)
