"""Matrices in the registers of a warp: ldmatrix, stmatrix, mma.sync.

PTX ISA 9.0, "Warp Level Matrix Instructions": ldmatrix, stmatrix, "Matrix Fragments for
mma.m16n8k16 / m16n8k8 / m16n8k32". With g = lane / 4, t = lane % 4 and e elements in a register of
32 bits: register r of A has row g + 8 (r % 2), columns e t + 4 e (r / 2) and the next ones;
register r of B has column g, rows e t + 4 e r and the next ones; C has rows g and g + 8, columns
2 t and 2 t + 1.

Sums are rounded once, from float64; tensor cores keep fewer bits between.
"""

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np

from emulator.grid import WARP, Grid
from emulator.masks import Mask, every
from emulator.memory import EmulatorError
from emulator.structs import Struct
from emulator.threads import access
from emulator.types import number, space_of

LANE = np.arange(WARP)
GROUP, MEMBER = LANE // 4, LANE % 4
ROW_BYTES = 16  # Of an 8 x 8 matrix of 16 bits.


def whole_warps(mask: Mask, what: str) -> np.ndarray:
    """The warps that are active, each of them whole (`.sync.aligned`): bool [warps]."""
    warps = mask.reshape(-1, WARP)
    if every(mask):
        return np.ones(len(warps), bool)
    if (warps.any(axis=1) != warps.all(axis=1)).any():
        raise EmulatorError(f"divergent: {what} wants all threads of a warp")
    return warps.all(axis=1)


# ldmatrix, stmatrix


def _addressed(space: int, count: int, name: str):
    """Finds the rows of `count` matrices, whose addresses the first 8 `count` lanes give."""
    where = access(space, ROW_BYTES, ROW_BYTES)

    def find(grid: Grid, mask: Mask, address):
        warps = whole_warps(mask, name)
        lanes = warps[:, None] & (8 * count > LANE)
        return warps, where(grid, lanes.reshape(-1), address)

    return find


def _transposed(op) -> bool:
    return "col" in str(op.attributes["layout"])


def load_matrices(op):
    return load_from(space_of(op.operands[0]), number(op, "num"), _transposed(op))


def load_from(space: int, count: int, transposed: bool) -> Callable:
    find = _addressed(space, count, "ldmatrix")

    def run(grid: Grid, mask: Mask, address):
        warps, (memory, region, offset, lane) = find(grid, mask, address)
        rows = memory.load(region, offset, lane, ROW_BYTES)
        matrices = rows.view(np.uint16).reshape(-1, count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        # Register i of a lane: row g, columns 2 t and 2 t + 1 of matrix i.
        pairs = np.ascontiguousarray(matrices).view(np.int32)[:, :, GROUP, MEMBER]
        found = []
        for i in range(count):
            register = np.zeros((len(warps), WARP), np.int32)
            register[warps] = pairs[:, i]
            found.append(register.reshape(-1))
        return found[0] if count == 1 else Struct(found)

    return run


def store_matrices(op):
    return store_to(space_of(op.operands[0]), len(op.operands) - 1, _transposed(op))


def store_to(space: int, count: int, transposed: bool) -> Callable:
    find = _addressed(space, count, "stmatrix")

    def run(grid: Grid, mask: Mask, address, *registers):
        warps, (memory, region, offset, lane) = find(grid, mask, address)
        pairs = np.stack([grid.spread(r).reshape(-1, WARP)[warps] for r in registers], axis=1)
        matrices = np.ascontiguousarray(pairs.reshape(-1, count, 8, 4)).view(np.uint16)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        rows = np.ascontiguousarray(matrices).view(np.uint8).reshape(-1, ROW_BYTES)
        memory.store(region, offset, lane, rows)

    return run


# mma.sync

KINDS = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def element_kind(op, attribute: str, operand: int) -> str:
    """`"bf16"` and the like, of a multiplicand."""
    if attribute in op.attributes:
        return str(op.attributes[attribute]).split("<")[-1].strip("> ").split()[-1]
    return str(op.operands[operand].type).split("x")[-1].strip(">")


def as_numbers(elements: np.ndarray, kind: str) -> np.ndarray:
    """Elements as they are multiplied: int64 or float64; tf32 has 10 bits of fraction."""
    if kind == "tf32":
        elements = (elements.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return elements.astype(np.int64 if elements.dtype.kind in "iu" else np.float64)


def unpack(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """Registers of 32 bits, of whole warps, as numbers [warps, registers x 32 x elements]."""
    words = np.array(registers).view(np.uint8).reshape(len(registers), -1, 4 * WARP)
    words = np.ascontiguousarray(words.swapaxes(0, 1)).reshape(words.shape[1], -1)
    return as_numbers(words.view(KINDS[kind]), kind)


@cache
def _places_of_a(each: int) -> np.ndarray:
    """Which of what `unpack` gives are the elements of A, of `each` in a register."""
    found = np.zeros((16, 8 * each), int)
    for r in range(4):
        for i in range(each):
            row, column = GROUP + 8 * (r % 2), each * MEMBER + 4 * each * (r // 2) + i
            found[row, column] = (r * WARP + LANE) * each + i
    return found


@cache
def _places_of_b(each: int) -> np.ndarray:
    """The same of B."""
    found = np.zeros((8 * each, 8), int)
    for r in range(2):
        for i in range(each):
            found[each * MEMBER + 4 * each * r + i, GROUP] = (r * WARP + LANE) * each + i
    return found


def fragment_of_a(registers, kind: str) -> np.ndarray:
    """The matrix A in four registers, [warps, 16, 8 e]."""
    return unpack(registers, kind).take(_places_of_a(4 // KINDS[kind].itemsize), axis=1)


def fragment_of_b(registers, kind: str) -> np.ndarray:
    """The matrix B in two registers, [warps, 8 e, 8]."""
    return unpack(registers, kind).take(_places_of_b(4 // KINDS[kind].itemsize), axis=1)


PLACES_OF_C = np.array([8 * (GROUP + 8 * (i // 2)) + 2 * MEMBER + i % 2 for i in range(4)])


def multiply(op):
    sizes = list(op.attributes["operandSegmentSizes"])
    kinds = [
        element_kind(op, "multiplicandAPtxType", 0),
        element_kind(op, "multiplicandBPtxType", sizes[0]),
    ]
    depth = 8 * 4 // KINDS[kinds[0]].itemsize
    wanted = f"#nvvm.shape<m = 16, n = 8, k = {depth}>"
    clips = "satfinite" in str(op.attributes)
    if str(op.attributes["shape"]) != wanted or sizes != [4, 2, 4] or clips:
        raise EmulatorError(f"the emulator knows {kinds[0]} in {wanted}, wrapped, alone")
    return multiply_add(*kinds)


def multiply_add(*kinds: str) -> Callable:
    """mma.sync of 16 rows, 8 columns and 32 bytes of k, of elements of `kinds`."""

    def run(grid: Grid, mask: Mask, *values):
        whole_warps(mask, "mma.sync")
        registers = [grid.spread(v) for v in values]
        a, b = fragment_of_a(registers[:4], kinds[0]), fragment_of_b(registers[4:6], kinds[1])
        product = (a @ b).reshape(len(a), -1).take(PLACES_OF_C, axis=1)
        sums = np.array(registers[6:])
        return Struct(list((sums + product.swapaxes(0, 1).reshape(sums.shape)).astype(sums.dtype)))

    return run


EFFECTS = {
    "nvvm.ldmatrix": load_matrices,
    "nvvm.stmatrix": store_matrices,
    "nvvm.mma.sync": multiply,
}
