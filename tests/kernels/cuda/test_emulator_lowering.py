"""Every nvvm operation that the emulator knows is one that the product's path assembles."""

import pytest
from emulator.build import to_ptx
from emulator.rows import BLOCKING, EFFECTS, OPS

from heddle.graph.compiler.codegen import ptx
from heddle.kernels.mlir import context, ir

LAYOUT = (
    "shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>"
)
FOUR = "!llvm.struct<({0}, {0}, {0}, {0})>"
MMA = "layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>"


def mma(kind: str, k: int, word: str, total: str, more: str = "") -> str:
    a, c = ("%h" if kind == "f16" else "%i"), ("%i" if total == "i32" else "%z")
    return f"""%mma_{kind} = nvvm.mma.sync A[{a}, {a}, {a}, {a}] B[{a}, {a}] C[{c}, {c}, {c}, {c}]
      {{{MMA}, shape = #nvvm.shape<m = 16, n = 8, k = {k}>,
        multiplicandAPtxType = #nvvm.mma_type<{kind}>,
        multiplicandBPtxType = #nvvm.mma_type<{kind}>{more}}}
      : ({word}, {word}, {total}) -> {FOUR.format(total)}"""


AMPERE = f"""
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %ntid = nvvm.read.ptx.sreg.ntid.x : i32
  %ctaid = nvvm.read.ptx.sreg.ctaid.x : i32
  %nctaid = nvvm.read.ptx.sreg.nctaid.x : i32
  %laneid = nvvm.read.ptx.sreg.laneid : i32
  %shuffled = nvvm.shfl.sync bfly %all, %tid, %one, %last : i32 -> i32
  %voted = nvvm.vote.sync ballot %all, %b -> i32
  %reduced = nvvm.redux.sync add %i, %all : i32 -> i32
  %bytes = nvvm.prmt #nvvm.permute_mode<default> %i, %one, %i : i32
  %ex2 = nvvm.ex2 %z : f32
  %log2 = nvvm.log2 %z : f32
  %rcp = nvvm.rcp.approx.ftz.f %z : f32
  %rsqrt = nvvm.rsqrt %z : f32
  nvvm.barrier
  nvvm.barrier id = %one number_of_threads = %n
  nvvm.barrier.arrive id = %one number_of_threads = %n
  nvvm.bar.warp.sync %all : i32
  llvm.fence syncscope("device") acq_rel
  %m1 = nvvm.ldmatrix %s {{num = 1 : i32, layout = #nvvm.mma_layout<row>, {LAYOUT}}}
    : (!llvm.ptr<3>) -> i32
  %m4 = nvvm.ldmatrix %s {{num = 4 : i32, layout = #nvvm.mma_layout<col>, {LAYOUT}}}
    : (!llvm.ptr<3>) -> {FOUR.format("i32")}
  {mma("f16", 16, "vector<2xf16>", "f32")}
  {mma("bf16", 16, "i32", "f32")}
  {mma("tf32", 8, "i32", "f32")}
  {mma("s8", 32, "i32", "i32", ", intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>")}
  nvvm.cp.async.shared.global %s, %g, 16, cache = cg, %i : !llvm.ptr<3>, !llvm.ptr<1>, i32
  nvvm.cp.async.shared.global %s, %g, 4, cache = ca : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 0
  nvvm.cp.async.mbarrier.arrive %s {{noinc = true}} : !llvm.ptr<3>
"""
COPY = "nvvm.cp.async.bulk.tensor"
SUMS = f"!llvm.struct<({', '.join(['f32'] * 4)})>"
HOPPER = f"""
  %e4m3 = nvvm.convert.f32x2.to.f8x2 %z, %z {{rnd = #nvvm.fp_rnd_mode<rn>,
    sat = #nvvm.sat_mode<satfinite>}} : vector<2xi8> (f8E4M3FN)
  %half = nvvm.convert.f8x2.to.f16x2 %e4m3 : vector<2xi8> (f8E4M3FN) -> vector<2xf16>
  %rank = nvvm.read.ptx.sreg.cluster.ctarank : i32
  %x = nvvm.read.ptx.sreg.cluster.ctaid.x : i32
  %ranks = nvvm.read.ptx.sreg.cluster.nctarank : i32
  %nx = nvvm.read.ptx.sreg.cluster.nctaid.x : i32
  %cluster = nvvm.read.ptx.sreg.clusterid.x : i32
  %clusters = nvvm.read.ptx.sreg.nclusterid.x : i32
  %elected = nvvm.elect.sync -> i1
  nvvm.stmatrix %s, %i, %i {{layout = #nvvm.mma_layout<row>, {LAYOUT}}} : !llvm.ptr<3>, i32, i32
  nvvm.mbarrier.init %s, %i : !llvm.ptr<3>, i32
  nvvm.fence.mbarrier.init
  nvvm.fence.proxy {{kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}}
  %state = nvvm.mbarrier.arrive %s : !llvm.ptr<3> -> i64
  nvvm.mbarrier.expect_tx %s, %i : !llvm.ptr<3>, i32
  nvvm.mbarrier.arrive.expect_tx %s, %i : !llvm.ptr<3>, i32
  nvvm.mbarrier.try_wait.parity %s, %i, %n : !llvm.ptr<3>, i32, i32
  %complete = nvvm.mbarrier.test.wait %s, %i : !llvm.ptr<3>, i32 -> i1
  %far = nvvm.mapa %s, %i : !llvm.ptr<3> -> !llvm.ptr<7>
  nvvm.mbarrier.arrive %far {{scope = #nvvm.mem_scope<cluster>}} : !llvm.ptr<7>
  nvvm.cluster.arrive {{aligned}}
  nvvm.cluster.wait {{aligned}}
  nvvm.cluster.arrive.relaxed {{aligned}}
  nvvm.prefetch tensormap, %p : !llvm.ptr
  {COPY}.shared.cluster.global %c, %p, %s, box[%i] : !llvm.ptr<7>, !llvm.ptr
  {COPY}.shared.cluster.global %c, %p, %s, box[%i, %i, %i, %i, %i] : !llvm.ptr<7>, !llvm.ptr
  {COPY}.global.shared.cta %p, %s, box[%i, %i, %i] : !llvm.ptr, !llvm.ptr<3>
  nvvm.cp.async.bulk.shared.cluster.global %c, %g, %s, %i : !llvm.ptr<7>, !llvm.ptr<1>
  nvvm.cp.async.bulk.global.shared.cta %g, %s, %i : !llvm.ptr<1>, !llvm.ptr<3>
  nvvm.cp.async.bulk.commit.group
  nvvm.cp.async.bulk.wait_group 0 {{read}}
  nvvm.griddepcontrol wait
  nvvm.setmaxregister decrease 40
  %u = llvm.mlir.undef : {SUMS}
  nvvm.wgmma.fence.aligned
  %d = nvvm.wgmma.mma_async %w, %w, %u, <m = 64, n = 8, k = 16>, D[<f32>, <zero>],
    A[<bf16>, <one>, <row>], B[<bf16>, <one>, <col>] : {SUMS} -> {SUMS}
  nvvm.wgmma.commit.group.sync.aligned
  nvvm.wgmma.wait.group.sync.aligned 0
"""


def parse(body: str) -> ir.Module:
    return ir.Module.parse(f"""
      llvm.mlir.global external @tile() {{addr_space = 3 : i32, alignment = 1024 : i64}}
        : !llvm.array<0 x i8>
      llvm.func @kernel(%p: !llvm.ptr, %g: !llvm.ptr<1>, %i: i32, %z: f32, %w: i64)
        attributes {{nvvm.kernel, nvvm.reqntid = array<i32: 128>, nvvm.maxnreg = 128 : i32}} {{
        %n = llvm.mlir.constant(128 : i32) : i32
        %one = llvm.mlir.constant(1 : i32) : i32
        %last = llvm.mlir.constant(31 : i32) : i32
        %all = llvm.mlir.constant(-1 : i32) : i32
        %b = llvm.icmp "eq" %i, %n : i32
        %h = llvm.bitcast %i : i32 to vector<2xf16>
        %s = llvm.mlir.addressof @tile : !llvm.ptr<3>
        %c = llvm.addrspacecast %s : !llvm.ptr<3> to !llvm.ptr<7>
        {body}
        llvm.return
      }}""")


@pytest.mark.parametrize(("arch", "body"), [("sm_80", AMPERE), ("sm_90a", AMPERE + HOPPER)])
def test_assembled(arch, body):
    with context(), ir.Location.unknown():
        text = to_ptx(parse(body), arch)
    ptx.assemble(text, arch)  # Raises where it is refused; None where there is no assembler.
    assert "cp.async.wait_group" in text


def test_nothing_is_left_out():
    used = set()
    with context(), ir.Location.unknown():
        module = parse(AMPERE + HOPPER)
        module.operation.walk(lambda op: (used.add(op.name), ir.WalkResult.ADVANCE)[1])
    known = {name for name in (*OPS, *EFFECTS, *BLOCKING) if name.startswith("nvvm.")}
    assert known <= used
