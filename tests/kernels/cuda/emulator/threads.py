"""Operations that see threads: registers that name them, memory, shuffles, division.

A row of `EFFECTS` makes, from an operation, a function of the grid, the mask of active lanes and
its operands' arrays. The comment above a group names the section of the PTX ISA 9.0 manual.
"""

from collections.abc import Callable

import numpy as np

from emulator import dependence
from emulator.barriers import check_members
from emulator.grid import SHARED, SHARED_CLUSTER, WARP, Grid
from emulator.masks import Mask, every, some
from emulator.memory import EmulatorError
from emulator.structs import Struct
from emulator.types import dtype_of, number, shape_of, size_of, space_of
from emulator.values import unsigned
from heddle.kernels.mlir import ir


def divide(function: Callable, as_unsigned: bool) -> Callable:
    """Division truncates; by zero the manual leaves the value open, so it is an error here."""

    def row(op):
        def run(grid: Grid, mask: Mask, a, b):
            if np.count_nonzero(b) < b.size:
                zero = (grid.spread(b) == 0) & mask.reshape(-1, *[1] * (b.ndim - 1))
                if zero.any():
                    raise EmulatorError("divides by zero")
                b = np.where(b == 0, b.dtype.type(1), b)
            if as_unsigned:
                return function(unsigned(a), unsigned(b)).view(a.dtype)
            return function(a, b)

        return run

    return row


def quotient(a, b):
    down = a // b
    return down + ((a % b != 0) & ((a < 0) != (b < 0)))


# Special registers ("Special Registers": %tid, %ntid, %ctaid, %nctaid)


def special(read: Callable[[Grid], np.ndarray]) -> Callable:
    return lambda op: lambda grid, mask: np.asarray(read(grid)).astype(np.int32).reshape(-1)


# Memory ("Data Movement and Conversion Instructions": ld, ld.global.nc, st; "atom")


def access(space: int, size: int, alignment: int) -> Callable:
    """Checks alignment and finds the memory, regions, offsets and threads of an access."""

    def where(grid: Grid, mask: Mask, address):
        full = np.where(mask, grid.spread(address), 0)
        if some(full % alignment):
            raise EmulatorError(
                f"misaligned: {size} bytes at an address that is no multiple of {alignment}"
            )
        memory, region, offset, lane = grid.place(space, full)
        if not every(mask):
            region, offset, lane = region[mask], offset[mask], lane[mask]
        if space not in (SHARED, SHARED_CLUSTER):
            dependence.check(grid, lane, region)
        if space == SHARED_CLUSTER and grid.cluster is not None:
            grid.cluster.visit(region, lane)
        return memory, region, offset, lane

    return where


def load(op):
    dtype, shape = shape_of(op.results[0].type)
    # An alignment below what the access needs is fine: LLVM splits it.
    return load_from(space_of(op.operands[0]), dtype, shape, number(op, "alignment", 1))


def load_from(space: int, dtype: np.dtype, shape: tuple[int, ...], alignment: int) -> Callable:
    size = dtype.itemsize * int(np.prod(shape, dtype=int))
    where = access(space, size, alignment)

    def run(grid, mask, address):
        found = np.zeros((len(grid.lane), *shape), dtype)
        if some(mask):
            memory, region, offset, lane = where(grid, mask, address)
            data = memory.load(region, offset, lane, size)
            found[mask] = data.view(dtype).reshape(-1, *shape)
        return found

    return run


def store(op):
    kind = op.operands[0].type
    space, alignment = space_of(op.operands[1]), number(op, "alignment", 1)
    return store_to(space, shape_of(kind)[0], size_of(kind), alignment)


def store_to(space: int, dtype: np.dtype, size: int, alignment: int) -> Callable:
    where = access(space, size, alignment)

    def run(grid, mask, value, address):
        if some(mask):
            memory, region, offset, lane = where(grid, mask, address)
            data = np.ascontiguousarray(grid.spread(value)[mask], dtype)
            memory.store(region, offset, lane, data.view(np.uint8).reshape(len(lane), -1))

    return run


def compare_exchange(op):
    dtype = dtype_of(op.operands[1].type)
    return exchange_in(space_of(op.operands[0]), dtype, number(op, "alignment", 1))


def exchange_in(space: int, dtype: np.dtype, alignment: int) -> Callable:
    where = access(space, dtype.itemsize, alignment)

    def run(grid, mask, address, expected, desired):
        old = np.zeros(len(grid.lane), dtype)
        if some(mask):
            memory, region, offset, lane = where(grid, mask, address)
            pair = [
                np.ascontiguousarray(grid.spread(x)[mask]).view(np.uint8).reshape(len(lane), -1)
                for x in (expected, desired)
            ]
            old[mask] = memory.compare_exchange(region, offset, lane, *pair).view(dtype)[:, 0]
        return Struct([old, (old == expected) & mask])

    return run


# Warps ("Data Movement": shfl.sync)


def shuffle_lanes(op):
    return shuffle_by(str(op.attributes["kind"]).split("<")[-1].strip("> ").split()[-1])


def shuffle_by(kind: str) -> Callable:
    def run(grid, mask, members, value, b, c):
        members, value, b, c = (grid.spread(x) for x in (members, value, b, c))
        check_members(mask, members)
        lane = grid.lane % WARP
        segment, limit = (c >> 8) & 31, c & 31
        highest, lowest = (lane & segment) | (limit & ~segment), lane & segment
        b = b & 31
        source, inside = {
            "up": lambda: (lane - b, lane - b >= highest),
            "down": lambda: (lane + b, lane + b <= highest),
            "bfly": lambda: (lane ^ b, (lane ^ b) <= highest),
            "idx": lambda: (
                lowest | (b & ~segment),
                (lowest | (b & ~segment)) <= highest,
            ),
        }[kind]()
        source = np.where(inside, source, lane) + np.arange(len(lane)) - lane
        if not mask[source[mask]].all():
            raise EmulatorError("shuffles a value out of a lane that is not active")
        return value[source]

    return run


EFFECTS: dict[str, Callable] = {
    # "Integer Arithmetic Instructions": div, rem
    "arith.divsi": divide(quotient, False),
    "arith.divui": divide(np.floor_divide, True),
    "arith.remsi": divide(np.fmod, False),
    "arith.remui": divide(np.remainder, True),
    # "Special Registers"
    "nvvm.read.ptx.sreg.tid.x": special(lambda grid: grid.thread),
    "nvvm.read.ptx.sreg.ntid.x": special(lambda grid: grid.threads),
    "nvvm.read.ptx.sreg.ctaid.x": special(lambda grid: grid.block),
    "nvvm.read.ptx.sreg.nctaid.x": special(lambda grid: grid.blocks),
    # "Data Movement and Conversion Instructions": mov of a variable's address, ld, st, shfl.sync
    "llvm.mlir.addressof": lambda op: (
        lambda grid, mask: np.array(
            [grid.addresses[ir.FlatSymbolRefAttr(op.attributes["global_name"]).value]], np.int64
        )
    ),
    "llvm.load": load,
    "llvm.store": store,
    "nvvm.shfl.sync": shuffle_lanes,
    # "Parallel Synchronization and Communication Instructions": atom.cas
    "llvm.cmpxchg": compare_exchange,
}
