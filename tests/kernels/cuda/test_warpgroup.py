"""Products by wgmma: their results, and what is assembled."""

import re

import cuda_harness
import numpy as np
import pytest
import wgmma_registers
from assembler import check_products_overlap, machine_code
from grouped_cases import check as check_grouped
from reference import size
from row_groups import multiplying
from test_kernels import arrays_for, check
from test_tensor_cores import quantized
from warpgroup_cases import HOPPER, body, columns, cut_into_pieces, dequantised, product

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import partial_sums, pieces
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import result
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.tuning import forced

pytestmark = pytest.mark.usefixtures("on_hopper")

SHARED = 227 * 1024  # Of a block.
TOTAL = partial_sums.Meeting.total


RESULTS = {
    # spec, columns of a tile, elements that buffers are shifted by, d0, d1, d2
    "a tile and a slice": (product("float16", 128, 128, 16, True), 128, 0),
    "more rounds than stages": (product("float16", 65, 24, 7 * 64 + 8, True), 128, 0),
    "a cluster": (product("bfloat16", 130, 72, 136, False), 128, 0),
    "several tiles of a cluster": (product("bfloat16", 258, 136, 24, True), 128, 0),
    "wide tiles of columns": (product("float16", 130, 264, 24, False), 256, 0),
    "a body": (body(product("bfloat16", 130, 72, 72, False)), 128, 0),
    "a body that is stored by TMA": (body(product("float16", 70, 72, 72, True), 1), 128, 0),
    "a batch": (product("bfloat16", 131, 24, 24, True, (2, 2)), 128, 0),
    "few rows at run time": (product("float16", "d0", 136, 24, False), 128, 0, 70),
    "sizes at run time": (product("float16", "d0", "d1", "d2", True), 128, 0, 200, 24, 72),
    "odd sizes at run time": (product("float16", "d0", "d1", "d2", False), 128, 0, 66, 27, 65),
    "no k at run time": (product("float16", "d0", "d1", "d2", True), 128, 0, 66, 24, 0),
    "single elements": (product("bfloat16", 131, 13, 81, False), 128, 0),
    "bytes": (product("int8", 70, 40, 3 * 128 + 16, True), 128, 0),
    "bytes to 16 bits": (dequantised(70, 24, 144), 128, 0),
    "bytes without a sign": (product("uint8", 131, 24, 136, True), 128, 0),
    "single bytes": (product("int8", 66, 13, 67, True), 128, 0),
    "unaligned buffers": (body(product("float16", 130, 24, 72, True)), 128, 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    spec, width, shift, *dims = RESULTS[name]
    with columns(width):
        check(spec, {f"d{i}": size for i, size in enumerate(dims)}, shift)


@pytest.mark.parametrize(
    ("width", "outputs", "transposed"),
    [
        *[(160, 0, False), (160, 1, True), (160, 2, False), (192, 0, True), (192, 1, False)],
        *[(224, 0, True), (224, 1, False), (64, 0, True), (64, 1, False)],
    ],
)
def test_tiles_of_other_columns(monkeypatch, width, outputs, transposed):
    monkeypatch.setattr(warpgroup_plan, "_SLOWER", {width: 1})
    spec = product("bfloat16", 130, 264, 72, transposed)
    check(body(spec, outputs) if outputs else spec, {})


@pytest.mark.parametrize("width", [64, 160])
@pytest.mark.parametrize("transposed", [True, False])
def test_pieces_of_tiles_of_other_columns(monkeypatch, transposed, width):
    monkeypatch.setattr(warpgroup_plan, "_SLOWER", {width: 1})
    brought = cut_into_pieces(monkeypatch)
    check(product("bfloat16", 130, 200, 3 * 64, transposed), {})
    assert brought


PIECES = {
    "two pieces": (product("bfloat16", 66, 24, 3 * 64, True), ()),
    "more clusters than tiles": (body(product("float16", 258, 24, 2 * 64, False)), ()),
    "bytes": (product("int8", 70, 24, 2 * 128, True), ()),
    "few rows": (body(product("bfloat16", "d0", 264, 2 * 64, True), 1), (3,)),
}


@pytest.mark.parametrize("name", PIECES)
def test_tiles_in_pieces(monkeypatch, name):
    spec, dims = PIECES[name]
    brought = cut_into_pieces(monkeypatch)
    with columns(128):
        check(spec, {f"d{i}": size for i, size in enumerate(dims)})
    assert brought


def of_pieces() -> np.ndarray:
    """A product whose sums cancel from piece to piece: another order of them is another result."""
    spec = product("bfloat16", 66, 24, 6 * 64, True)
    a, b = arrays_for(spec, {})
    a[:, 0], a[:, -1], b[:, 0], b[:, -1] = 2**20, -(2**20), 1, 1
    with columns(128):
        return cuda_harness.run(spec, [a, b], {})[0][0]


def from_their_own_on(meeting, piece, *others):
    """The sums of all pieces, but one's own first."""
    first, count = pieces.size(piece.first), pieces.size(piece.count)
    own, place = pieces.size(piece.number) - first, partial_sums.Meeting._place

    def turned(meeting, number, *where):
        return place(meeting, first + (number - first + own) % count, *where)

    with pytest.MonkeyPatch.context() as here:
        here.setattr(partial_sums.Meeting, "_place", turned)
        return TOTAL(meeting, piece, *others)


@pytest.mark.parametrize("total", [TOTAL, from_their_own_on])
def test_it_does_not_matter_who_is_last(monkeypatch, total):
    """Where pieces are added in their order alone."""
    cut_into_pieces(monkeypatch)
    monkeypatch.setattr(partial_sums.Meeting, "total", total)
    first = of_pieces()
    cuda_harness.turned(monkeypatch)
    assert (first == of_pieces()).all() == (total is TOTAL)


@pytest.mark.parametrize("transposed", [True, False])
def test_rows_sorted_by_group(transposed):
    """Of several tiles, of none, and of no group; without TMA where buffers are not aligned."""
    spec = multiplying("grouped_matmul", "bfloat16", 24, 136, "d0", 3, transposed=transposed)
    assert warpgroup_plan.plan_for(spec, HOPPER)
    with forced({spec.op: {"columns": 128}}):
        check_grouped(spec, {"d0": 150}, [0, 130, 130, 145], HOPPER.arch)
        check_grouped(spec, {"d0": 20}, [1, 3, 3, 18], HOPPER.arch, shift=1)


PLANS = [
    # m, n, k; columns of a tile, blocks of a cluster, whether tiles are cut
    (4096, 4096, 4096, 256, 2, False),
    (8192, 28672, 4096, 256, 2, True),
    (512, 4096, 4096, 128, 2, False),
    (512, 6144, 4096, 192, 2, False),
    (512, 10240, 8192, 160, 2, False),
    (512, 28672, 4096, 224, 2, False),
    (2048, 10240, 8192, 256, 2, False),  # Pieces would read rows from memory, each for itself.
    (384, 10240, 8192, 256, 1, False),
    (128, 4096, 4096, 128, 1, True),
    (128, 8192, 4096, 64, 1, False),
    (100352, 64, 576, 64, 2, False),
    ("d0", 4096, 4096, 256, 2, True),
]


@pytest.mark.parametrize(("m", "n", "k", "width", "cluster", "cut"), PLANS)
def test_plans_keep_multiprocessors_busy(m, n, k, width, cluster, cut):
    spec = product("bfloat16", m, n, k, True)
    plan = warpgroup_plan.plan_for(spec, HOPPER)
    assert (plan.tile.columns, plan.cluster, plan.cut) == (width, cluster, cut)
    launch = find("matmul", "cuda").launch_on(spec, HOPPER)
    assert (launch.counters > 0) == (launch.workspace != 0) == cut
    blocks = size(launch.grid[0], {"d0": 8192})
    assert blocks % cluster == 0
    assert 112 <= blocks <= 132


def test_others_multiply_without():
    assert "wgmma" not in to_ptx(product("bfloat16", 128, 128, 64, True), MACHINES["sm_80"])
    for spec in (product("int8", 128, 128, 128, False), product("bfloat16", 16, 128, 64, True)):
        assert "wgmma" not in to_ptx(spec, HOPPER)


ASSEMBLED = {
    "plain": (product("bfloat16", 4096, 4096, 4096, True), 256),
    "narrow": (product("float16", 4096, 4096, 4096, False), 128),
    "a body": (body(product("bfloat16", 4096, 4096, 4096, False), 1), 256),
    "two outputs": (body(product("float16", "d0", 4096, 4096, True)), 256),
    "run-time sizes": (body(product("float16", "d0", "d1", "d2", False)), 256),
    "bytes": (product("uint8", 4096, 4096, 4096, True), 256),
    "an activation": (dequantised("d0", "d1", 4096), 256),
    "one row of tiles": (product("bfloat16", 128, 4096, 4096, True), 256),
}
KINDS = {"float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "uint8": "k32.s32.u8.s8"}
KINDS["int8"] = "k32.s32.s8.s8"


def emitted(name: str):
    """A spec, its PTX and its launch."""
    spec, width = ASSEMBLED[name]
    with columns(width):
        return spec, to_ptx(spec, HOPPER), find(spec.op, "cuda").launch_on(spec, HOPPER)


def check_cubin(text: str) -> None:
    """The registers are those of the plan, nothing is spilled, and products wait for none."""
    assert wgmma_registers.check(text)
    cubin = by_ptxas(text)
    assert (cubin.registers, cubin.spills, cubin.shared) == (warpgroup_plan.REGISTERS, 0, 0)
    check_products_overlap(cubin)


def by_ptxas(text: str):
    """The cubin: nvJitLink ignores setmaxnreg and cannot tell a division from a call."""
    program = ptx.find_ptxas()
    if program is None:
        pytest.skip("ptxas is not installed")
    return ptx.with_ptxas(program, text, HOPPER.arch)


@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(name):
    spec, text, launch = emitted(name)
    dtype, transposed = spec.operands[0].dtype, spec.attr("transposed")
    several = launch.cluster > 1
    for instruction, wanted in (
        (f"wgmma.mma_async.sync.aligned.m64n{ASSEMBLED[name][1]}{KINDS[dtype]}", True),
        ("cp.async.bulk.tensor.3d.shared::cluster.global", True),
        (".multicast::cluster", several),
        ("barrier.cluster.wait", several),
        ("mbarrier.try_wait.parity.shared", True),
        ("cp.async.bulk.tensor.3d.global.shared::cta", result.by_tma(spec)),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16", dtype.endswith("16")),
        ("griddepcontrol.wait", True),
        ("setmaxnreg.inc.sync.aligned.u32", True),
    ):
        assert (instruction in text) == wanted
    products = re.findall(r"wgmma\.mma_async[^;]*;", text)
    assert len(products) == 4
    if dtype.endswith("16"):  # The last number: whether b has its columns side by side.
        assert all(line.endswith(f"{int(not transposed)};") for line in products)
    assert launch.shared <= SHARED
    check_cubin(text)


def test_registers_are_those_of_a_multiprocessor():
    """Three warps of the block are on each quarter of one, which has 512 for each of 32 lanes."""
    assert 3 * warpgroup_plan.REGISTERS <= 512
    sizes = 256, 256, 64
    for spec in (product("bfloat16", *sizes, True), quantized("bfloat16", *sizes, 4, 32)):
        many, few = warpgroup_plan.plan_for(spec, HOPPER).registers
        assert 2 * many + few <= 3 * warpgroup_plan.REGISTERS


def test_machine_code():
    code = machine_code(by_ptxas(emitted("plain")[1]))
    for instruction in ("HGMMA.64x256x16.F32.BF16", "UTMALDG.3D", "UTMASTG.3D", "USETMAXREG"):
        assert instruction in code
    assert "UTMALDG.3D.MULTICAST" in code
