"""Products of long rows: a chunk of them, on the stack, by all panels of a run."""

import pytest
import row_groups
from native import check, size
from test_integer_matmul_packed import exact
from test_integer_matmul_packed import product as integer_product
from test_matmul_packed import product

from heddle.kernels.cpu.products import deep
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Step

LEVEL, DOTS = "x86-64-v4", "cooperlake"


@pytest.mark.parametrize(("k", "n"), [(4096, 33), (4100, 1100), (5120, 64)])
def test_heights_runs_and_chunks(k, n):
    """One tile, which is not put on the stack, and several; 1100 columns are more than a run."""
    spec = product("float32", (), "d0", k, n)
    assert deep.fits(spec, MACHINES[LEVEL])
    for m in (0, 1, 12, 13, 64, 70, 150):
        check(spec, {"d0": m}, arch=LEVEL, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("k", [8192, 8193])
def test_bfloat16(k):
    """The last pair of an odd k has zero beside it, whatever lies behind the row."""
    spec = product("bfloat16", (), "d0", k, 100, pairs=True)
    assert deep.fits(spec, MACHINES[DOTS])
    for m in (5, 13, 77):
        check(spec, {"d0": m}, arch=DOTS, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("arch", [LEVEL, DOTS])
def test_integers(arch):
    spec = integer_product((), "d0", 16387, 40)
    assert deep.fits(spec, MACHINES[arch])
    for m in (3, 30, 65):
        exact(spec, {"d0": m}, arch)


def test_batches_and_an_epilogue():
    biased = Body((Operand("float32", (70,)),), (Step("add", (0, 1), "float32"),), (2,))
    for body in (None, biased):
        spec = product("float32", (2,), 20, 4200, 70, batched=True, epilogue=body)
        assert deep.fits(spec, MACHINES[LEVEL])
        check(spec, arch=LEVEL, rtol=1e-5, atol=1e-3)


def test_rows_of_no_group_are_zero():
    spec = row_groups.multiplying("grouped_matmul_packed", "float32", 4100, 40)
    assert deep.fits(spec, MACHINES[LEVEL])
    for split in row_groups.SPLITS.values():
        check(spec, {}, row_groups.arrays(spec, {}, split), LEVEL, rtol=1e-5, atol=1e-3)


def test_who_takes_them():
    """Known long rows of one dtype, on AVX-512 without tiles; one thread takes several tasks."""
    long, machine = product("float32", (), "d0", 4096, 64), MACHINES[LEVEL]
    together = find("matmul_packed", "cpu").launch_on(long, machine).grid[1]
    assert [size(together, {"d0": m}) for m in (0, 1, 23, 64, 500)] == [1, 1, 1, 5, 8]
    for other in ("x86-64-v3", "sapphirerapids"):
        assert not deep.fits(long, MACHINES[other])
    for k, m in ((4095, "d0"), ("d1", "d0"), (4096, 12)):
        assert not deep.fits(product("float32", (), m, k, 64), machine)
    assert not deep.fits(product("bfloat16", (), "d0", 8192, 64), machine)  # widened


def test_rows_keep_apart_on_the_stack():
    """An odd number of lines: all rows of a block lie in other sets of a cache."""
    sets = {row * deep.ROW // 64 % 64 for row in range(deep.BLOCK)}
    assert len(sets) == deep.BLOCK
