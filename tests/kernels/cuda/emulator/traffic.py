"""What accesses of warps cost, for who asks: sectors of global memory, wavefronts of shared memory.

Global memory: what a warp's instruction asks for comes in as many transactions of 32 bytes as it
lies in (CUDA C++ Best Practices Guide 12.9, "Coalesced Access to Global Memory").

Shared memory: 32 banks, to which words of 32 bits go in turn; a bank gives one word at a time, to
all threads that ask for a byte of it (CUDA C++ Programming Guide 12.9, "Compute Capability 5.x:
Shared Memory", to which 7.x, 8.x and 9.0 refer). What passes at once is a wavefront (Nsight
Compute, "Kernel Profiling Guide"). Of accesses of 8 bytes only those of a half of the warp meet, of
16 bytes those of a quarter (CUDA C Programming Guide 4.2, "Compute Capability 2.x: Larger Than
32-Bit Access"; later editions do not say), so that a half and a quarter take a wavefront each, also
where all ask for the same. What copies of cp.async take no manual says: they are counted as stores.

Counted are instructions as the code generator makes them: of at most 16 bytes, and of their
alignment where that is less. Not counted are bulk copies, wgmma and mbarriers.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emulator import rows
from emulator.grid import SHARED, SHARED_CLUSTER, WARP, Grid
from emulator.masks import Mask, some
from emulator.types import dtype_of, number, size_of, space_of
from heddle.kernels import cuda
from heddle.kernels.mlir import ir

SECTOR = 32  # Bytes of global memory that are moved together.
WORD = 4  # Bytes of a bank of shared memory.
BANKS = 32
WIDEST = 16  # Bytes of a thread in one instruction.
FRAMES = 24
"""Frames of a traceback that a location has to have for its site to be found."""


class Site(NamedTuple):
    """Where in the source an access is emitted: functions, the innermost first, as `file name`."""

    frames: tuple[str, ...]
    operation: str
    shared: bool
    width: int  # Bytes of a thread.


@dataclass
class Cost:
    """What warps' instructions at a site took, and the least for the bytes that they asked for."""

    instructions: int = 0
    taken: int = 0
    least: int = 0

    def add(self, other: "Cost") -> None:
        """Counts what another one has counted, too."""
        self.instructions += other.instructions
        self.taken += other.taken
        self.least += other.least


class Access(NamedTuple):
    """One access of an operation: the operand that is its address, and its bytes in each lane.

    `lanes`: how many lanes of a warp give an address; `alone`: lanes do not share a word, as each
    updates it; `counted`: the operand that tells how many bytes a lane accesses, if there is one.
    """

    operand: int
    size: int
    width: int
    lanes: int = WARP
    alone: bool = False
    counted: int | None = None


def _ordinary(op: ir.Operation, operand: int, kind: ir.Type) -> Access:
    size = size_of(kind)
    return Access(operand, size, min(size, WIDEST, number(op, "alignment", size)))


def _matrices(op: ir.Operation, count: int) -> list[Access]:
    return [Access(0, 16, 16, 8 * count)]


def _copy(op: ir.Operation) -> list[Access]:
    size = number(op, "size")
    counted = 2 if len(op.operands) > 2 else None
    return [Access(0, size, size), Access(1, size, size, counted=counted)]


def _atomic(op: ir.Operation) -> list[Access]:
    size = dtype_of(op.operands[1].type).itemsize
    return [Access(0, size, size, alone=True)]


ACCESSES: dict[str, Callable[[ir.Operation], list[Access]]] = {
    "llvm.load": lambda op: [_ordinary(op, 0, op.results[0].type)],
    "llvm.store": lambda op: [_ordinary(op, 1, op.operands[0].type)],
    "llvm.atomicrmw": _atomic,
    "llvm.cmpxchg": _atomic,
    "nvvm.ldmatrix": lambda op: _matrices(op, number(op, "num")),
    "nvvm.stmatrix": lambda op: _matrices(op, len(op.operands) - 1),
    "nvvm.cp.async.shared.global": _copy,
}


class Traffic:
    """What the programs cost whose operations are those of `effects`, by site."""

    def __init__(self) -> None:
        self.costs: dict[Site, Cost] = {}

    def effects(self) -> dict[str, Callable]:
        """The rows of `rows.EFFECTS`, which count what they access."""
        return rows.EFFECTS | {name: self._counting(name) for name in ACCESSES}

    def total(self, shared: bool) -> Cost:
        """Of all sites, in shared or in global memory."""
        found = Cost()
        for site, cost in self.costs.items():
            if site.shared == shared:
                found.add(cost)
        return found

    def width(self) -> float:
        """Bytes that a thread moves to or from global memory at once, in the mean."""
        found = [(s.width, c.instructions) for s, c in self.costs.items() if not s.shared]
        return sum(w * n for w, n in found) / max(1, sum(n for _, n in found))

    def _counting(self, name: str) -> Callable:
        def row(op: ir.Operation) -> Callable:
            run, frames = rows.EFFECTS[name](op), frames_of(op)
            counted = []
            for access in ACCESSES[name](op):
                shared = space_of(op.operands[access.operand]) in (SHARED, SHARED_CLUSTER)
                site = Site(frames, name.split(".", 1)[1], shared, access.width)
                counted.append((access, shared, self.costs.setdefault(site, Cost())))

            def count_and_run(grid: Grid, mask: Mask, *values):
                for access, shared, cost in counted:
                    for part in _instructions(access, grid, mask, values):
                        cost.add((wavefronts if shared else sectors)(*part))
                return run(grid, mask, *values)

            return count_and_run

        return row


def _instructions(access: Access, grid: Grid, mask: Mask, values: tuple) -> Iterator[tuple]:
    """The lanes, addresses, bytes of a lane and `alone` of each instruction of an access."""
    lane = grid.block * (-(-grid.threads // WARP) * WARP) + grid.thread
    active = mask & (lane % WARP < access.lanes)
    if access.counted is not None:
        active = active & (grid.spread(values[access.counted]) > 0)
    if not some(active):
        return
    address = grid.spread(values[access.operand])[active]
    for offset in range(0, access.size, access.width):
        yield lane[active], address + offset, access.width, access.alone


def sectors(lane: np.ndarray, address: np.ndarray, width: int, alone: bool = False) -> Cost:
    """What it takes in global memory that lanes (of any warps) access `width` bytes each."""
    warp = lane // WARP
    touched = len(_distinct(warp, address // SECTOR)[0])
    asked, _ = _distinct(warp, address)
    return Cost(len(np.unique(warp)), touched, _least(asked, width, SECTOR))


def wavefronts(lane: np.ndarray, address: np.ndarray, width: int, alone: bool = False) -> Cost:
    """What it takes in shared memory; `alone`: of lanes that ask for one word, each comes alone."""
    warp = lane // WARP
    words = np.arange(max(1, width // WORD))
    together = WARP // len(words)  # Lanes that are served at once.
    part = np.repeat(lane // together, len(words))
    word = (address[:, None] // WORD + words).reshape(-1)
    if not alone:
        part, word = _distinct(part, word)
    (parts, _), waits = _counted(part, word % BANKS)
    first = np.flatnonzero(np.r_[True, parts[1:] != parts[:-1]])
    taken = int(np.maximum.reduceat(waits, first).sum())
    asked = warp if alone else _distinct(warp, address)[0]
    return Cost(len(np.unique(warp)), taken, _least(asked, width, BANKS * WORD))


def _distinct(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
    return _counted(*columns)[0]


def _counted(first: np.ndarray, second: np.ndarray) -> tuple[tuple, np.ndarray]:
    """The distinct pairs, in order, and how often each is there."""
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    starts = np.flatnonzero(np.r_[True, (a[1:] != a[:-1]) | (b[1:] != b[:-1])])
    return (a[starts], b[starts]), np.diff(np.r_[starts, len(a)])


def _least(warps: np.ndarray, width: int, unit: int) -> int:
    """Units for the bytes of each warp, which has an entry for each `width` bytes."""
    counts = np.unique(warps, return_counts=True)[1]
    return int((-(-counts * width // unit)).sum())


_FRAME = re.compile(r'"([^"]+)"\("([^"]+)":\d+')
_KERNELS = f"{Path(cuda.__file__).parent}/"
_HELPERS = ("_block.py", "products/mma.py")  # Whose callers say what they are used for.


def frames_of(op: ir.Operation) -> tuple[str, ...]:
    """The functions of kernels that an operation was emitted in, by the location's traceback."""
    found = []
    for function, file in _FRAME.findall(str(op.location)):
        name = file.removeprefix(_KERNELS)
        if name != file and not name.startswith(_HELPERS):
            found.append(f"{name} {function.replace('.<locals>', '')}")
    return tuple(found)
