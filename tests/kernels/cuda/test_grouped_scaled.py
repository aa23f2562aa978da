"""Products of groups by weights of 8 and 4 bits, on the emulator."""

import numpy as np
import pytest
import row_groups
import wgmma_registers
from assembler import check_no_spills, needs_assembler
from cuda_cases import of_experts
from cuda_harness import run
from grouped_cases import check
from reference import size
from row_groups import SPLITS, scaling

from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Spec
from heddle.kernels.tuning import forced

OP = "quantized_grouped_matmul"
HELD = ("int8", "uint8", "float8_e4m3fn")


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("split", SPLITS)
def test_multiply_adds(split, held):
    with forced({OP: {"square": 32}}):
        spec = scaling(OP, "float32", held, 32, 12, 50)
        check(spec, {}, np.array(SPLITS[split]) // 3, None, 0, 1e-5)


@pytest.mark.parametrize(
    ("held", "dtype"), [("int8", "bfloat16"), ("uint8", "float16"), ("float8_e4m3fn", "bfloat16")]
)
def test_strips_and_what_chooses(held, dtype):
    """Up to 4 rows for each group, up to 16, and more; rows of no group, groups without rows."""
    body = row_groups.gated(dtype, "d0", 40)
    spec = scaling(OP, dtype, held, 96, 40, "d0", 2, offsets="int32", epilogue=body)
    for rows, offsets in ((0, [0, 0, 0]), (7, [1, 1, 6]), (20, [0, 3, 20]), (90, [0, 80, 88])):
        check(spec, {"d0": rows}, offsets)


@pytest.mark.parametrize("held", HELD)
def test_tiles_of_warpgroups(held):
    """Of several tiles, of none, and of no group; without TMA where buffers are not aligned."""
    spec = scaling(OP, "bfloat16", held, 96, 136, "d0", 3)
    few, more = find(OP, "cuda").split(spec)
    hopper = MACHINES["sm_90a"]
    assert warpgroup_plan.plan_for(few.spec, hopper) is None
    assert warpgroup_plan.plan_for(more.spec, hopper)
    check(more.spec, {"d0": 150}, [0, 130, 130, 145], hopper.arch)
    check(more.spec, {"d0": 60}, [2, 9, 9, 57], hopper.arch, shift=1)
    check(few.spec, {"d0": 40}, [2, 9, 9, 38], hopper.arch)


def test_unaligned_and_groups_of_run_time():
    check(scaling(OP, "bfloat16", "uint8", 64, 24, 20, 3), {}, [0, 9, 9, 20], shift=1)
    spec = scaling(OP, "bfloat16", "int8", 32, "d1", "d0", "d2")
    check(spec, {"d0": 6, "d1": 8, "d2": 40}, [0] * 36 + [1, 1, 3, 3, 4])


def test_wrong_offsets_are_reported():
    spec = scaling(OP, "bfloat16", "int8", 32, 8)
    _, status = run(spec, row_groups.arrays(spec, {}, [0, 9, 9, 9, 160]), {})
    assert status == [2, 160, 150, 9]


def test_portions_are_all_calls():
    few, more = find(OP, "cuda").split(scaling(OP, "bfloat16", "int8", 64, 64, "d0", 4))
    for rows in (0, 1, 64, 65, 9999):
        assert size(few.condition, {"d0": rows}) == (rows <= 64)
        assert size(more.condition, {"d0": rows}) == (rows > 64)


def test_launch_does_not_depend_on_offsets():
    spec = scaling(OP, "bfloat16", "int8", 64, 64, "d0", 4)
    few, more = (portion.spec for portion in find(OP, "cuda").split(spec))
    for rows, blocks in ((0, 1), (3, 3 * 2), (16, 8 * 2), (64, (4 + 6) * 2)):
        assert size(find(OP, "cuda").launch(few).grid[0], {"d0": rows}) == blocks
    assert size(find(OP, "cuda").launch(more).grid[0], {"d0": 640}) == 640 // 64 + 6


@needs_assembler
@pytest.mark.parametrize("bits", [8, 4])
def test_nothing_is_spilled(bits):
    for spec, warpgroups in zip(of_experts(bits), (False, True), strict=True):
        for arch in ("sm_80", "sm_90a"):
            text = check_no_spills(spec, arch)
            assert bool(wgmma_registers.check(text)) == (warpgroups and arch == "sm_90a")


def test_refusals():
    supports = find(OP, "cuda").supports
    spec = scaling(OP, "float32", "int8", 32, 8, offsets="uint8")
    assert supports(spec) == "offsets: wanted int32 or int64, got uint8"
    spec = scaling(OP, "float64", "int8", 32, 8)
    assert supports(spec) == "float64 by int8 of 8 bits and float64"
    before = Body(spec.operands[:1], (), (0,))
    wrong = Spec(OP, spec.operands, spec.result, (), spec.attrs, before)
    assert supports(wrong) == "it takes no prologue"
