"""Kernels that do nothing but arithmetic on a GPU, from registers and shared memory.

Every block does the same `steps`, and writes its sums, so that nothing can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.graph.compiler.codegen import cuda
from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block
from heddle.kernels.cuda.products import mma, staging
from heddle.kernels.cuda.warpgroup import instructions, tma
from heddle.kernels.mlir import context, dialect, ir
from heddle.kernels.registry import Machine
from heddle.kernels.spec import Launch
from heddle.runtime import Artifact, artifact_writer
from heddle.runtime import artifact as records

llvm = dialect("llvm")

THREADS = 256
"""Threads of a block: two warpgroups."""

COLUMNS = 256
"""Of a wgmma: the most."""

CHAINS, UNROLLED = 8, 8
"""Independent sums of a thread or warp, and how often a step of single ones goes through them."""

_A_BYTES = THREADS // instructions.THREADS * instructions.ROWS * staging.LINE
OPERAND_BYTES = _A_BYTES + COLUMNS * staging.LINE
"""The input: lines of k of both warpgroups' rows of a, and of the columns of b."""

_WARPS = THREADS // _block.WARP


@dataclass(frozen=True)
class Probe:
    """Arithmetic of a kind: the multiplications and additions of a block in a step.

    `emit(x, y, steps)` emits a block. `blocks` fit a multiprocessor at once.
    """

    emit: Callable[[Any, Any, Any], None]
    operations: int
    shared: int = 0
    blocks: int = 1


def warpgroup_products(kind: mma.Kind, x: Any, y: Any, steps: Any) -> None:
    """Products by wgmma, 64 rows by 256 columns; both sides lie in shared memory, in lines of k."""
    units = instructions.Matrices(kind, COLUMNS, k_last=True)
    shared, thread = mma.DynamicShared("operands"), _block.thread()
    for place in emit.loop(thread * mma.CHUNK, OPERAND_BYTES, THREADS * mma.CHUNK):
        chunk = memory.load(mma.byte_at(x, place), 0, "int32", 4, alignment=mma.CHUNK)
        shared.store(chunk, place)
    tma.fence()
    _block.barrier()
    rows = thread // instructions.THREADS * (instructions.ROWS * staging.LINE)
    a, b = units.a(shared.at(rows)), units.b(shared.at(_A_BYTES), 0)

    def step(i: Any, sums: Any) -> Sequence[Any]:
        instructions.fence()
        for part in range(staging.LINE // (kind.depth * kind.item)):
            sums = units.multiply(sums, units.a_slice(a, part), units.b_slice(b, part))
        instructions.commit()
        instructions.wait(1)
        return [sums]

    (sums,) = emit.carry(0, steps, 1, [units.whole(units.zeros())], step)
    instructions.wait(0)
    _write(y, units.parts(sums), kind.sums)


def warp_products(kind: mma.Kind, x: Any, y: Any, steps: Any) -> None:
    """Products by mma.sync, of each warp 16 x 8 results in each of its chains."""
    words = [
        memory.load(x, _block.thread() * (4 + 2 * CHAINS) + i, "int32")
        for i in range(4 + 2 * CHAINS)
    ]
    a, pairs = words[:4], [words[4 + 2 * i : 6 + 2 * i] for i in range(CHAINS)]
    zeros = [emit.constant(emit.register_type(kind.sums), 0)] * (4 * CHAINS)

    def step(i: Any, *sums: Any) -> Sequence[Any]:
        return [
            value
            for chain, b in enumerate(pairs)
            for value in mma.multiply(kind, a, b, sums[4 * chain : 4 * chain + 4])
        ]

    _write(y, emit.carry(0, steps, 1, zeros, step), kind.sums)


def multiply_adds(dtype: str, x: Any, y: Any, steps: Any) -> None:
    """Fused multiply-adds of each thread, which come closer and closer to 1 from one half."""
    half = memory.load(x, 0, dtype)

    def step(i: Any, *chains: Any) -> Sequence[Any]:
        for _ in range(UNROLLED):
            chains = tuple(emit.fma(chain, half, half) for chain in chains)
        return chains

    _write(y, emit.carry(0, steps, 1, [half] * CHAINS, step), dtype)


def _write(y: Any, values: Sequence[Any], dtype: str) -> None:
    """The sum of a thread's values, in the place of the thread."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    memory.store(total, y, _block.block() * THREADS + _block.thread(), dtype)


def _wgmma(kind: mma.Kind) -> Probe:
    depth = staging.LINE // kind.item
    products = THREADS // instructions.THREADS * instructions.ROWS * COLUMNS * depth
    return Probe(partial(warpgroup_products, kind), 2 * products, OPERAND_BYTES)


def _mma_sync(kind: mma.Kind) -> Probe:
    products = _WARPS * CHAINS * 16 * 8 * kind.depth
    return Probe(partial(warp_products, kind), 2 * products, blocks=2)


def _fma(dtype: str) -> Probe:
    return Probe(partial(multiply_adds, dtype), 2 * THREADS * CHAINS * UNROLLED, blocks=4)


_MULTIPLY_ADDS = {f"FMA {dtype}": _fma(dtype) for dtype in ("float32", "float64")}
_KINDS = {
    **{dtype: mma.KINDS[dtype, dtype] for dtype in ("bfloat16", "float16", "int8")},
    "tf32": mma.TF32,
}
_FLOAT8 = mma.KINDS["float8_e4m3fn", "float8_e4m3fn"]

PROBES: dict[str, dict[str, Probe]] = {
    "sm_80": _MULTIPLY_ADDS
    | {f"mma.sync {dtype}": _mma_sync(kind) for dtype, kind in _KINDS.items()},
    "sm_90a": _MULTIPLY_ADDS
    | {f"wgmma {dtype}": _wgmma(kind) for dtype, kind in {**_KINDS, "float8": _FLOAT8}.items()},
}
"""By architecture, every probe by name: the instruction and the dtype."""


def launch(probe: Probe, blocks: int) -> Launch:
    """How so many blocks of it are started."""
    return Launch((blocks, 1, 1), 1, (THREADS, 1, 1), probe.shared)


def module(probe: Probe) -> Any:
    """The probe's kernel `(x, y, steps)` in the current context."""

    def body() -> None:
        x, y, steps = ir.InsertionPoint.current.block.arguments
        probe.emit(x, y, emit.Number(steps))

    return cuda.function(2, 1, launch(probe, 1), body)


def artifact(name: str, machine: Machine, blocks: int, steps: int) -> Artifact:
    """A model `y = probe(x)`: x has `OPERAND_BYTES`, y an element of at most 8 bytes a thread."""
    probe = PROBES[machine.arch][name]
    with context(), ir.Location.unknown():
        codes = cuda.assemble(module(probe), machine)
    started = launch(probe, blocks)
    kernel = records.Kernel(name, codes, launches=(records.Launch(started.block, started.shared),))
    words, results = OPERAND_BYTES // 4, 2 * blocks * THREADS
    program = records.Program(
        "cuda",
        (kernel,),
        (records.Buffer("input", 4 * words), records.Buffer("output", 4 * results)),
        records.Routine(()),
        records.Routine((records.Dispatch(0, (0, 1), (steps,), (started.grid,), 1, name),)),
    )
    x, y = records.Tensor("x", "int32", (words,)), records.Tensor("y", "int32", (results,))
    record = records.ArtifactRecord(name, (), (x,), (y,), (), (), (program,))
    return artifact_writer.write(record)
