"""Rows that are staged, or read where they lie, on AVX2: tiles and chunks."""

from dataclasses import replace

import numpy as np
import pytest
from native import check
from prefetches import lines_asked_for
from test_matmul_packed import product

from heddle.kernels.cpu import matmul_packed
from heddle.kernels.cpu.products import staged
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Body, Operand, Step

ARCH = "x86-64-v3"


@pytest.mark.parametrize(
    ("k", "n"), [(31, 64), ("d1", 96), (1100, 100), (1024, 40), (513, "d2"), (0, 64)]
)
def test_staged_rows(k, n):
    """Tiles of every height, chunks along k, runs, and panels and rows that are not staged.

    Rows are on the stack where k is not known, or many of 1024.
    """
    spec = product("float32", (), "d0", k, n)
    for m in (6, 7, 12, 13, 14, 19, 64, 70):
        dims = {"d0": m, "d1": 530, "d2": 1100}
        check(spec, dims, arch=ARCH, rtol=1e-5, atol=1e-4)


def test_staged_rows_far_apart():
    spec = product("float32", (), "d0", 8192, 40)
    assert not staged.in_place(spec, matmul_packed.step_of("float32", MACHINES[ARCH]))
    check(spec, {"d0": 70}, arch=ARCH, rtol=1e-5, atol=1e-3)


def test_what_staged_rows_ask_for():
    """A block of rows asks for the next one, and for all that its epilogue reads and writes."""
    result = Operand("float32", ("d0", 192))
    body = Body((result,), (Step("add", (0, 1), "float32"),), (2,))
    spec = product("float32", (), "d0", 384, 192, epilogue=body)
    shapes = (128, 384), (6, 384, 32), (128, 192), (128, 192)
    buffers = [np.zeros(shape, np.float32) for shape in shapes]
    asked = lines_asked_for(spec, MACHINES[ARCH], buffers, (128,), 0, 6)
    assert asked[0] >= set(range(64 * 384 * 4 // 64, 128 * 384 * 4 // 64))
    for number in (2, 3):
        assert asked[number] == set(range(64 * 192 * 4 // 64))


def test_staged_rows_in_batches():
    spec = product("float32", (2, "d0"), 20, 600, 64, batched=True)
    check(spec, {"d0": 3}, arch=ARCH, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("k", [1, 64, 515, "d1"])
def test_staged_pairs(k):
    """Both of a pair widened on the stack; beside the last one of an odd k lies zero."""
    spec = product("bfloat16", (), "d0", k, 100, pairs=True)
    for m in (4, 5, 6, 7, 11, 64, 70):
        check(spec, {"d0": m, "d1": 1027}, arch=ARCH, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_staged_rows_by_narrow_weights(dtype):
    spec = product("float32", (), "d0", 600, 70)
    a, b = spec.operands
    spec = replace(spec, operands=(a, replace(b, dtype=dtype)))
    for m in (7, 30):
        check(spec, {"d0": m}, arch=ARCH, rtol=1e-5, atol=1e-4)
