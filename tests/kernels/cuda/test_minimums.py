"""Products by weights of 8 and 4 bits whose groups have minimums, on the emulator."""

from dataclasses import replace

import cuda_harness
import minimum_cases
import numpy as np
import pytest
import row_groups
from assembler import needs_assembler
from cuda_cases import beside, gated
from cuda_harness import run, run_call
from grouped_cases import check as check_groups
from minimum_cases import with_minimums
from reference import evaluate
from test_kernels import arrays_for
from test_kernels import check as check_arrays
from test_scaled_wide import wide
from test_tensor_cores import body, quantized
from test_warpgroup import check_cubin
from warpgroup_cases import HOPPER, cut_into_pieces
from warpgroup_cases import body as one_output

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import by_rows, scaled, scaled_cut
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Operand


def check(spec, dims, shift=0, of=run):
    """With minimums that are as large as what they are added to."""
    arrays = arrays_for(spec, dims)
    for number in by_rows.given(spec, lambda one: 3)[2::3]:
        arrays[number] *= np.array(2 ** (spec.attr("bits") - 1), arrays[number].dtype)
    check_arrays(spec, dims, shift, of, arrays)


STRIPS = {
    # spec, elements that buffers are shifted by
    "a row": (quantized("bfloat16", 1, 72, 256, 4, 32), 0),
    "eight rows, 8 bits": (quantized("float16", 8, 40, 320, 8, 64), 0),
    "sixteen rows": (quantized("bfloat16", 16, 40, 512, 4, 128), 0),
    "groups that end inside of a stage": (quantized("bfloat16", 9, 40, 192, 8, 96), 0),
    "groups deeper than a stage": (quantized("bfloat16", 3, 24, 1024, 8, 512), 0),
    "many rows": (quantized("float16", 70, 40, 128, 4, 64), 0),
    "unaligned": (quantized("bfloat16", 5, 27, 160, 4, 32), 1),
    "a body": (body(quantized("bfloat16", 7, 40, 96, 8, 32)), 0),
}


@pytest.mark.parametrize("name", STRIPS)
def test_strips(name):
    spec, shift = STRIPS[name]
    spec = with_minimums(spec)
    assert scaled.fits(spec)
    check(spec, {}, shift)


@pytest.mark.parametrize("name", ["a row", "groups that end inside of a stage"])
def test_strips_of_float16_beside_bfloat16(name):
    check(with_minimums(wide(STRIPS[name][0])), {})


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_multiply_adds(dtype, bits):
    """Of float32, and where groups are no whole runs."""
    check(with_minimums(quantized(dtype, 9, 24, 80, bits, 16)), {})


@pytest.mark.parametrize("columns", [64, 128])
def test_strips_of_more_columns(monkeypatch, columns):
    """A warp has two or four groups in a step."""
    monkeypatch.setattr(scaled_cut, "best", lambda strip, _: (replace(strip, columns=columns), 1))
    for rows in (3, 11):
        check(with_minimums(quantized("bfloat16", rows, 136, 320, 4, 32)), {})


@pytest.mark.parametrize(("rows", "machine"), [(3, None), (9, None), (20, HOPPER)])
@pytest.mark.parametrize("bits", [4, 8])
def test_what_cancels_is_not_rounded_before(bits, rows, machine):
    """A five-hundredth of products and of what minimums add is left when they meet."""
    spec = with_minimums(quantized("bfloat16", rows, 24, 128, bits, 32))
    x, weight, scales, _ = arrays_for(spec, {})
    x, scales = (np.abs(array) + array.dtype.type(0.5) for array in (x, scales))
    minimums = (-(2.0**bits - 1) * scales.astype(np.float64)).astype(scales.dtype)
    arrays = [x, np.full_like(weight, 0xFF), scales, minimums]
    (found,), _ = run(spec, arrays, {}, 0, machine)
    (wanted,) = evaluate(spec, {}, arrays)
    most = np.abs(wanted.astype(np.float64)).max()
    added = np.abs(x.astype(np.float64)).sum(1).max() * np.abs(minimums.astype(np.float64)).max()
    assert most < 0.01 * added
    near = {"rtol": 0, "atol": 1e-2 * most}
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), **near)


@pytest.mark.parametrize("rows", [1, 12, 20])
def test_gates(rows):
    spec = with_minimums(gated(quantized("bfloat16", "d0", 72, 320, 4, 64)))
    check(spec, {"d0": rows}, 0, run_call)


@pytest.mark.parametrize("rows", [2, 20])
def test_beside(rows):
    several = beside(*(quantized("bfloat16", "d0", n, 288, 8, 32) for n in (72, 40, 40)))
    check(with_minimums(several), {"d0": rows}, 0, run_call)


@pytest.mark.parametrize(("dtype", "held"), [("bfloat16", "int8"), ("float16", "uint8")])
def test_groups_of_rows(dtype, held):
    """Up to 4 rows for each group, up to 16, and more; rows of no group, groups without rows."""
    after = row_groups.gated(dtype, "d0", 40)
    named = {"offsets": "int32", "epilogue": after}
    spec = row_groups.scaling("quantized_grouped_matmul", dtype, held, 96, 40, "d0", 2, **named)
    spec = with_minimums(spec)
    for rows, offsets in ((0, [0, 0, 0]), (7, [1, 1, 6]), (20, [0, 3, 20]), (90, [0, 80, 88])):
        check_groups(spec, {"d0": rows}, offsets)


def test_groups_of_rows_by_multiply_adds():
    spec = row_groups.scaling("quantized_grouped_matmul", "float32", "uint8", 64, 12, 50, 3)
    check_groups(with_minimums(spec), {}, [0, 9, 9, 48], tolerance=1e-5)


TILES = {
    # spec, elements that buffers are shifted by, d0
    "groups of 32": (quantized("bfloat16", 70, 40, 160, 4, 32), 0),
    "two tiles side by side": (quantized("float16", 65, 136, 128, 4, 64), 0),
    "8 bits": (quantized("bfloat16", 70, 72, 288, 8, 32), 0),
    "groups as deep as a stage": (quantized("float16", 66, 24, 256, 8, 128), 0),
    "groups deeper than a stage": (quantized("bfloat16", 66, 24, 512, 4, 256), 0),
    "groups that do not divide a stage": (quantized("bfloat16", 66, 24, 192, 8, 96), 0),
    "more rounds than stages": (quantized("bfloat16", 66, 24, 6 * 128, 4, 64), 0),
    "blocks that go from tile to tile": (quantized("bfloat16", 200, 264, 128, 8, 64), 0),
    "stored by TMA": (one_output(quantized("float16", 70, 72, 64, 4, 32), 1), 0),
    "rows at run time": (quantized("bfloat16", "d0", 136, 64, 4, 32), 0, 131),
    "tiles of 64 rows": (quantized("bfloat16", 50, 136, 288, 4, 32), 0),
    "tiles of 64 rows, unaligned": (quantized("bfloat16", 17, 40, 160, 8, 32), 1),
    "scales of float16": (wide(quantized("bfloat16", 66, 40, 96, 4, 32)), 0),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_of_warpgroups(monkeypatch, name):
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)
    spec, shift, *dims = TILES[name]
    spec = with_minimums(spec)
    assert warpgroup_plan.plan_for(spec, HOPPER)
    check(spec, {f"d{i}": size for i, size in enumerate(dims)}, shift)


def test_tiles_in_pieces(monkeypatch):
    monkeypatch.setattr(cuda_harness, "MACHINE", HOPPER)
    brought = cut_into_pieces(monkeypatch)
    check(with_minimums(quantized("bfloat16", 66, 24, 3 * 128, 4, 32)), {})
    assert brought


@pytest.mark.parametrize("held", ["int8", "uint8"])
def test_groups_of_rows_by_warpgroups(held):
    """Of several tiles, of none, and of no group; without TMA where buffers are not aligned."""
    op = "quantized_grouped_matmul"
    spec = with_minimums(row_groups.scaling(op, "bfloat16", held, 96, 136, "d0", 3))
    _, more = find(op, "cuda").split(spec)
    assert warpgroup_plan.plan_for(more.spec, HOPPER)
    check_groups(more.spec, {"d0": 150}, [0, 130, 130, 145], HOPPER.arch)
    check_groups(more.spec, {"d0": 60}, [2, 9, 9, 57], HOPPER.arch, shift=1)


@needs_assembler
@pytest.mark.parametrize("name", minimum_cases.FEW)
def test_two_blocks_of_few_rows_share_a_multiprocessor(name):
    for arch in ("sm_80", "sm_90a"):
        assert ptx.assemble(to_ptx(minimum_cases.FEW[name], MACHINES[arch]), arch).registers <= 128


@needs_assembler
@pytest.mark.parametrize("name", [name for name in minimum_cases.ALL if "4 bits, groups" in name])
def test_products_by_wgmma_wait_for_none(name):
    check_cubin(to_ptx(minimum_cases.ALL[name], HOPPER))


def test_refusals():
    supports = find("quantized_matmul", "cuda").supports
    spec = quantized("bfloat16", 3, 24, 64, 8, 32)
    known = with_minimums(spec)
    assert supports(known) is None
    wrong = replace(known, operands=(*spec.operands, known.operands[3]))
    assert supports(wrong) == "bfloat16 by int8 of 8 bits and bfloat16 and minimums of bfloat16"
    other = Operand("float16", known.operands[3].shape)
    wrong = replace(known, operands=(*known.operands[:3], other))
    assert supports(wrong) == "bfloat16 by uint8 of 8 bits and bfloat16 and minimums of float16"
