"""ldmatrix, stmatrix and mma.sync, against the manual's formulas for single elements."""

import ml_dtypes
import numpy as np
import pytest
from emulator.memory import EmulatorError
from emulator.probe import emulate, numbers

RANDOM = np.random.default_rng(7)
LOAD = """nvvm.ldmatrix %mat {{num = {num} : i32, layout = #nvvm.mma_layout<{layout}>,
  shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>}}
  : (!llvm.ptr<3>) -> {kind}"""
FOUR = "!llvm.struct<(i32, i32, i32, i32)>"
# Each lane fills 16 bytes of shared memory with its words of x, lane 31 first.
FILL = """
  %back = arith.subi %last, %tid : i32
  %four = arith.constant 4 : i32
  %word = arith.muli %tid, %four : i32
  %src = llvm.getelementptr %x[%word] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %v = llvm.load %src {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>
  %slot = arith.muli %back, %four : i32
  %own = llvm.getelementptr %tile[%slot] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
"""


def words(names: list[str]) -> str:
    """Writes a lane's values to its words of y."""
    lines = [f"%n_out = arith.constant {len(names)} : i32"]
    lines.append("%out = arith.muli %tid, %n_out : i32")
    for i, name in enumerate(names):
        lines += [
            f"%i{i} = arith.constant {i} : i32",
            f"%at{i} = arith.addi %out, %i{i} : i32",
            f"%to{i} = llvm.getelementptr %y[%at{i}] : (!llvm.ptr, i32) -> !llvm.ptr, i32",
            f"llvm.store {name}, %to{i} : i32, !llvm.ptr",
        ]
    return "\n".join(lines)


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_ldmatrix(num, layout):
    rows = RANDOM.integers(0, 2**16, (32, 8), np.uint16)  # 16 bytes of each lane.
    kind = {1: "i32", 2: "!llvm.struct<(i32, i32)>", 4: FOUR}[num]
    load = f"%m = {LOAD.format(num=num, layout=layout, kind=kind)}"
    taken = [f"%r{i} = llvm.extractvalue %m[{i}] : {kind}" for i in range(num)]
    names = [f"%r{i}" for i in range(num)] if num > 1 else ["%m"]
    body = FILL + "llvm.store %v, %own {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>\n"
    body += "nvvm.barrier\n%mat = llvm.getelementptr %tile[%word] : (!llvm.ptr<3>, i32)"
    body += " -> !llvm.ptr<3>, i32\n" + "\n".join([load, *(taken if num > 1 else [])])
    y = np.zeros((32, num), np.int32)
    emulate(body + words(names), rows.view(np.int32), y, words=4)
    matrices = rows[::-1].reshape(4, 8, 8)
    for lane in range(32):
        for i in range(num):
            matrix = matrices[i] if layout == "row" else matrices[i].T
            pair = matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
            assert y[lane, i : i + 1].view(np.uint16).tolist() == pair.tolist()


def test_stmatrix_undoes_ldmatrix():
    rows = RANDOM.integers(0, 2**16, (32, 8), np.uint16)
    load = f"%m = {LOAD.format(num=4, layout='col', kind=FOUR)}"
    taken = [f"%r{i} = llvm.extractvalue %m[{i}] : {FOUR}" for i in range(4)]
    body = FILL + "llvm.store %v, %own {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>\n"
    body += "nvvm.barrier\n%mat = llvm.getelementptr %tile[%word] : (!llvm.ptr<3>, i32)"
    body += " -> !llvm.ptr<3>, i32\n" + "\n".join([load, *taken])
    body += """
      nvvm.barrier
      nvvm.stmatrix %mat, %r3, %r2, %r1, %r0 {layout = #nvvm.mma_layout<col>,
        shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>,
        eltType = #nvvm.ld_st_matrix_elt_type<b16>} : !llvm.ptr<3>, i32, i32, i32, i32
      nvvm.barrier
      %again = llvm.load %mat {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
      %to4 = llvm.getelementptr %y[%word] : (!llvm.ptr, i32) -> !llvm.ptr, i32
      llvm.store %again, %to4 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr"""
    y = np.zeros((32, 4), np.int32)
    emulate(body, rows.view(np.int32), y, words=4)
    matrices = rows[::-1].reshape(4, 8, 8)[::-1]
    assert (y.view(np.uint16).reshape(4, 8, 8) == matrices).all()


# Element i of lane (g, t) in "Matrix Fragments for mma.m16n8k16, m16n8k8, m16n8k32".
FRAGMENTS = {
    16: (
        lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, 2 * t + (i & 1) + 8 * (i >= 4)),
        lambda g, t, i: (2 * t + (i & 1) + 8 * (i >= 2), g),
    ),
    8: (
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
    ),
    32: (
        lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, 4 * t + (i & 3) + 16 * (i >= 8)),
        lambda g, t, i: (4 * t + (i & 3) + 16 * (i >= 4), g),
    ),
}
MMA = {
    # kind: (the same in NumPy, depth, type of the words, of the sums)
    "f16": (np.float16, 16, "vector<2xf16>", "f32"),
    "bf16": (ml_dtypes.bfloat16, 16, "i32", "f32"),
    "tf32": (np.float32, 8, "i32", "f32"),
    "s8": (np.int8, 32, "i32", "i32"),
}


def spread(matrix: np.ndarray, place, count: int) -> np.ndarray:
    """A lane's elements of a fragment side by side: [32, count]."""
    return np.array(
        [[matrix[place(lane // 4, lane % 4, i)] for i in range(count)] for lane in range(32)]
    )


@pytest.mark.parametrize("kind", MMA)
def test_mma(kind):
    dtype, k, word, total = MMA[kind]
    if kind == "s8":
        a, b = RANDOM.integers(-128, 128, (16, k)), RANDOM.integers(-128, 128, (k, 8))
        c = RANDOM.integers(-1000, 1000, (16, 8), np.int32)
    else:
        a, b = RANDOM.standard_normal((16, k)), RANDOM.standard_normal((k, 8))
        c = RANDOM.standard_normal((16, 8)).astype(np.float32)
    a, b = a.astype(dtype), b.astype(dtype)
    of_a, of_b = FRAGMENTS[k]
    of_c = lambda g, t, i: (g + 8 * (i >= 2), 2 * t + (i & 1))  # noqa: E731
    each = 4 // a.itemsize
    parts = [spread(a, of_a, 4 * each), spread(b, of_b, 2 * each), spread(c, of_c, 4)]
    x = np.concatenate([np.ascontiguousarray(p).view(np.int32) for p in parts], axis=1)
    body = ["%ten = arith.constant 10 : i32", "%start = arith.muli %tid, %ten : i32"]
    for i in range(10):
        element = word if i < 6 else total
        body += [
            f"%j{i} = arith.constant {i} : i32",
            f"%k{i} = arith.addi %start, %j{i} : i32",
            f"%p{i} = llvm.getelementptr %x[%k{i}] : (!llvm.ptr, i32) -> !llvm.ptr, i32",
            f"%w{i} = llvm.load %p{i} {{alignment = 4 : i64}} : !llvm.ptr -> {element}",
        ]
    struct = f"!llvm.struct<({', '.join([total] * 4)})>"
    wrapped = ", intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>" if kind == "s8" else ""
    body.append(f"""
      %d = nvvm.mma.sync A[%w0, %w1, %w2, %w3] B[%w4, %w5] C[%w6, %w7, %w8, %w9]
        {{layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>,
          shape = #nvvm.shape<m = 16, n = 8, k = {k}>,
          multiplicandAPtxType = #nvvm.mma_type<{kind}>,
          multiplicandBPtxType = #nvvm.mma_type<{kind}>{wrapped}}}
        : ({word}, {word}, {total}) -> {struct}""")
    for i in range(4):
        body.append(f"%e{i} = llvm.extractvalue %d[{i}] : {struct}")
        body.append(f"%r{i} = llvm.bitcast %e{i} : {total} to i32")
    y = np.zeros((32, 4), np.int32)
    emulate("\n".join(body) + words([f"%r{i}" for i in range(4)]), x, y, words=10)
    if kind == "tf32":
        a, b = ((m.view(np.int32) & ~0x1FFF).view(np.float32) for m in (a, b))
    wide = np.int64 if kind == "s8" else np.float64
    wanted = c.astype(wide) + a.astype(wide) @ b.astype(wide)
    np.testing.assert_allclose(y.view(c.dtype), spread(wanted, of_c, 4), rtol=1e-6, atol=1e-6)


def test_a_warp_in_parts():
    body = f"""
      %some = arith.cmpi slt, %tid, %last : i32
      scf.if %some {{
        %mat = llvm.getelementptr %tile[0] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32
        %m = {LOAD.format(num=1, layout="row", kind="i32")}
      }}"""
    with pytest.raises(EmulatorError, match=r"divergent: ldmatrix wants all threads"):
        emulate(body, numbers(), numbers() * 0)


def test_a_row_without_alignment():
    body = f"%m = {LOAD.format(num=1, layout='row', kind='i32')}".replace("%mat", "%mine")
    with pytest.raises(EmulatorError, match="misaligned: 16 bytes"):
        emulate(body, numbers(), numbers() * 0)


def test_a_shape_that_is_not_known():
    body = """
      %h = llvm.bitcast %tid : i32 to vector<2xf16>
      %z = arith.constant 0.0 : f32
      %d = nvvm.mma.sync A[%h, %h] B[%h] C[%z, %z, %z, %z] {
        layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>,
        shape = #nvvm.shape<m = 16, n = 8, k = 8>}
        : (vector<2xf16>, vector<2xf16>, f32) -> !llvm.struct<(f32, f32, f32, f32)>"""
    with pytest.raises(EmulatorError, match=r"the emulator knows f16 in #nvvm.shape<.* k = 16>"):
        emulate(body, numbers(), numbers() * 0)


def test_a_part_that_nobody_inserted():
    body = """
      %s = llvm.mlir.undef : !llvm.struct<(i32, i32)>
      %t = llvm.insertvalue %tid, %s[1] : !llvm.struct<(i32, i32)>
      %v = llvm.extractvalue %t[0] : !llvm.struct<(i32, i32)>"""
    with pytest.raises(EmulatorError, match="extracts element 0, which nobody inserted"):
        emulate(body, numbers(), numbers() * 0)
