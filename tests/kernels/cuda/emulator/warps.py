"""What the lanes of a warp find out together: their numbers, votes, reductions.

PTX ISA 9.0, "Special Registers": %laneid; "Parallel Synchronization and Communication
Instructions": vote.sync, redux.sync.
"""

from collections.abc import Callable

import numpy as np

from emulator.barriers import check_members
from emulator.grid import WARP, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.values import unsigned

REDUCE = {
    "add": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "umin": np.minimum.reduce, "umax": np.maximum.reduce, "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
}  # fmt: skip


def _kind(op) -> str:
    return str(op.attributes["kind"]).strip("> ").split()[-1]


def _each_warp(grid: Grid, mask: Mask, result: np.ndarray, combine) -> np.ndarray:
    """`combine` of the active lanes of each warp, in all of its lanes."""
    for start in range(0, len(mask), WARP):
        lanes = slice(start, start + WARP)
        if mask[lanes].any():
            result[lanes] = combine(lanes)
    return result


def reduce(op):
    return reduce_by(_kind(op))


def reduce_by(kind: str) -> Callable:
    if kind not in REDUCE:
        raise EmulatorError(f"the emulator knows redux.sync of integers alone, got {kind}")

    def run(grid: Grid, mask: Mask, value, members):
        check_members(mask, grid.spread(members))
        value = grid.spread(value)
        numbers = unsigned(value) if kind.startswith("u") else value

        def combine(lanes: slice):
            return REDUCE[kind](numbers[lanes][mask[lanes]], dtype=numbers.dtype).astype(
                value.dtype
            )

        return _each_warp(grid, mask, np.zeros(len(mask), value.dtype), combine)

    return run


def vote(op):
    kind = _kind(op)

    def run(grid: Grid, mask: Mask, members, holds):
        check_members(mask, grid.spread(members))
        holds = grid.spread(holds)

        def combine(lanes: slice):
            active = holds[lanes] & mask[lanes]
            return {
                "ballot": np.packbits(active, bitorder="little").view(np.int32)[0],
                "any": active.any(),
                "all": (active == mask[lanes]).all(),
                "uni": (active == mask[lanes]).all() or not active.any(),
            }[kind]

        dtype = np.int32 if kind == "ballot" else bool
        return _each_warp(grid, mask, np.zeros(len(mask), dtype), combine)

    return run


EFFECTS = {
    "nvvm.read.ptx.sreg.laneid": lambda op: lambda grid, mask: (grid.lane % WARP).astype(np.int32),
    "nvvm.redux.sync": reduce,
    "nvvm.vote.sync": vote,
}
