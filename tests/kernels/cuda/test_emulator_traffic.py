"""What the emulator says that accesses cost: of single instructions, and of mistakes in kernels."""

import cuda_traffic_cases as calls
import numpy as np
import pytest
from cuda_harness import counting, run
from emulator.probe import emulate, numbers
from emulator.traffic import Cost, Traffic, sectors, wavefronts

from heddle.kernels.cuda.products import outputs, staging
from heddle.kernels.registry import MACHINES

LANE = np.arange(32)
SHARED = {
    # addresses of lanes, bytes of each, wavefronts, the least
    "words side by side": (4 * LANE, 4, 1, 1),
    "words, in any order": (4 * (LANE ^ 21), 4, 1, 1),
    "one word for all": (0 * LANE + 64, 4, 1, 1),
    "two words of a bank": (128 * (LANE % 2), 4, 2, 1),
    "every second word": (8 * LANE, 4, 2, 1),
    "every third word": (12 * LANE, 4, 1, 1),
    "every 32nd word": (128 * LANE, 4, 32, 1),
    "every 33rd word": (132 * LANE, 4, 1, 1),
    "bytes of words": (LANE, 1, 1, 1),
    "halves of words": (2 * LANE, 2, 1, 1),
    "halves of every 32nd word": (128 * LANE, 2, 32, 1),
    "eight bytes": (8 * LANE, 8, 2, 2),
    "eight bytes, halves of the warp alike": (8 * (LANE % 16), 8, 2, 1),
    "eight bytes of every 16": (16 * LANE, 8, 4, 2),
    "sixteen bytes": (16 * LANE, 16, 4, 4),
    "sixteen bytes of every 32": (32 * LANE, 16, 8, 4),
    "sixteen bytes of every 144": (144 * LANE, 16, 4, 4),
    "sixteen bytes of every 128": (128 * LANE, 16, 32, 4),
    "half of a warp": (16 * LANE[:16], 16, 2, 2),
}


@pytest.mark.parametrize("name", SHARED)
def test_wavefronts(name):
    address, width, taken, least = SHARED[name]
    assert wavefronts(LANE[: len(address)], address, width) == Cost(1, taken, least)


GLOBAL = {
    "words side by side": (4 * LANE, 4, 4, 4),
    "words, in any order": (4 * (LANE ^ 21), 4, 4, 4),
    "not at a sector's start": (4 * LANE + 4, 4, 5, 4),
    "one word for all": (0 * LANE + 64, 4, 1, 1),
    "a column": (4096 * LANE, 4, 32, 4),
    "every second word": (8 * LANE, 4, 8, 4),
    "bytes": (LANE, 1, 1, 1),
    "sixteen bytes": (16 * LANE, 16, 16, 16),
    "sixteen bytes of every 32": (32 * LANE, 16, 32, 16),
    "lines of 64 bytes": (LANE // 4 * 4096 + LANE % 4 * 16, 16, 16, 16),
}


@pytest.mark.parametrize("name", GLOBAL)
def test_sectors(name):
    address, width, taken, least = GLOBAL[name]
    assert sectors(LANE, address, width) == Cost(1, taken, least)


def test_warps_have_costs_of_their_own():
    lane = np.arange(96)
    assert wavefronts(lane, 128 * (lane // 32), 4) == Cost(3, 3, 3)
    assert sectors(lane, 4 * (lane // 32), 4) == Cost(3, 3, 3)


def test_atomics_at_one_word_come_one_after_another():
    assert wavefronts(LANE, 0 * LANE, 4, True) == Cost(1, 32, 1)
    assert wavefronts(LANE, 4 * LANE, 4, True) == Cost(1, 1, 1)


# Whole kernels

READ = """
  %w = arith.constant {pitch} : i32
  %row = arith.muli %tid, %w : i32
  {swizzle}
  %at = llvm.getelementptr {base}[%row] : ({space}, i32) -> {space}, i32
"""
SHARED_SPACE, GLOBAL_SPACE = "!llvm.ptr<3>", "!llvm.ptr"


def total(body: str, shared: bool, words: int = 33, block: int = 32, grid: int = 1) -> Cost:
    traffic = Traffic()
    count = grid * block
    x, y = numbers(64 * count), numbers(count)
    emulate(body, x, y, grid, block, words, effects=traffic.effects())
    return traffic.total(shared)


def column(base: str, space: str, pitch: int, swizzle: str = "") -> str:
    return READ.format(base=base, space=space, pitch=pitch, swizzle=swizzle)


def of_tile(pitch: int, swizzle: str = "") -> Cost:
    """A warp stores to a column of a tile of 32 x 32 words."""
    body = column("%tile", SHARED_SPACE, pitch, swizzle)
    return total(f"{body} llvm.store %tid, %at : i32, !llvm.ptr<3>", True)


def test_a_column_of_a_tile():
    assert of_tile(32) == Cost(1, 32, 1)
    assert of_tile(33) == Cost(1, 1, 1)


def test_a_column_of_a_swizzled_tile():
    swizzle = "%own = arith.xori %row, %tid : i32"
    body = column("%tile", SHARED_SPACE, 32, swizzle).replace("[%row]", "[%own]")
    found = total(f"{body} llvm.store %tid, %at : i32, !llvm.ptr<3>", True)
    assert found == Cost(1, 1, 1)


@pytest.mark.parametrize(("pitch", "taken"), [(1, 4), (2, 8), (8, 32), (32, 32)])
def test_a_column_of_a_matrix(pitch, taken):
    body = column("%x", GLOBAL_SPACE, pitch)
    found = total(f"{body} %v = llvm.load %at : !llvm.ptr -> i32", False)
    assert found == Cost(1, taken, 4)


def test_lanes_that_are_not_active_cost_nothing():
    body = """
      %half = arith.constant 16 : i32
      %lower = arith.cmpi slt, %tid, %half : i32
      scf.if %lower {
        %v = llvm.load %from : !llvm.ptr -> i32
      }"""
    assert total(body, False) == Cost(1, 2, 2)


def test_a_vector_is_as_many_instructions_as_its_alignment_makes_it():
    body = """
      %eight = arith.constant 8 : i32
      %i = arith.muli %tid, %eight : i32
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i32
      %v = llvm.load %p {alignment = ALIGNMENT : i64} : !llvm.ptr -> vector<8xi32>"""
    assert total(body.replace("ALIGNMENT", "32"), False) == Cost(2, 64, 32)
    assert total(body.replace("ALIGNMENT", "4"), False) == Cost(8, 256, 32)


def test_a_copy_costs_in_both_memories_but_where_it_fills_with_zeros():
    body = """
      %c = arith.constant 4 : i32
      %i = arith.muli %tid, %c : i32
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i32
      %g = llvm.addrspacecast %p : !llvm.ptr to !llvm.ptr<1>
      %s = llvm.getelementptr %tile[%i] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %sixteen = arith.constant 16 : i32
      %lower = arith.cmpi slt, %tid, %sixteen : i32
      %size = arith.select %lower, %sixteen, %zero : i32
      nvvm.cp.async.shared.global %s, %g, 16, cache = cg, %size : !llvm.ptr<3>, !llvm.ptr<1>, i32
      nvvm.cp.async.commit.group
      nvvm.cp.async.wait.group 0"""
    assert total(body, False) == Cost(1, 8, 8)
    assert total(body, True) == Cost(1, 4, 4)


@pytest.mark.parametrize(("pitch", "taken"), [(32, 32), (36, 4)])
def test_rows_of_matrices(pitch, taken):
    """ldmatrix, of lines of 128 bytes, and with 16 bytes between them; stmatrix back to them."""
    kinds = "layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>"
    kinds += ", eltType = #nvvm.ld_st_matrix_elt_type<b16>"
    four = "!llvm.struct<(i32, i32, i32, i32)>"
    fill = """
      %c = arith.constant 1152 : i32
      scf.for %j = %tid to %c step %threads : i32 {
        %s = llvm.getelementptr %tile[%j] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        llvm.store %j, %s : i32, !llvm.ptr<3>
      }
      nvvm.barrier"""
    body = f"""{fill} {column("%tile", SHARED_SPACE, pitch)}
      %m = nvvm.ldmatrix %at {{num = 4 : i32, {kinds}}} : (!llvm.ptr<3>) -> {four}
      %r = llvm.extractvalue %m[0] : {four}
      nvvm.barrier
      nvvm.stmatrix %at, %r, %r, %r, %r {{{kinds}}} : !llvm.ptr<3>, i32, i32, i32, i32"""
    assert total(body, True, words=36) == Cost(36 + 2, 36 + 2 * taken, 36 + 2 * 4)


# Mistakes in kernels

SPEC = calls.product("bfloat16", 16, 64, 256, True)


def shared_cost() -> dict[str, float]:
    """How many times the least the sites of a product take, by their innermost functions."""
    call = calls.call(SPEC)
    with counting(MACHINES["sm_80"]) as traffic:
        run(SPEC, call.inputs(), {})
    return {
        site.frames[0].split()[1]: cost.taken / cost.least
        for site, cost in traffic.costs.items()
        if site.shared and cost.least
    }


def test_a_product_has_no_conflicts():
    assert shared_cost()["emit_strip_at.multiply"] == 1
    assert shared_cost()["SlicedSums.store"] == 1


def test_lines_that_are_not_swizzled(monkeypatch):
    monkeypatch.setattr(staging, "swizzled", lambda line, chunk, *_: chunk)
    assert shared_cost()["emit_strip_at.multiply"] == 8


def test_sums_without_padding(monkeypatch):
    monkeypatch.setattr(outputs.SlicedSums, "pitch", property(lambda sums: sums.columns))
    assert shared_cost()["SlicedSums.store"] > 1
