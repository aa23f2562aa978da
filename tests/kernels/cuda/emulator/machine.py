"""A SIMT machine in NumPy, for the MLIR that CUDA kernels consist of before lowering.

Threads are lanes of arrays. A value is an array [lanes] (vectors [lanes, n]; uniform values have
one lane), and control flow carries the mask of the lanes that are active. What an operation does is
a row of the tables that `emulator.rows` collects.

A kernel whose only order is the barrier of whole blocks runs with all threads of all blocks in
lockstep. Where there is more (asynchronous copies, mbarriers, matrix units), each warp runs on its
own until it waits, and vector clocks tell what is ordered.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from emulator import bulk, wgmma
from emulator import clusters as emulator_clusters
from emulator.clocks import Clocks
from emulator.cluster import Cluster, Wait
from emulator.dependence import Dependence
from emulator.grid import BUFFER_BITS, WARP, Grid
from emulator.memory import EmulatorError, Memory, Region
from emulator.races import BarrierOrder, ClockOrder
from emulator.regions import Slots, compile_block
from emulator.rows import EFFECTS, Ordering
from emulator.schedule import run_all
from emulator.tensor_map import TensorMap
from emulator.types import number, size_of
from heddle.kernels.mlir import ir

MOST_SHARED = 227 * 1024  # Bytes that a block can have (compute capability 9.0).


@dataclass
class Buffer:
    """A kernel argument: the array, whether it is written, and how far its base is off 64 bytes.

    `settled`: no kernel in front writes it.
    """

    array: np.ndarray
    written: bool = False
    initialised: bool = False
    shift: int = 0
    settled: bool = False


class Runnable(Protocol):
    """What can be launched.

    `arguments` are the names of its parameters' values in a `Grid`, `arrays` those of shared memory
    with their bytes (0: dynamic) and alignment, `cluster` the blocks of one, `registers` what a
    thread has at launch (0: unknown).
    """

    order: Ordering
    arguments: list
    arrays: dict[str, tuple[int, int]]
    cluster: int
    registers: int
    run: Callable[[Grid, np.ndarray], Generator[Wait, None, None]]


class Program:
    """A module's one kernel, whose operations are looked at once for all of its launches.

    `effects`: what its operations do, as `rows` has it, or as `traffic` counts it.
    """

    def __init__(self, module: ir.Module, effects: Mapping[str, Callable] = EFFECTS) -> None:
        kernel = next(op.operation for op in module.body if op.operation.name == "llvm.func")
        self.module = module  # Which holds the operations.
        self.order = Ordering.of(kernel)
        self._slots = Slots(effects)
        self.arguments = self._slots.of(kernel.regions[0].blocks[0].arguments)
        self.arrays = _shared_arrays(module)
        self.cluster, self.registers = 1, number(kernel, "nvvm.maxnreg")
        if "nvvm.cluster_dim" in kernel.attributes:
            self.cluster = int(np.prod(list(kernel.attributes["nvvm.cluster_dim"])))
        self.run = compile_block(kernel.regions[0].blocks[0], self._slots)


def launch(
    program: Runnable | ir.Module,
    grid: int,
    block: int,
    pointers: list[Buffer | TensorMap],
    dims: list[int],
    shared: int = 0,
    maps: Sequence[TensorMap] = (),
) -> None:
    """Runs a program, or a module that is launched once; written buffers hold the result.

    Arguments are passed in the order of `pointers`, `dims`, `maps`.

    A tensor map's buffer need not be an argument itself. `shared` is the dynamic shared memory in
    bytes: what an array of no elements stands for.

    Raises:
        EmulatorError: The kernel did something that is forbidden; the text ends with the operation.
    """
    program = Program(program) if isinstance(program, ir.Module) else program
    given = [*pointers, *dims, *maps]
    if len(program.arguments) != len(given):
        raise EmulatorError(f"wanted {len(program.arguments)} arguments, got {len(given)}")
    maps = [argument for argument in given if isinstance(argument, TensorMap)]
    buffers = [argument for argument in given if isinstance(argument, Buffer)]
    for tensor in maps:
        if not any(tensor.buffer is buffer for buffer in buffers):
            buffers.append(tensor.buffer)
        tensor.region = next(i for i, buffer in enumerate(buffers) if buffer is tensor.buffer)
    addresses, top = _shared_layout(program.arrays, shared)
    regions = [
        Region(
            f"buffer {i}",
            np.frombuffer(buffer.array.tobytes(), np.uint8),
            not buffer.written,
            buffer.initialised,
        )
        for i, buffer in enumerate(buffers)
    ]
    bases = np.array([((i + 1) << BUFFER_BITS) + b.shift for i, b in enumerate(buffers)], np.int64)
    order = program.order
    every = Clocks(grid * block) if order.of_blocks else None
    memory = Memory(regions, partial(ClockOrder, clocks=every) if every else BarrierOrder)
    named = {len(buffers) + 1 + i: tensor for i, tensor in enumerate(maps)}
    of_buffers, of_maps = iter(bases), iter(number << BUFFER_BITS for number in named)

    def value(argument: Buffer | TensorMap | int) -> int:
        if isinstance(argument, Buffer):
            return next(of_buffers)
        return next(of_maps) if isinstance(argument, TensorMap) else argument

    values = {
        number: np.array([value(one)], np.int64)
        for number, one in zip(program.arguments, given, strict=True)
    }
    settled = [buffer.settled for buffer in buffers]
    dependence = Dependence(grid, block, settled) if order.of_grids else None
    if top > MOST_SHARED:
        raise EmulatorError(f"{top} bytes of shared memory, wanted at most {MOST_SHARED}")

    def strand(lane: np.ndarray, blocks_memory: Memory, cluster: Cluster | None) -> Grid:
        return Grid(
            grid, block, lane, blocks_memory, memory, addresses, bases, cluster, dependence, named,
            dict(values),
        )  # fmt: skip

    with np.errstate(all="ignore"):  # Inactive lanes compute on garbage.
        if order.by_warps:
            _run_warps(program, strand, grid, block, top, every)
        else:
            lane = np.arange(grid * block)
            parts = Memory(_shared_regions(range(grid), top), BarrierOrder)
            run_all({"the grid": program.run(strand(lane, parts, None), lane >= 0)}, [])
    if dependence is not None:
        dependence.finish()
    for i, buffer in enumerate(buffers):
        if buffer.written:
            data = memory.region(i).view(buffer.array.dtype)
            buffer.array[...] = data.reshape(buffer.array.shape)


def _run_warps(program: Runnable, strand, grid: int, block: int, top: int, every) -> None:
    size, registers = program.cluster, program.registers
    if grid % size or block % WARP:
        raise EmulatorError(
            f"wanted whole warps, and blocks in clusters of {size}, got {grid} blocks of {block}"
        )
    emulator_clusters.check_registers(registers, block)
    strands, clusters = {}, []
    for first in range(0, grid, size):
        clocks = every or Clocks(size * block)
        base = 0 if every else first * block
        cluster = Cluster(first, size, block, base, registers, clocks)
        parts = Memory(
            _shared_regions(range(first, first + size), top), partial(ClockOrder, clocks=clocks)
        )
        clusters.append(cluster)
        for start in range(first * block, (first + size) * block, WARP):
            name = f"warp {start % block // WARP} of block {start // block}"
            lane = np.arange(start, start + WARP)
            strands[name] = _warp(cluster, program.run, strand(lane, parts, cluster))
        cluster.running = dict.fromkeys(range(size), block // WARP)
    run_all(strands, clusters)
    for cluster in clusters:
        bulk.check_finished(cluster)
        wgmma.check_finished(cluster)


def _warp(cluster: Cluster, run, grid: Grid):
    yield from run(grid, np.ones(WARP, bool))
    cluster.end_warp(int(grid.block[0]))


def _shared_regions(blocks: range, size: int) -> list[Region]:
    return [Region(f"shared memory of block {i}", np.zeros(size, np.uint8)) for i in blocks]


def _shared_layout(arrays: dict[str, tuple[int, int]], dynamic: int) -> tuple[dict[str, int], int]:
    """The offsets of shared arrays by name, and the bytes of them all."""
    offsets, top = {}, 0
    # What has no size of its own is dynamic, and lies behind the rest.
    for name, (size, alignment) in sorted(arrays.items(), key=lambda array: array[1][0] == 0):
        offsets[name] = -(-top // alignment) * alignment
        top = offsets[name] + (size or dynamic)
    return offsets, top


def _shared_arrays(module: ir.Module) -> dict[str, tuple[int, int]]:
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: (
            size_of(ir.TypeAttr(op.attributes["global_type"]).value),
            ir.IntegerAttr(op.attributes["alignment"]).value,
        )
        for op in module.body.operations
        if op.operation.name == "llvm.mlir.global"
    }
