"""grouped_matmul_packed and group_rows."""

from dataclasses import replace

import amx_emulation
import numpy as np
import pytest
import row_groups
from native import ARCHS, DOTS, check, run
from row_groups import SPLITS, multiplying, sorting

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand

PACKED = "grouped_matmul_packed"


@pytest.mark.parametrize("split", SPLITS)
def test_splits(split):
    spec = multiplying(PACKED, "float32", 70, 40)
    check(spec, {}, row_groups.arrays(spec, {}, SPLITS[split]), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("arch", [*DOTS, "sapphirerapids"])
def test_bfloat16_and_an_epilogue(arch):
    body = row_groups.gated("bfloat16", "d0", "d1")
    spec = multiplying(PACKED, "bfloat16", "d2", "d1", "d0", "d3", "int32", body)
    dims = {"d0": 90, "d1": 70, "d2": 35, "d3": 3}
    arrays = row_groups.arrays(spec, dims, [5, 5, 80, 84])
    check(spec, dims, arrays, arch, rtol=3e-2, atol=2e-5)


def test_float32_in_tiles():
    """Blocks of one group each, of many rows and of few, and one of no group."""
    spec = multiplying(PACKED, "float32", 70, 40, "d2", 4)
    for offsets in ([0, 20, 20, 25, 120], [0, 0, 5, 90, 120]):
        arrays = row_groups.arrays(spec, {"d2": 120}, offsets)
        check(spec, {"d2": 120}, arrays, "sapphirerapids", rtol=1e-5, atol=1e-4)
        assert amx_emulation.products


@pytest.mark.parametrize("arch", ARCHS)
def test_no_rows_and_one_row(arch):
    spec = multiplying(PACKED, "float32", 300, 33, "d0", 2)
    for rows, offsets in ((0, [0, 0, 0]), (1, [0, 0, 1])):
        dims = {"d0": rows}
        check(spec, dims, row_groups.arrays(spec, dims, offsets), arch, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("offsets", "status"),
    [([0, 9, 4, 20, 30], [2, 4, 150, 9]), ([0, 1, 2, 3, 151], [2, 151, 150, 3]),
     ([-1, 1, 2, 3, 4], [2, 1, 150, -1])],
)  # fmt: skip
def test_wrong_offsets_are_reported(offsets, status):
    spec = multiplying(PACKED, "float32", 8, 8)
    _, found = run(spec, row_groups.arrays(spec, {}, offsets))
    assert list(found) == status


@pytest.mark.parametrize("kind", ["offsets", "order", "places"])
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_sorting(kind, dtype):
    rng = np.random.default_rng(0)
    for rows in (0, 1, 300):
        chosen = rng.integers(0, 9, rows).astype(dtype)
        check(sorting(kind, 9, dtype), {"d0": rows}, [chosen])


@pytest.mark.parametrize("chosen", [-1, 3])
def test_a_wrong_group_is_reported(chosen):
    (order,), status = run(sorting("order", 3), [np.array([0, chosen, 2])], {"d0": 3})
    assert list(status) == [1, chosen, 3, 0]
    assert sorted(order) == [0, 1, 2]
    _, status = run(sorting("order", 3, "uint64"), [np.uint64([0, chosen % 2**64, 2])], {"d0": 3})
    assert list(status) == [3, chosen, 3, 0]


def test_refusals():
    spec = multiplying(PACKED, "float32", 8, 8, offsets="uint8")
    assert find(PACKED, "cpu").supports(spec) == "offsets: wanted int32 or int64, got uint8"
    supports = find("group_rows", "cpu").supports
    assert supports(sorting("order", 3, "float32")) == "group_rows of float32"
    rows = Operand("int64", ("d0",))
    spec = replace(sorting("order", 3), prologue=Body((rows,), (), (0,)))
    assert supports(spec) == "it takes no prologue and no epilogue"
