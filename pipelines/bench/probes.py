"""Kernels that do one thing as fast as the machine can: read, copy, multiply and add.

They are emitted, compiled, packed into artifacts and run on the thread pool like every kernel, so
that a limit is one of this runtime on this machine. A task works on a slice of its own, several
times over; tasks are numbered so that those of one slice follow each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from heddle.graph.compiler.codegen.cpu import assemble, function
from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.mlir import context, dialect, ir
from heddle.kernels.registry import MACHINES, Machine
from heddle.runtime import Artifact, artifact_writer
from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Dispatch,
    Kernel,
    Program,
    Routine,
    Tensor,
)

llvm = dialect("llvm")

CHAINS = 12
"""Independent accumulators: more than the latency of an addition times the units for it, and few
enough for 16 registers (Intel Optimization Reference Manual, section 2)."""

LARGE = 10**9
"""A dispatch of so much work always goes to the thread pool."""

Emit = Callable[["Frame"], None]


@dataclass(frozen=True)
class Frame:
    """What a probe is given: slices of `size` elements in `source` and `target`."""

    lanes: int
    source: Any
    target: Any
    size: Any
    repeats: Any
    first: Any
    last: Any

    def slices(self) -> Any:
        """Emits a loop over the tasks; gives the task and the first element of its slice."""
        for task in emit.loop(self.first, self.last):
            yield task, sizes.floordiv(task, self.repeats) * self.size


def read(frame: Frame) -> None:
    """Loads the slice, in as many chains; the result is the exclusive or of all."""
    word = emit.integer(32)
    zero = emit.constant(word, 0, frame.lanes)
    for task, start in frame.slices():

        def step(i: Any, *chains: Any, start: Any = start) -> list[Any]:
            return [
                chain ^ memory.load(frame.source, start + i + n * frame.lanes, "int32", frame.lanes)
                for n, chain in enumerate(chains)
            ]

        chains = emit.carry(0, frame.size, CHAINS * frame.lanes, [zero] * CHAINS, step)
        total = chains[0]
        for chain in chains[1:]:
            total = total ^ chain
        memory.store(total, frame.target, task * frame.lanes, "int32")


def copy(frame: Frame, streaming: bool = False) -> None:
    """Loads the slice and stores it, past the caches where `streaming`."""
    for _, start in frame.slices():
        for i in emit.loop(0, frame.size, 4 * frame.lanes):
            for n in range(4):
                at = start + i + n * frame.lanes
                value = memory.load(frame.source, at, "int32", frame.lanes)
                pointer = memory.at(frame.target, at, "int32")
                llvm.store(value, pointer, alignment=4 * frame.lanes, nontemporal=streaming)


def multiply_add(frame: Frame, dtype: str = "float32") -> None:
    """Chains of fused multiply-adds in registers, `size` times each."""
    lanes = frame.lanes * 4 // emit.ITEM_SIZE[dtype]
    for task, _ in frame.slices():
        factor = memory.load(frame.source, 0, dtype, lanes)
        start = [memory.load(frame.source, n, dtype, lanes) for n in range(CHAINS)]

        def step(i: Any, *chains: Any, factor: Any = factor) -> list[Any]:
            return [emit.fma(chain, factor, factor) for chain in chains]

        chains = emit.carry(0, frame.size, 1, start, step)
        total = chains[0]
        for chain in chains[1:]:
            total = total + chain
        memory.store(total, frame.target, task * lanes, dtype)


DOTS = {"vdpbf16ps": ("avx512bf16.dpbf16ps.512", "float32", "vector<32xbf16>")}
DOTS["vpdpbusd"] = ("avx512.vpdpbusd.512", "int32", "vector<64xi8>")
"""LLVM's intrinsic of a dot product, the dtype of its sums, and the type of its operands."""

DOT_CHAINS = 24
"""As many of the 32 registers of AVX-512: the sums of pairs take longer than a multiply-add."""


def dots(frame: Frame, product: str) -> None:
    """Chains of dot products in registers, `size` times each."""
    name, dtype, kind = DOTS[product]
    operand = ir.Type.parse(kind)
    for task, _ in frame.slices():
        words = memory.load(frame.source, 0, "int32", frame.lanes)
        factor = llvm.bitcast(operand, words)
        zero = emit.constant(emit.register_type(dtype), 0, frame.lanes)

        def step(i: Any, *chains: Any, factor: Any = factor) -> list[Any]:
            return [_dot(name, chain, factor) for chain in chains]

        chains = emit.carry(0, frame.size, 1, [zero] * DOT_CHAINS, step)
        total = chains[0]
        for chain in chains[1:]:
            total = total + chain
        memory.store(total, frame.target, task * frame.lanes, dtype)


def _dot(name: str, total: Any, factor: Any) -> Any:
    operands = [total, factor, factor]
    return llvm.call_intrinsic(total.type, f"llvm.x86.{name}", operands, [], [])


TILE = 256
"""Words of a tile: 16 rows of 64 bytes."""

TILES = 4 * TILE
"""Words that a step of `tiles` reads: two tiles of each side, for four products."""

# The 64 bytes of LDTILECFG: palette 1, eight tiles of 64 bytes in 16 rows (Intel SDM, volume 2).
_TILE_CONFIG = (1, 0, 0x0040_0040_0040_0040, 0x0040_0040_0040_0040, 0, 0, 0x1010_1010_1010_1010, 0)


def tiles(frame: Frame, product: str, load_each: bool) -> None:
    """Products of AMX tiles, two by two; the operands are loaded once, or in each step."""
    config = host.byte_buffer(64)
    for n, word in enumerate(_TILE_CONFIG):
        memory.store(emit.index(word), config, n, "int64")
    _intrinsic("ldtilecfg", config)
    stride = emit.index(4 * TILE // 16)

    def load(start: Any) -> None:
        for n in range(4):
            pointer = memory.at(frame.source, start + n * TILE, "int32")
            _intrinsic("tileloadd64", 4 + n, pointer, stride)

    for task, start in frame.slices():
        for n in range(4):
            _intrinsic("tilezero", n)
        if not load_each:
            load(start)
        for i in emit.loop(0, frame.size, TILES):
            if load_each:
                load(start + i)
            for n in range(4):
                _intrinsic(product, n, 4 + n // 2, 6 + n % 2)
        _intrinsic("tilestored64", 0, memory.at(frame.target, task * TILE, "int32"), stride)
    _intrinsic("tilerelease")


def _intrinsic(name: str, *operands: Any) -> None:
    """A call of LLVM's intrinsic for one instruction; numbers are tile registers."""
    byte = emit.integer(8)
    values = [emit.constant(byte, item) if isinstance(item, int) else item for item in operands]
    llvm.call_intrinsic(None, f"llvm.x86.{name}", values, [], [])


@cache
def code(kind: str, arch: str) -> Code:
    """The machine code of the probe `kind` for one level of x86-64."""
    machine = MACHINES[arch]
    with context(), ir.Location.unknown():
        return assemble(function(machine, partial(_emit, PROBES[kind], machine)), machine)


def _emit(body: Emit, machine: Machine) -> None:
    dims, buffers, first, last = ir.InsertionPoint.current.block.arguments
    pointer, word = emit.pointer_type(), emit.integer(64)
    source, target = (llvm.load(pointer, memory.at(buffers, n, "int64")) for n in (0, 1))
    size, repeats = (llvm.load(word, memory.at(dims, n, "int64")) for n in (0, 1))
    limits = emit.Number(first), emit.Number(last)
    body(Frame(machine.vector_bytes // 4, source, target, size, repeats, *limits))


def artifact(kind: str, arch: str, slices: int, size: int, repeats: int, results: int) -> Artifact:
    """A model `y = probe(x)`: x has `slices` times `size` words of 4 bytes, y has `results`."""
    words = slices * size
    tasks = slices * repeats
    buffers = (Buffer("input", 4 * words), Buffer("output", 4 * results))
    run = Dispatch(0, (0, 1), (size, repeats), ((tasks, 1, 1),), LARGE, kind)
    program = Program(
        "cpu", (Kernel(kind, (code(kind, arch),)),), buffers, Routine(()), Routine((run,))
    )
    x, y = Tensor("x", "int32", (words,)), Tensor("y", "int32", (results,))
    record = ArtifactRecord(kind, (), (x,), (y,), (), (), (program,))
    return artifact_writer.write(record)


PROBES: dict[str, Emit] = {
    "read": read,
    "copy": copy,
    "stream": partial(copy, streaming=True),
    "float32": multiply_add,
    "float64": partial(multiply_add, dtype="float64"),
    **{product: partial(dots, product=product) for product in DOTS},
    **{
        f"{product} from {place}": partial(tiles, product=product, load_each=place == "memory")
        for product in ("tdpbf16ps", "tdpbssd")
        for place in ("registers", "memory")
    },
}
"""Every probe by name."""
