"""A complete GEMM of the Hopper kind, as a test of the emulator: TMA, mbarriers, wgmma.

C bfloat16 [64, 64] = A bfloat16 [64, k] times the transpose of B bfloat16 [64, k], by one block of
two warpgroups. The producer's one thread keeps a ring of two stages full; the consumers multiply
and hand stages back, then write the result to shared memory, from where it is stored by TMA.
"""

from __future__ import annotations

from typing import Any

from emulator.build import arith, at, attribute, i32, kernel, llvm, nvvm, thread
from emulator.tensor_map import TensorMap
from heddle.kernels import emit
from heddle.kernels.mlir import ir

M = N = 64
DEPTH = 64  # Of k in one stage: 128 bytes, the span of the swizzle.
STAGES = 2
THREADS = 256
TILE = M * DEPTH * 2
STAGE = 2 * TILE
RESULT = STAGES * STAGE
FULL, EMPTY = RESULT + TILE, RESULT + TILE + 8 * STAGES
SHARED = EMPTY + 8 * STAGES
ACCUMULATORS = f"!llvm.struct<({', '.join(['f32'] * (N // 2))})>"
NAMED = 1  # The barrier of the consumers.


def tensor_map(buffer: Any, rows: int, columns: int) -> TensorMap:
    """Boxes of 64 x 64 of a row-major bfloat16 matrix."""
    return TensorMap(buffer, 2, (columns, rows), (2 * columns,), (DEPTH, M), 128)


def build(k: int, mistake: str = "") -> ir.Module:
    """The kernel for `k`, with the `mistake` planted that the tests name."""
    steps = k // DEPTH

    def body(a: Any, b: Any, c: Any, base: Any) -> None:
        def full(step: Any) -> Any:
            return at(base, step % STAGES * 8 + FULL)

        def empty(step: Any) -> Any:
            return at(base, step % STAGES * 8 + EMPTY)

        def parity(step: Any) -> Any:
            return step // STAGES % 2

        def wait(barrier: Any, odd: Any) -> None:
            nvvm.mbarrier_try_wait_parity(barrier, odd, i32(1000))

        def produce(step: Any) -> None:
            if mistake != "no wait for an empty stage":
                wait(empty(step), parity(step) ^ 1)
            if mistake == "no expect_tx":
                nvvm.mbarrier_arrive(full(step), results=[emit.integer(64)])
            else:
                count = STAGE + 16 if mistake == "too many bytes expected" else STAGE
                nvvm.mbarrier_arrive_expect_tx(full(step), i32(count))
            stage = at(base, step % STAGES * STAGE)
            load(stage, a, [step * DEPTH, i32(0)], full(step))
            load(at(stage, TILE), b, [step * DEPTH, i32(0)], full(step))

        def consume(step: Any, sums: Any) -> Any:
            wait(full(step), parity(step) ^ (mistake == "wrong parity"))
            stage = at(base, step % STAGES * STAGE)
            left, right = (descriptor(at(stage, start), mistake) for start in (0, TILE))
            if mistake != "no wgmma.fence":
                nvvm.wgmma_fence_aligned()
            for inner in range(DEPTH // 16):  # 32 bytes of k each.
                sums = multiply(sums, left + 2 * inner, right + 2 * inner)
            nvvm.wgmma_commit_group_sync_aligned()
            if mistake not in ("no wait for wgmma", "a stage released too early"):
                nvvm.wgmma_wait_group_sync_aligned(0)
            with emit.when(emit.compare("equal", thread() % 128, i32(0))):
                nvvm.mbarrier_arrive(empty(step), results=[emit.integer(64)])
            if mistake == "a stage released too early":
                nvvm.wgmma_wait_group_sync_aligned(0)
            return sums

        with emit.when(emit.compare("equal", thread(), i32(0))):
            consumers = 2 if mistake == "a wrong count" else 1
            for stage in range(STAGES):
                nvvm.mbarrier_init(full(i32(stage)), i32(1))
                nvvm.mbarrier_init(empty(i32(stage)), i32(consumers))
            if mistake != "no fence.mbarrier_init":
                nvvm.fence_mbarrier_init()
        if mistake != "no barrier after the initialisation":
            nvvm.barrier(aligned=True)
        roles = emit.scf.IfOp(emit.compare("less", thread(), i32(128)), has_else=True)
        with ir.InsertionPoint(roles.then_block):
            registers(40, "decrease")
            with emit.when(emit.compare("equal", thread(), i32(0))):
                loop = emit.scf.ForOp(i32(0), i32(steps), i32(1))
                with ir.InsertionPoint(loop.body):
                    produce(loop.induction_variable)
                    emit.scf.yield_([])
            emit.scf.yield_([])
        with ir.InsertionPoint(roles.else_block):
            registers(240 if mistake == "too many registers" else 208, "increase")
            sums = llvm.mlir_undef(ir.Type.parse(ACCUMULATORS))
            zero = emit.constant(ir.F32Type.get(), 0)
            for i in range(N // 2):
                sums = llvm.insertvalue(sums, zero, ir.DenseI64ArrayAttr.get([i]))
            loop = emit.scf.ForOp(i32(0), i32(steps), i32(1), [sums])
            with ir.InsertionPoint(loop.body):
                found = consume(loop.induction_variable, loop.inner_iter_args[0])
                emit.scf.yield_([found])
            finish(loop.results[0], c, base, mistake)
            emit.scf.yield_([])

    return kernel(3, THREADS, SHARED, body, maxnreg="128 : i32")


def registers(count: int, action: str) -> None:
    nvvm.setmaxregister(count, getattr(nvvm.SetMaxRegisterAction, action))


def load(target: Any, tensor: Any, coordinates: list, barrier: Any) -> None:
    target = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), target)
    nvvm.cp_async_bulk_tensor_shared_cluster_global(target, tensor, coordinates, barrier, [])


def descriptor(pointer: Any, mistake: str) -> Any:
    """K-major with a swizzle of 128 bytes: 1024 bytes from one group of eight rows to the next."""
    stride = 512 if mistake == "a wrong stride" else 1024
    swizzle = 2 if mistake == "a wrong swizzle" else 1
    start = arith.extui(emit.integer(64), llvm.ptrtoint(emit.integer(32), pointer))
    return (start >> 4) & 0x3FFF | (swizzle << 62 | (stride >> 4) << 32 | 1 << 16)


def multiply(sums: Any, a: Any, b: Any) -> Any:
    kind, one = attribute("#nvvm.wgmma_type<bf16>"), attribute("#nvvm.wgmma_scale_in<one>")
    return nvvm.wgmma_mma_async(
        ir.Type.parse(ACCUMULATORS),
        sums,
        a,
        b,
        attribute(f"#nvvm.shape<m = 64, n = {N}, k = 16>"),
        kind,
        kind,
        attribute("#nvvm.wgmma_type<f32>"),
        attribute("#nvvm.wgmma_scale_out<one>"),
        one,
        one,
        attribute("#nvvm.mma_layout<row>"),
        attribute("#nvvm.mma_layout<col>"),
    )


def finish(sums: Any, c: Any, base: Any, mistake: str) -> None:
    """Rounds to bfloat16, and stores by stmatrix and TMA through a swizzled tile."""
    word, pair = emit.integer(32), ir.VectorType.get([2], ir.F32Type.get())
    packed = []
    for i in range(0, N // 2, 2):
        both = [
            llvm.extractvalue(ir.F32Type.get(), sums, ir.DenseI64ArrayAttr.get([j]))
            for j in (i, i + 1)
        ]
        halves = arith.truncf(
            ir.VectorType.get([2], ir.BF16Type.get()), emit.vector.from_elements(pair, both)
        )
        packed.append(llvm.bitcast(word, halves))
    lane, warp = thread() % 32, thread() % 128 // 32
    row = warp * 16 + lane % 16
    for i in range(N // 16):  # Four 8 x 8 matrices: rows 0 and 8, then columns 8 on.
        column = (lane // 16 + 2 * i) ^ (row % 8)
        where = at(base, row * 128 + column * 16 + RESULT)
        nvvm.stmatrix(
            where,
            packed[4 * i : 4 * i + 4],
            attribute("#nvvm.mma_layout<row>"),
            attribute("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
            attribute("#nvvm.ld_st_matrix_elt_type<b16>"),
        )
    if mistake != "no fence.proxy.async":
        nvvm.fence_proxy(
            attribute("#nvvm.proxy_kind<async.shared>"), space=attribute("#nvvm.shared_space<cta>")
        )
    if mistake != "no barrier before the store":
        nvvm.barrier(barrier_id=i32(NAMED), number_of_threads=i32(128))
    with emit.when(emit.compare("equal", thread(), i32(128))):
        nvvm.cp_async_bulk_tensor_global_shared_cta(c, at(base, RESULT), [i32(0), i32(0)])
        nvvm.cp_async_bulk_commit_group()
        if mistake != "no wait for the store":
            nvvm.cp_async_bulk_wait_group(0, read=True)
