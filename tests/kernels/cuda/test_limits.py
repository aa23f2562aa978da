"""The bench's probes of a GPU's arithmetic: what they compute, and the machine code of it."""

import ml_dtypes
import numpy as np
import pytest
from assembler import needs_ptxas
from emulator.machine import Buffer, launch

from heddle.graph.compiler.codegen import cuda
from heddle.graph.compiler.codegen.cuda import llvm_ir
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES
from heddle.pipelines.bench import gpu_probes
from heddle.pipelines.bench.gpu_probes import COLUMNS, OPERAND_BYTES, PROBES, THREADS

ALL = [(arch, name) for arch, found in PROBES.items() for name in found]
STEPS = 3
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "tf32": np.float32, "float8": ml_dtypes.float8_e4m3fn}


def run(arch, name, x):
    """What each thread of a block writes."""
    probe = PROBES[arch][name]
    y = np.zeros(2 * THREADS, np.int32)
    with context(), ir.Location.unknown():
        module = gpu_probes.module(probe)
        launch(module, 1, THREADS, [Buffer(x), Buffer(y, written=True)], [STEPS], probe.shared)
    return y


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float8", "tf32"])
def test_wgmma_multiplies_all_of_both_sides(dtype):
    """Every result is one of the product of the lines, whose chunks lie swizzled."""
    stored = np.dtype(DTYPES.get(dtype, dtype))
    values = np.random.default_rng(4).integers(-2, 3, OPERAND_BYTES // stored.itemsize)
    x = values.astype(stored)
    lines = x.view(np.uint8).reshape(-1, 8, 16)
    plain = np.stack([lines[r, np.arange(8) ^ (r % 8)] for r in range(len(lines))])
    wide = plain.reshape(-1).view(stored).astype(np.float64).reshape(len(lines), -1)
    a, b = wide[:-COLUMNS], wide[-COLUMNS:]
    a, b = a.reshape(2, 4, 2, 8, -1), b.reshape(-1, 4, 2, b.shape[1])
    # A thread has rows `lane // 4` and 8 below, of its warp's 16; columns `lane % 4 * 2` and next.
    totals = np.einsum("gwhrk,cqek->gwrq", a, b)
    sums = run("sm_90a", f"wgmma {dtype}", x.view(np.int32))[:THREADS]
    found = sums if dtype == "int8" else sums.view(np.float32)
    np.testing.assert_array_equal(found, STEPS * totals.reshape(-1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "tf32"])
def test_mma_sync_multiplies_each_chain(dtype):
    stored = np.dtype(DTYPES.get(dtype, dtype))
    x = np.full(OPERAND_BYTES // stored.itemsize, 2).astype(stored).view(np.int32)
    sums = run("sm_80", f"mma.sync {dtype}", x)[:THREADS]
    found = sums if dtype == "int8" else sums.view(np.float32)
    depth = 32 // stored.itemsize
    np.testing.assert_array_equal(found, 4 * gpu_probes.CHAINS * STEPS * depth * 4)


@pytest.mark.parametrize("arch", PROBES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiply_adds(arch, dtype):
    x = np.full(OPERAND_BYTES // np.dtype(dtype).itemsize, 0.5, dtype).view(np.int32)
    found = run(arch, f"FMA {dtype}", x).view(dtype)[:THREADS]
    wanted = 1 - 0.5 ** (1 + STEPS * gpu_probes.UNROLLED)
    np.testing.assert_allclose(found, gpu_probes.CHAINS * wanted, rtol=1e-6)


@pytest.mark.parametrize(("arch", "name"), ALL)
def test_operations_are_those_of_the_instructions(arch, name):
    """Counted in LLVM's text of a block's one loop."""
    probe = PROBES[arch][name]
    with context(), ir.Location.unknown():
        text = llvm_ir(gpu_probes.module(probe))
    instruction, dtype = name.split()
    if instruction == "FMA":
        each, word = 2 * THREADS, "@llvm.fma."
    elif instruction == "wgmma":
        item = np.dtype(DTYPES.get(dtype, dtype)).itemsize
        each, word = 2 * 2 * 64 * COLUMNS * (32 // item), "wgmma.mma_async.sync"
    else:
        item = np.dtype(DTYPES.get(dtype, dtype)).itemsize
        each, word = 2 * 8 * 16 * 8 * (32 // item), "@llvm.nvvm.mma.m16n8k"
    calls = [line for line in text.splitlines() if word in line and "declare" not in line]
    assert len(calls) * each == probe.operations


@needs_ptxas
@pytest.mark.parametrize(("arch", "name"), ALL)
def test_probes_spill_nothing_and_several_blocks_fit(arch, name):
    probe, machine = PROBES[arch][name], MACHINES[arch]
    with context(), ir.Location.unknown():
        code = next(c for c in cuda.assemble(gpu_probes.module(probe), machine) if c.spills >= 0)
    assert code.spills == 0
    assert code.registers * THREADS * probe.blocks <= 65536
    assert (probe.shared + 1024) * probe.blocks <= 227 * 1024
