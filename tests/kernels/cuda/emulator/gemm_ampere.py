"""A complete GEMM of the Ampere kind, as a test of the emulator: cp.async, ldmatrix, mma.sync.

C float32 [64, 64] = A float16 [64, k] times B float16 [k, 64], by one block of 2 x 2 warps. Two
stages of shared memory: while one is multiplied, cp.async fills the other.
"""

from __future__ import annotations

from typing import Any

from emulator.build import at, attribute, global_pointer, i32, kernel, llvm, nvvm, thread
from heddle.kernels import emit
from heddle.kernels.mlir import ir

M = N = 64
DEPTH = 32  # Of k in one stage.
THREADS = 128
A_ROW, B_ROW = 2 * DEPTH + 16, 2 * N + 16  # Bytes; the 16 keep ldmatrix off one bank.
A_BYTES, B_BYTES = M * A_ROW, DEPTH * B_ROW
STAGE = A_BYTES + B_BYTES
SHARED = 2 * STAGE
STRUCT = "!llvm.struct<({})>"


def build(k: int, leave_out: str = "") -> ir.Module:
    """The kernel for `k`; `leave_out` plants a mistake: "wait" or "barrier" of the loop."""

    def body(a: Any, b: Any, c: Any, base: Any) -> None:
        lane, warp = thread() % 32, thread() // 32
        row, column = (warp // 2) * 32, (warp % 2) * 32

        def fill(step: Any) -> None:
            stage = at(base, step % 2 * STAGE)
            for i in range(2):
                chunk = thread() + THREADS * i
                copy(at(stage, chunk // 4 * A_ROW + chunk % 4 * 16),
                     at(a, chunk // 4 * (2 * k) + chunk % 4 * 16 + step * (2 * DEPTH)))  # fmt: skip
                copy(at(stage, A_BYTES + chunk // 8 * B_ROW + chunk % 8 * 16),
                     at(b, (chunk // 8 + step * DEPTH) * (2 * N) + chunk % 8 * 16))  # fmt: skip
            nvvm.cp_async_commit_group()

        zero = emit.constant(ir.F32Type.get(), 0)
        fill(i32(0))
        loop = emit.scf.ForOp(i32(0), i32(k // DEPTH), i32(1), [zero] * 32)
        with ir.InsertionPoint(loop.body):
            step, sums = loop.induction_variable, list(loop.inner_iter_args)
            with emit.when(emit.compare("less", step + 1, i32(k // DEPTH))):
                fill(step + 1)
            with emit.when(emit.compare("equal", step + 1, i32(k // DEPTH))):
                nvvm.cp_async_commit_group()  # An empty one, so that one is always left.
            if leave_out != "wait":
                nvvm.cp_async_wait_group(1)
            nvvm.barrier(aligned=True)
            stage = at(base, step % 2 * STAGE)
            for inner in range(0, DEPTH, 16):
                sums = multiply(stage, lane, row, column, inner, sums)
            if leave_out != "barrier":
                nvvm.barrier(aligned=True)
            emit.scf.yield_(sums)
        for i in range(2):
            for j in range(4):
                for part in range(4):
                    r = row + 16 * i + lane // 4 + 8 * (part // 2)
                    q = column + 8 * j + lane % 4 * 2 + part % 2
                    value = loop.results[16 * i + 4 * j + part]
                    llvm.store(value, at(c, r * N + q, "f32"), alignment=4)

    return kernel(3, THREADS, SHARED, body)


def copy(target: Any, source: Any) -> None:
    cached = attribute("#nvvm<load_cache_modifier cg>")
    nvvm.cp_async_shared_global(target, global_pointer(source), 16, cached)


def multiply(stage: Any, lane: Any, row: Any, column: Any, inner: int, sums: list) -> list:
    """Adds the products of a warp's 32 x 32 results over 16 of k."""
    sums = list(sums)
    # The four 8 x 8 matrices of ldmatrix.x4 get their rows from lanes 0-7, 8-15, ...
    down, right = lane % 16, lane // 16 * 16
    a = [
        load(at(stage, (row + 16 * i + down) * A_ROW + right + 2 * inner), "row") for i in range(2)
    ]
    b = [
        load(at(stage, (down + inner) * B_ROW + right + column * 2 + 32 * j + A_BYTES), "col")
        for j in range(2)
    ]
    for i in range(2):
        for j in range(4):
            here = slice(16 * i + 4 * j, 16 * i + 4 * j + 4)
            sums[here] = product(a[i], b[j // 2][j % 2 * 2 :][:2], sums[here])
    return sums


def load(pointer: Any, layout: str) -> list:
    """ldmatrix.x4: four registers."""
    kind = ir.Type.parse(STRUCT.format(", ".join(["i32"] * 4)))
    found = nvvm.ldmatrix(
        pointer,
        4,
        attribute(f"#nvvm.mma_layout<{layout}>"),
        attribute("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        attribute("#nvvm.ld_st_matrix_elt_type<b16>"),
        results=[kind],
    )
    return parts(found, emit.integer(32))


def parts(struct: Any, element: Any) -> list:
    position = ir.DenseI64ArrayAttr.get
    return [llvm.extractvalue(element, struct, position([i])) for i in range(4)]


def product(a: list, b: list, c: list) -> list:
    """mma.sync.m16n8k16 of float16."""
    pair = ir.VectorType.get([2], ir.F16Type.get())
    a, b = ([llvm.bitcast(pair, word) for word in words] for words in (a, b))
    found = nvvm.mma_sync(
        ir.Type.parse(STRUCT.format(", ".join(["f32"] * 4))),
        attribute("#nvvm.shape<m = 16, n = 8, k = 16>"),
        attribute("#nvvm.mma_layout<row>"),
        attribute("#nvvm.mma_layout<col>"),
        a, b, c,
        multiplicand_a_ptx_type=attribute("#nvvm.mma_type<f16>"),
        multiplicand_b_ptx_type=attribute("#nvvm.mma_type<f16>"),
    )  # fmt: skip
    return parts(found, ir.F32Type.get())
