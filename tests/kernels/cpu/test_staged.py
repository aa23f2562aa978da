"""Rows that are staged, or read where they lie, by units of panels: tiles, chunks and claims."""

from dataclasses import replace

import numpy as np
import pytest
from native import check
from prefetches import lines_asked_for
from test_matmul_packed import product

from heddle.kernels.cpu import _staged, matmul_packed
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Step

STAGED = ["x86-64-v3", "sapphirerapids"]
"""The levels on which rows of float32 go on the stack."""


@pytest.mark.parametrize("arch", STAGED)
@pytest.mark.parametrize(
    ("k", "n"), [(31, 64), ("d1", 96), (1100, 100), (1024, 40), (513, "d2"), (0, 64)]
)
def test_staged_rows(k, n, arch):
    """Tiles of every height, chunks along k, runs, and panels and rows that are not staged.

    Rows are on the stack where k is not known, or many of 1024 (AVX2) or 8192.
    """
    spec = product("float32", (), "d0", k, n)
    for m in (6, 7, 12, 13, 14, 19, 64, 70):
        dims = {"d0": m, "d1": 530, "d2": 1100}
        check(spec, dims, arch=arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("arch", STAGED)
def test_staged_rows_far_apart(arch):
    spec = product("float32", (), "d0", 8192, 40)
    assert not _staged.in_place(spec, MACHINES[arch], matmul_packed.step_of("float32", arch))
    check(spec, {"d0": 70}, arch=arch, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("m", [13, 42, 43, 64, 77])
@pytest.mark.parametrize("k", [128, 129, 600])
def test_chunks_of_a_few_tiles(k, m):
    """They are short, and all others are not: known alone, and beside a higher block."""
    check(product("float32", (), m, k, 200), arch="sapphirerapids", rtol=1e-5, atol=1e-4)


def test_pairs_of_panels_are_claimed_together():
    spec, kernel = product("float32", (), "d0", 384, 384), find("matmul_packed", "cpu")
    launches = (kernel.launch_on(spec, MACHINES[arch]) for arch in ("cooperlake", "sapphirerapids"))
    assert [launch.grid[1] for launch in launches] == [1, 2]


def test_what_staged_rows_ask_for():
    """A block of rows asks for the next one, and for all that its epilogue reads and writes."""
    result = Operand("float32", ("d0", 192))
    body = Body((result,), (Step("add", (0, 1), "float32"),), (2,))
    spec = product("float32", (), "d0", 384, 192, epilogue=body)
    shapes = (128, 384), (6, 384, 32), (128, 192), (128, 192)
    buffers = [np.zeros(shape, np.float32) for shape in shapes]
    asked = lines_asked_for(spec, MACHINES["x86-64-v3"], buffers, (128,), 0, 6)
    assert asked[0] >= set(range(64 * 384 * 4 // 64, 128 * 384 * 4 // 64))
    for number in (2, 3):
        assert asked[number] == set(range(64 * 192 * 4 // 64))


@pytest.mark.parametrize("arch", STAGED)
def test_staged_rows_in_batches(arch):
    spec = product("float32", (2, "d0"), 20, 600, 64, batched=True)
    check(spec, {"d0": 3}, arch=arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("k", [1, 64, 515, "d1"])
def test_staged_pairs(k):
    """Both of a pair widened on the stack; beside the last one of an odd k lies zero."""
    spec = product("bfloat16", (), "d0", k, 100, pairs=True)
    for m in (4, 5, 6, 7, 11, 64, 70):
        check(spec, {"d0": m, "d1": 1027}, arch="x86-64-v3", rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_staged_rows_by_narrow_weights(dtype):
    spec = product("float32", (), "d0", 600, 70)
    a, b = spec.operands
    spec = replace(spec, operands=(a, replace(b, dtype=dtype)))
    for m in (7, 30):
        check(spec, {"d0": m}, arch="x86-64-v3", rtol=1e-5, atol=1e-4)
