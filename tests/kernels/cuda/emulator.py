"""A lockstep SIMT machine in NumPy, for the MLIR that CUDA kernels consist of before lowering.

Every thread of every block is one lane of an array. A value is an array [lanes] (vectors
[lanes, n]; uniform values have one lane), and control flow carries the mask of the lanes that are
active (PTX ISA, "Programming Model" and "Control Flow Instructions"). Blocks run at the same time
and see their own shared memory. What each operation does is a row in `emulator_ops.OPS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from emulator_memory import EmulatorError, Memory, Region
from heddle.kernels.mlir import ir

WARP = 32
BUFFER_BITS = 32  # Address of byte b of buffer i: (i + 1) << BUFFER_BITS, plus b.

Mask = np.ndarray
Run = Callable[["Grid", Mask], None]


@dataclass
class Grid:
    """A running launch: `blocks` blocks of `threads` threads, and everything they see."""

    blocks: int
    threads: int
    shared: Memory
    memory: Memory
    addresses: dict[str, int]
    bases: np.ndarray
    values: dict[ir.Value, np.ndarray] = field(default_factory=dict)
    yielded: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lane = np.arange(self.blocks * self.threads)
        self.thread = self.lane % self.threads
        self.block = self.lane // self.threads

    def spread(self, value: np.ndarray) -> np.ndarray:
        """`value` with a row for each lane."""
        return np.broadcast_to(value, (len(self.lane), *value.shape[1:]))

    def place(self, space: int, address: np.ndarray) -> tuple[Memory, np.ndarray, np.ndarray]:
        """The memory, regions and offsets that addresses of all lanes mean."""
        if space == 3:
            return self.shared, self.block, address
        region = ((address + (1 << (BUFFER_BITS - 1))) >> BUFFER_BITS) - 1
        inside = (region >= 0) & (region < len(self.bases))
        return self.memory, region, address - self.bases[np.where(inside, region, 0)]


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
    from emulator_ops import size_of

    kernel = next(op for op in module.body.operations if op.operation.name == "llvm.func")
    addresses, top = {}, 0
    for op in module.body.operations:
        if op.operation.name == "llvm.mlir.global":
            alignment = ir.IntegerAttr(op.attributes["alignment"]).value
            addresses[ir.StringAttr(op.attributes["sym_name"]).value] = top = (
                -(-top // alignment) * alignment
            )
            top += size_of(ir.TypeAttr(op.attributes["global_type"]).value)
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


def compile_block(block: ir.Block) -> Run:
    """Prepares the operations of `block` once, so that loops do not walk the IR again."""
    from emulator_ops import CONTROL, EFFECTS, OPS

    steps: list[tuple[ir.Operation, Run]] = []
    for view in block.operations:
        op = view.operation
        if op.name in CONTROL:
            steps.append((op, CONTROL[op.name](op)))
        elif op.name in EFFECTS:
            steps.append((op, _step(op, EFFECTS[op.name](op), True)))
        elif op.name in OPS:
            steps.append((op, _step(op, OPS[op.name](op), False)))
        else:
            raise EmulatorError(f"the emulator has no row for {op.name}: {op}")

    def run(grid: Grid, mask: Mask) -> None:
        for op, step in steps:
            try:
                step(grid, mask)
            except EmulatorError as error:
                if error.__cause__ is None and "\n" not in str(error):
                    raise EmulatorError(f"{error}\n    {str(op).splitlines()[0]}") from None
                raise

    return run


def _step(op: ir.Operation, function: Callable, effect: bool) -> Run:
    operands, results = list(op.operands), list(op.results)

    def step(grid: Grid, mask: Mask) -> None:
        values = [grid.values[operand] for operand in operands]
        found = function(grid, mask, *values) if effect else function(*values)
        if len(results) == 1:
            grid.values[results[0]] = found
        elif results:
            grid.values.update(zip(results, found, strict=True))

    return step


def merge(mask: Mask, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """`new` in active lanes, `old` in the others."""
    if mask.all():
        return new
    return np.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
