"""grouped_matmul and group_rows on the emulator."""

import numpy as np
import pytest
import row_groups
import wgmma_registers
from assembler import check_no_spills, needs_assembler
from cuda_harness import run
from grouped_cases import check
from reference import evaluate, size
from row_groups import SPLITS, multiplying, sorting

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Spec
from heddle.kernels.tuning import forced

OP = "grouped_matmul"


@pytest.mark.parametrize("split", SPLITS)
def test_multiply_adds(split):
    with forced({OP: {"square": 32}}):
        spec = multiplying(OP, "float32", 6, 12, 50, transposed=False)
        check(spec, {}, np.array(SPLITS[split]) // 3, None, 0, 1e-5)


@pytest.mark.parametrize(("machine", "transposed"), [("sm_80", False), ("sm_90a", True)])
def test_tiles_strips_and_what_chooses(transposed, machine):
    """Up to 16 rows for each group, up to 64, and more."""
    body = row_groups.gated("bfloat16", "d0", 24)
    spec = multiplying(OP, "bfloat16", 40, 24, "d0", 2, "int32", body, transposed=transposed)
    for rows, offsets in ((20, [0, 3, 20]), (40, [2, 30, 39]), (140, [0, 132, 138])):
        check(spec, {"d0": rows}, offsets, machine)


def test_groups_of_run_time_and_more_than_a_warp_looks_at():
    spec = multiplying(OP, "float32", "d0", "d1", "d2", "d3", transposed=True)
    with forced({OP: {"square": 32}}):
        dims = {"d0": 6, "d1": 8, "d2": 4, "d3": 40}
        check(spec, dims, [0] * 36 + [1, 1, 3, 3, 4], None, 0, 1e-5)


def test_unaligned():
    check(multiplying(OP, "bfloat16", 40, 24, 20, 3, transposed=False), {}, [0, 9, 9, 20], shift=1)


def test_wrong_offsets_are_reported():
    spec = multiplying(OP, "float32", 8, 8, transposed=False)
    _, status = run(spec, row_groups.arrays(spec, {}, [0, 9, 9, 9, 160]), {})
    assert status == [2, 160, 150, 9]


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("transposed", [False, True])
def test_nothing_is_spilled(transposed, arch):
    spec = multiplying(OP, "bfloat16", 4096, 14336, "d0", 8, transposed=transposed)
    text = check_no_spills(spec, arch)
    assert bool(wgmma_registers.check(text)) == (arch == "sm_90a")


def test_launch_does_not_depend_on_offsets():
    for rows, blocks in ((0, 1), (3, 3 * 2), (128, 8), (4096, (4096 // 128 + 6) * 1)):
        spec = multiplying(OP, "bfloat16", 64, 64, "d0", 4, transposed=True)
        assert size(find(OP, "cuda").launch(spec).grid[0], {"d0": rows}) == blocks


@pytest.mark.parametrize("kind", ["offsets", "order", "places"])
def test_sorting(kind):
    rng = np.random.default_rng(0)
    for rows in (0, 300):
        arrays = [rng.integers(0, 3, rows).astype(np.int32)]
        spec = sorting(kind, 3, "int32")
        (found,), status = run(spec, arrays, {"d0": rows})
        assert status == [0, 0, 0, 0]
        np.testing.assert_array_equal(found, evaluate(spec, {"d0": rows}, arrays)[0])


@pytest.mark.parametrize("chosen", [-1, 3])
def test_a_wrong_group_is_reported(chosen):
    (order,), status = run(sorting("order", 3), [np.array([0, chosen, 2])], {"d0": 3})
    assert status == [1, chosen, 3, 0]
    assert sorted(order) == [0, 1, 2]
    _, status = run(sorting("order", 3, "uint64"), [np.uint64([0, chosen % 2**64, 2])], {"d0": 3})
    assert status == [3, chosen, 3, 0]


def test_refusals():
    supports = find(OP, "cuda").supports
    spec = multiplying(OP, "float32", 8, 8, offsets="uint8", transposed=False)
    assert supports(spec) == "offsets: wanted int32 or int64, got uint8"
    spec = multiplying(OP, "int32", 8, 8, transposed=False)
    assert supports(spec) == "matmul of int32"
    before = Body(spec.operands[:1], (), (0,))
    assert supports(Spec(OP, spec.operands, spec.result, (), (), before)) == "it takes no prologue"
    assert find("group_rows", "cuda").supports(sorting("order", 3, "bool")) == "group_rows of bool"
