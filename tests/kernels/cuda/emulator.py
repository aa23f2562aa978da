"""A lockstep SIMT machine in NumPy, for the MLIR that CUDA kernels consist of before lowering.

Every thread of every block is one lane of an array. A value is an array [lanes] (vectors
[lanes, n]; uniform values have one lane), and control flow carries the mask of the lanes that are
active. Blocks run at the same time and see their own shared memory. What an operation does is a row
in the tables of `emulator_values`, `emulator_threads` and `emulator_regions`.
"""

from dataclasses import dataclass

import numpy as np
from emulator_grid import BUFFER_BITS, Grid
from emulator_memory import EmulatorError, Memory, Region
from emulator_regions import compile_block
from emulator_types import size_of

from heddle.kernels.mlir import ir


@dataclass
class Buffer:
    """A kernel argument: the array, whether it is written, and how far its base is off 64 bytes."""

    array: np.ndarray
    written: bool = False
    initialised: bool = False
    shift: int = 0


def launch(
    module: ir.Module, grid: int, block: int, buffers: list[Buffer], dims: list[int]
) -> None:
    """Runs the module's one kernel; written buffers hold the result afterwards.

    Raises:
        EmulatorError: The kernel did something that is forbidden; the text ends with the operation.
    """
    kernel = next(op for op in module.body.operations if op.operation.name == "llvm.func")
    addresses, top = _shared_layout(module)
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
    shared = [Region(f"shared memory of block {i}", np.zeros(top, np.uint8)) for i in range(grid)]
    state = Grid(grid, block, Memory(shared), Memory(regions), addresses, bases)
    arguments = kernel.regions[0].blocks[0].arguments
    if len(arguments) != len(buffers) + len(dims):
        raise EmulatorError(f"wanted {len(arguments)} arguments, got {len(buffers)} + {len(dims)}")
    for argument, value in zip(arguments, [*bases, *dims], strict=True):
        state.values[argument] = np.array([value], np.int64)
    with np.errstate(all="ignore"):  # Inactive lanes compute on garbage.
        compile_block(kernel.regions[0].blocks[0])(state, np.ones(grid * block, bool))
    for i, buffer in enumerate(buffers):
        if buffer.written:
            data = state.memory.region(i).view(buffer.array.dtype)
            buffer.array[...] = data.reshape(buffer.array.shape)


def _shared_layout(module: ir.Module) -> tuple[dict[str, int], int]:
    """The offsets of the module's shared arrays by name, and the bytes of them all."""
    offsets, top = {}, 0
    for op in module.body.operations:
        if op.operation.name == "llvm.mlir.global":
            alignment = ir.IntegerAttr(op.attributes["alignment"]).value
            offset = -(-top // alignment) * alignment
            offsets[ir.StringAttr(op.attributes["sym_name"]).value] = offset
            top = offset + size_of(ir.TypeAttr(op.attributes["global_type"]).value)
    return offsets, top
