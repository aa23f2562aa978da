"""Writes `tiny.heddle`, the smallest artifact that has something of everything, and its weights.

    shifted = x + (weight + constant) + table[indices]      float32 [batch, 4]
    same = x, flat                                          float32 [batch * 4]

`weight + constant` is computed by init and kept as state. The machine code was made once from the
C functions beside it: `gcc -O2 -fno-tree-vectorize -fcf-protection=none`.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Constant,
    Copy,
    Dispatch,
    Kernel,
    Program,
    Routine,
    Symbol,
    Tensor,
    Weight,
)
from heddle.runtime.artifact_writer import write

# void add(const int64_t* dims, void* const* buffers, int64_t first, int64_t last) {
#     const float *a = buffers[0], *b = buffers[1];
#     float* out = buffers[2];
#     for (int64_t i = first * dims[0]; i < last * dims[0]; ++i) out[i] = a[i] + b[i];
# }
ADD = """
4889f84989c94c8b06488b7e08488b00488b4e10480fafd0490fafc14839c27d200f1f8000000000f3410f100490f30f
580497f30f1104914883c2014839c275e7c3
"""

# void gather(const int64_t* dims, void* const* buffers, int64_t first, int64_t last) {
#     const float* table = buffers[0];
#     const int64_t* indices = buffers[1];
#     float* out = buffers[2];
#     int64_t* status = buffers[3];
#     for (int64_t i = first; i < last; ++i) {
#         int64_t index = indices[i];
#         if ((uint64_t)index >= (uint64_t)dims[0]) {
#             status[1] = index; status[2] = dims[0]; status[0] = 1;
#             index = 0;
#         }
#         out[i] = table[index];
#     }
# }
GATHER = """
4c8b164c8b4e084c8b4610488b76184839ca7c23eb4a662e0f1f840000000000498d0482f30f1000f3410f1104904883
c2014839d17429498b04d1483b0772e048894608488b0748c70601000000488946104c89d0ebcd660f1f840000000000
c3
"""

# void shift(const int64_t* dims, void* const* buffers, int64_t first, int64_t last) {
#     const float *x = buffers[0], *row = buffers[1], *column = buffers[2];
#     float* out = buffers[3];
#     int64_t n = dims[0];
#     for (int64_t i = first; i < last; ++i)
#         for (int64_t k = 0; k < n; ++k) out[i * n + k] = x[i * n + k] + row[k] + column[i];
# }
SHIFT = """
554989d24889cd534c8b06488b5608488b4e104c8b4e184939ea0f8d80000000488b1f4c89d04c89d64989db480fafc3
49f7db49c1e302490faff3488d3c184801f24a8d3491488d0cbd00000000669048c1e0024885db7e250f1f8000000000
f3410f100400f30f580402f30f5806f3410f1104014883c0044839c875e24983c2014889f84c01da4883c6044c29d94c
39d5740c4801dfebb70f1f80000000005b5dc3
"""


def kernel(name: str, code: str, checks: bool = False) -> Kernel:
    image = bytes.fromhex(code)
    return Kernel(
        name,
        tuple(Code(arch, "image", image, alignment=32) for arch in ("x86-64-v3", "x86-64-v4")),
        checks,
    )


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def dispatch(kernel: int, buffers: tuple[int, ...], columns: int, rows: object, label: str):
    return Dispatch(kernel, buffers, (columns,), ((rows, 1, 1),), ("mul", rows, columns), label)


def record() -> ArtifactRecord:
    table = floats(0, 100, 200, 300, 400, 500)
    x_bytes = ("mul", ("mul", "batch", 4), 4)
    program = Program(
        target="cpu",
        kernels=(kernel("add", ADD), kernel("gather", GATHER, checks=True), kernel("shift", SHIFT)),
        buffers=(
            Buffer("input", x_bytes, 0),
            Buffer("input", ("mul", "batch", 8), 1),
            Buffer("output", x_bytes, 0),
            Buffer("output", x_bytes, 1),
            Buffer("weight", 16, 0),
            Buffer("weight", 24, 1),
            Buffer("constant", 16, 0),
            Buffer("state", 16, offset=64),
            Buffer("arena", ("mul", "batch", 4), offset=64),
            Buffer("status", 32),
        ),
        init=Routine((dispatch(0, (4, 6, 7), 4, 1, "add at tiny.py:1"),)),
        main=Routine(
            (
                dispatch(1, (5, 1, 8, 9), 6, "batch", "gather at tiny.py:2"),
                dispatch(2, (0, 7, 8, 2), 4, "batch", "add at tiny.py:3"),
                Copy(0, 3, x_bytes, "copy at tiny.py:4"),
            ),
            arena=("add", 64, ("mul", ("ceildiv", ("mul", "batch", 4), 64), 64)),
        ),
        state=128,
    )
    return ArtifactRecord(
        name="tiny",
        symbols=(Symbol("batch", 0, 64),),
        inputs=(
            Tensor("x", "float32", ("batch", 4)),
            Tensor("indices", "int64", ("batch",)),
            Tensor("pairs", "int8", (("mul", "batch", 2),)),
        ),
        outputs=(
            Tensor("shifted", "float32", ("batch", 4)),
            Tensor("same", "float32", (("mul", "batch", 4),)),
        ),
        weights=(
            Weight("weight", "float32", (4,)),
            Weight("table", "float32", (6,), hashlib.sha256(table).digest(), table),
            Weight("settled", "float32", (4,), settled=True),
        ),
        constants=(Constant(floats(0.5, 1.5, 2.5, 3.5)),),
        programs=(program,),
        provenance=(("heddle", "0.1.0"), ("source", "tests/golden/make_tiny.py")),
    )


def weights() -> bytes:
    """`tiny.safetensors`: the weight that the artifact does not embed."""
    header = b'{"weight":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    return struct.pack("<Q", len(header)) + header + floats(10, 20, 30, 40)


if __name__ == "__main__":
    folder = Path(__file__).parent
    write(record(), folder / "tiny.heddle")
    (folder / "tiny.safetensors").write_bytes(weights())
