"""Matrix multiplication by warpgroups: wgmma, its descriptors, its groups.

PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions": wgmma.mma_async m64nNkK, "Register
Fragments" (warp w of the four holds rows 16 w to 16 w + 15, a lane the columns of mma.sync),
"Shared Memory Matrix Layout", "Strides", "Matrix Descriptor Format", wgmma.fence, commit_group,
wait_group. A descriptor's canonical layout, in units of 16 bytes, with W = swizzle / 16, or 1:

    K-major    ((8, n), 2) : ((W, stride), 1), but leading in place of 1 where there is no swizzle
    MN-major   ((W, n), (8, k)) : ((1, leading), (W, stride)), the two exchanged without a swizzle

The swizzle mixes bits of the address, so that a start in the middle of a row of an atom is right.

Each warp computes its 16 rows; that the four do the same is checked. A wait is for what all four
issue together, so that one warp may speak for the warpgroup after it. Accumulators may not be
looked at before the wait for their group.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from emulator.grid import WARP, Grid
from emulator.masks import Mask
from emulator.memory import EmulatorError
from emulator.mma import GROUP, KINDS, MEMBER, as_numbers, fragment_of_a
from emulator.structs import Pending, Struct
from emulator.tma import swizzle
from emulator.types import number

SPANS = (0, 128, 64, 32)  # Bits 62 and 63 of a descriptor.
K_BYTES = 32  # Of k in one instruction, of every type.


@dataclass
class Units:
    """What one warp has done with the matrix units: groups committed and waited for."""

    committed: int = 0
    waited: int = 0
    fenced: bool = False
    done: int = 0


def units_of(grid: Grid, warp: int) -> Units:
    return grid.cluster.groups.setdefault(("wgmma", int(grid.block[0]), warp), Units())


def in_step(grid: Grid, mask: Mask, what: object) -> Units:
    """The warp's state; the four warps of a warpgroup do the same things in the same order."""
    if not mask.all():
        raise EmulatorError("divergent: wgmma wants all threads of a warp")
    groups, block, warp = grid.cluster.groups, int(grid.block[0]), int(grid.thread[0]) // WARP
    units = units_of(grid, warp)
    steps = groups.setdefault(("steps of wgmma", block, warp // 4), [])
    if units.done == len(steps):
        steps.append(what)
    elif steps[units.done] != what:
        raise EmulatorError("divergent: the warps of a warpgroup do different wgmma instructions")
    units.done += 1
    return units


# Descriptors


@lru_cache(256)
def matrix_in_shared(descriptor: int, rows: range, item: int, k_major: bool) -> np.ndarray:
    """The addresses of the bytes that a descriptor means: [rows, elements of k, bytes of one]."""
    rows = np.arange(rows.start, rows.stop)
    start, leading, stride = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    span = SPANS[descriptor >> 62 & 3]
    if descriptor >> 49 & 7:
        raise EmulatorError("the emulator knows atoms that start where their pattern does alone")
    width = max(span, 16)
    k = np.arange(K_BYTES // item)
    if k_major:
        across = k * item
        columns = across // 16 * leading + across % 16 if span == 0 else across
        address = (rows // 8 * stride + rows % 8 * width)[:, None] + columns
    else:
        chunk = width // item  # Rows side by side in one row of an atom.
        far, deep = (leading, stride) if span else (stride, leading)
        address = (rows // chunk * far + rows % chunk * item)[:, None]
        address = address + k % 8 * width + k // 8 * deep
    address = start + address
    return swizzle(address[..., None] + np.arange(item), span)


def read_matrix(grid: Grid, descriptor: np.ndarray, rows, kind: str, k_major: bool, units: Units):
    """The rows of an operand in shared memory, [rows, k]; the async proxy reads until the wait."""
    if (descriptor != descriptor[0]).any():
        raise EmulatorError("divergent: the descriptors of a warp differ")
    dtype = KINDS[kind]
    places = matrix_in_shared(int(descriptor[0]) & (2**64 - 1), rows, dtype.itemsize, k_major)
    memory, cluster = grid.shared, grid.cluster
    rank = int(grid.block[0]) - cluster.first
    if places.max() >= memory.sizes[rank]:
        raise EmulatorError(
            f"out of bounds: a descriptor reaches byte {places.max()} of {memory.names[rank]}"
            f" ({memory.sizes[rank]} bytes)"
        )
    at = (memory.starts[rank] + places).reshape(1, -1)
    threads = cluster.number(grid.lane)
    memory.check_ordinary(at)
    memory.refuse(memory.order.read_later(at, threads, agent_of(grid), units.committed + 1), at)
    memory.check_valid(at)
    elements = memory.bytes[at].reshape(*places.shape).view(dtype)[..., 0]
    return as_numbers(elements, kind)


def agent_of(grid: Grid) -> int:
    warpgroup = int(grid.cluster.number(grid.lane)[0]) // (4 * WARP)
    return grid.cluster.clocks.agent("the wgmma in flight of warpgroup", warpgroup)


# The instruction


@dataclass(frozen=True)
class Shape:
    """What one wgmma multiplies: m64 n k, the types of A, B and D, signs, and what is K-major."""

    n: int
    a: str
    b: str
    d: str
    signs: tuple[int, int] = (1, 1)
    k_major: tuple[bool, bool] = (True, True)

    def check(self, k: int) -> None:
        wanted = K_BYTES // KINDS[self.a].itemsize
        sums = "s32" if self.a in ("s8", "u8") else "f32"
        if (k, self.d) != (wanted, sums):
            raise EmulatorError(
                f"the emulator knows k{wanted} with sums of {sums} for {self.a}, got k{k}, {self.d}"
            )


def multiply(grid: Grid, shape: Shape, units: Units, a, b, sums: list | None) -> list:
    """D = A B, plus `sums` unless None: the lane's accumulators, which are in flight.

    `a` is a descriptor or four registers, `b` a descriptor.
    """
    kept = sums is not None and all(isinstance(part, Pending) for part in sums)
    if not units.fenced and (isinstance(a, list) or not kept):
        raise EmulatorError("no wgmma.fence before a wgmma on registers that were touched")
    warp = int(grid.thread[0]) // WARP % 4
    if isinstance(a, list):
        left = fragment_of_a([grid.spread(r) for r in a], shape.a)[0]
    else:
        rows = range(16 * warp, 16 * warp + 16)
        left = read_matrix(grid, grid.spread(a), rows, shape.a, shape.k_major[0], units)
    right = read_matrix(grid, grid.spread(b), range(shape.n), shape.b, shape.k_major[1], units)
    found = (shape.signs[0] * shape.signs[1] * (left @ right.T))[_places_of_sums(shape.n)]
    if sums is not None:
        found += [x.value if isinstance(x, Pending) else grid.spread(x) for x in sums]
    dtype = np.int32 if shape.d == "s32" else np.float32
    return [Pending(part, units, units.committed + 1) for part in found.astype(dtype)]


@cache
def _places_of_sums(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of D that a lane's accumulators are, [n / 2, lanes] each."""
    i = np.arange(n // 2)[:, None]
    return GROUP + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * MEMBER + i % 2


def _name(attribute) -> str:
    return re.search(r"[<\s](\w+)>", str(attribute))[1]


def mma_async(op):
    sizes = re.search(r"m = 64, n = (\d+), k = (\d+)", str(op.attributes["shape"]))
    names = {key: _name(op.attributes[key]) for key in ("typeA", "typeB", "typeD", "scaleD")}
    signs = tuple(-1 if _name(op.attributes[key]) == "neg" else 1 for key in ("scaleA", "scaleB"))
    major = _name(op.attributes["layoutA"]) == "row", _name(op.attributes["layoutB"]) == "col"
    shape = Shape(int(sizes[1]), names["typeA"], names["typeB"], names["typeD"], signs, major)
    shape.check(int(sizes[2]))

    def run(grid: Grid, mask: Mask, sums: Struct, a, b):
        units = in_step(grid, mask, (op, int(a[0]), int(b[0])))
        parts = None if names["scaleD"] == "zero" else sums.parts
        return Struct(multiply(grid, shape, units, a, b, parts))

    return run


# In what follows `step` is what tells one instruction of a kernel from others.


def fence(step: object) -> Callable:
    def run(grid: Grid, mask: Mask):
        in_step(grid, mask, step).fenced = True

    return run


def commit(step: object) -> Callable:
    def run(grid: Grid, mask: Mask):
        in_step(grid, mask, step).committed += 1

    return run


def wait(step: object, left: int) -> Callable:
    """Waits for all of a group: for all four warps, which issue it together."""

    def run(grid: Grid, mask: Mask):
        units = in_step(grid, mask, step)
        group = units.committed - left
        units.waited = max(units.waited, group)
        units.fenced = False
        first = int(grid.thread[0]) // WARP // 4 * 4
        for warp in range(first, first + 4):
            other = units_of(grid, warp)
            if other.committed < group:
                yield (lambda other=other: other.committed >= group), f"wgmma of warp {warp}"
        threads = grid.cluster.number(grid.lane)
        grid.cluster.clocks.learn(threads, agent_of(grid), units.waited)

    return run


def check_finished(cluster) -> None:
    """At the end: every warp of a warpgroup did all that one of them did."""
    for key, steps in list(cluster.groups.items()):
        if key[0] == "steps of wgmma":
            for warp in range(4 * key[2], 4 * key[2] + 4):
                done = cluster.groups.get(("wgmma", key[1], warp), Units()).done
                if done != len(steps):
                    raise EmulatorError(
                        f"divergent: warp {warp} did {done} of {len(steps)} wgmma instructions"
                    )


BLOCKING = {"nvvm.wgmma.wait.group.sync.aligned": lambda op: wait(op, number(op, "group"))}
EFFECTS = {
    "nvvm.wgmma.mma_async": mma_async,
    "nvvm.wgmma.fence.aligned": fence,
    "nvvm.wgmma.commit.group.sync.aligned": commit,
}
