"""Operands of wgmma laid out in shared memory, and a frame to multiply them: for its tests."""

import ml_dtypes
import numpy as np

from emulator.build import arith, at, attribute, get, i32, kernel, llvm, nvvm, put, thread
from emulator.inline import constraints, text
from emulator.machine import Buffer, launch
from heddle.kernels import emit
from heddle.kernels.mlir import ir

RANDOM = np.random.default_rng(5)
N = 16
ROOM = 8192  # Bytes for each operand.
SPAN_CODE = {0: 0, 128: 1, 64: 2, 32: 3}
TYPES = {
    # name: (the same in NumPy, depth, sums)
    "f16": (np.float16, 16, "f32"),
    "bf16": (ml_dtypes.bfloat16, 16, "f32"),
    "tf32": (np.float32, 8, "f32"),
    "e4m3": (ml_dtypes.float8_e4m3fn, 32, "f32"),
    "e5m2": (ml_dtypes.float8_e5m2, 32, "f32"),
    "s8": (np.int8, 32, "s32"),
    "u8": (np.uint8, 32, "s32"),
}


def random(rows: int, k: int, dtype) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return RANDOM.integers(0, 100, (rows, k)).astype(dtype)
    return RANDOM.standard_normal((rows, k)).astype(dtype)


def k_major(matrix: np.ndarray, span: int) -> tuple[np.ndarray, int, int]:
    """Bytes of [rows, k] in shared memory with their leading offset and stride.

    Without a swizzle, cores of 8 rows by 16 bytes one after the other, down first; with one, rows
    of `span` bytes, whose chunks of 16 change places within 8 rows.
    """
    rows, chunks = len(matrix), matrix.shape[1] * matrix.itemsize // 16
    parts = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, chunks, 16)
    if span == 0:
        cores = parts.reshape(rows // 8, 8, chunks, 16).transpose(2, 0, 1, 3)
        return cores.reshape(-1), rows * 16, 128
    wide = np.zeros((rows, span // 16, 16), np.uint8)
    for r in range(rows):
        for c in range(chunks):
            wide[r, c ^ (r // (128 // span) % (span // 16))] = parts[r, c]
    return wide.reshape(-1), 16, 8 * span


def mn_major(matrix: np.ndarray, span: int) -> tuple[np.ndarray, int, int]:
    """The same of a matrix of 16-bit elements whose rows lie side by side, for 16 of k."""
    rows, k = matrix.shape
    wide = max(span, 16) // 2
    blocks = np.ascontiguousarray(matrix.T).reshape(k // 8, 8, rows // wide, wide)
    blocks = blocks.transpose(0, 2, 1, 3)  # Atoms of 8 of k by `wide` rows, rows first.
    data = np.ascontiguousarray(blocks).view(np.uint8)
    if span == 0:
        return data.reshape(-1), rows // wide * 128, 128
    data = data.reshape(-1, span // 16, 16)
    moved = np.zeros_like(data)
    for r in range(len(data)):
        for c in range(span // 16):
            moved[r, c ^ (r // (128 // span) % (span // 16))] = data[r, c]
    return moved.reshape(-1), 8 * span, rows // wide * 8 * span


def struct(kind: str) -> str:
    return f"!llvm.struct<({', '.join([{'f32': 'f32', 's32': 'i32'}[kind]] * (N // 2))})>"


def descriptor(pointer, leading: int, stride: int, span: int):
    start = arith.extui(emit.integer(64), llvm.ptrtoint(emit.integer(32), pointer))
    rest = SPAN_CODE[span] << 62 | stride >> 4 << 32 | leading >> 4 << 16
    return (start >> 4) & 0x3FFF | (rest - 2**64 if rest >= 2**63 else rest)


def multiply(kind: str, sums, a, b, majors=("row", "col"), scale: str = "one"):
    _, k, total = TYPES[kind]
    one = attribute("#nvvm.wgmma_scale_in<one>")
    return nvvm.wgmma_mma_async(
        ir.Type.parse(struct(total)),
        sums,
        a,
        b,
        attribute(f"#nvvm.shape<m = 64, n = {N}, k = {k}>"),
        attribute(f"#nvvm.wgmma_type<{kind}>"),
        attribute(f"#nvvm.wgmma_type<{kind}>"),
        attribute(f"#nvvm.wgmma_type<{total}>"),
        attribute(f"#nvvm.wgmma_scale_out<{scale}>"),
        one,
        one,
        *(attribute(f"#nvvm.mma_layout<{major}>") for major in majors),
    )


def in_registers(sums, words: list, b, adds: int = 1):
    """wgmma of bfloat16 with A in registers; `sums` is a structure of accumulators."""
    f32, position = ir.F32Type.get(), ir.DenseI64ArrayAttr.get
    parts = [llvm.extractvalue(f32, sums, position([i])) for i in range(N // 2)]
    return llvm.inline_asm(
        ir.Type.parse(struct("f32")),
        [*words, b, *parts],
        text(N, 16, "f32", "bf16", "bf16", 0, adds),
        constraints(N, "f32"),
        has_side_effects=True,
    )


def zeros(kind: str):
    element = emit.integer(32) if kind == "s32" else ir.F32Type.get()
    sums = llvm.mlir_undef(ir.Type.parse(struct(kind)))
    for i in range(N // 2):
        zero = emit.constant(element, 0)
        sums = llvm.insertvalue(sums, zero, ir.DenseI64ArrayAttr.get([i]))
    return sums


def finish(sums, kind: str, y) -> None:
    element = emit.integer(32) if kind == "s32" else ir.F32Type.get()
    lane, warp = thread() % 32, thread() // 32
    for i in range(N // 2):
        row = warp * 16 + lane // 4 + i // 2 % 2 * 8
        column = lane % 4 * 2 + (i // 4 * 8 + i % 2)
        value = llvm.extractvalue(element, sums, ir.DenseI64ArrayAttr.get([i]))
        put(y, (row * N + column) * 4, value)


def fill(x, base, count: int) -> None:
    """Copies bytes of x to shared memory, and lets the matrix units see them."""
    loop = emit.scf.ForOp(thread() * 4, i32(count), i32(512))
    with ir.InsertionPoint(loop.body):
        word = get(x, loop.induction_variable)
        put(base, loop.induction_variable, word)
        emit.scf.yield_([])
    nvvm.fence_proxy(
        attribute("#nvvm.proxy_kind<async.shared>"), space=attribute("#nvvm.shared_space<cta>")
    )
    nvvm.barrier(aligned=True)


def run(kind: str, layouts, compute, threads: int = 128) -> np.ndarray:
    """Fills shared memory with both operands and stores what `compute` makes of descriptors."""
    (a, *a_offsets), (b, *b_offsets) = layouts
    x = np.zeros(2 * ROOM, np.uint8)
    x[: len(a)], x[ROOM : ROOM + len(b)] = a, b
    total = TYPES[kind][2]

    def body(x, y, base):
        fill(x, base, 2 * ROOM)
        left, right = descriptor(base, *a_offsets), descriptor(at(base, ROOM), *b_offsets)
        finish(compute(left, right), total, y)

    y = np.zeros((64, N), np.int32 if total == "s32" else np.float32)
    module = kernel(2, threads, 2 * ROOM, body)
    launch(module, 1, threads, [Buffer(x), Buffer(y, written=True)], [])
    return y


def whole(kind: str, majors=("row", "col"), scale: str = "one", leave_out: str = ""):
    def compute(a, b):
        sums = zeros(TYPES[kind][2]) if scale == "one" else llvm.mlir_undef(
            ir.Type.parse(struct(TYPES[kind][2])))  # fmt: skip
        if leave_out != "fence":
            nvvm.wgmma_fence_aligned()
        sums = multiply(kind, sums, a, b, majors, scale)
        if leave_out != "commit":
            nvvm.wgmma_commit_group_sync_aligned()
        if leave_out != "wait":
            nvvm.wgmma_wait_group_sync_aligned(0)
        return sums

    return compute


def product(a: np.ndarray, b: np.ndarray, kind: str) -> np.ndarray:
    if kind == "tf32":
        a, b = ((m.view(np.int32) & ~0x1FFF).view(np.float32) for m in (a, b))
    wide = np.int64 if TYPES[kind][2] == "s32" else np.float64
    return a.astype(wide) @ b.astype(wide).T
