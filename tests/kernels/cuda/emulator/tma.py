"""Copies of boxes between tensors in global memory and shared memory (TMA).

PTX ISA 9.0, "Data Movement and Conversion Instructions: Tensor copy": cp.async.bulk.tensor;
"Tensors": bounding boxes, out of bounds access (zeros are read, nothing is written), swizzling
modes. The CUDA driver API, cuTensorMapEncodeTiled, says which maps there are.
"""

from collections.abc import Callable

import numpy as np

from emulator import dependence
from emulator.bulk import blocks_of, split, start_load, start_store
from emulator.grid import BUFFER_BITS, Grid
from emulator.masks import Mask
from emulator.mbarrier import find
from emulator.memory import EmulatorError
from emulator.tensor_map import ALIGNMENT, TensorMap
from emulator.threads import access
from emulator.types import space_of


def swizzle(address: np.ndarray, span: int) -> np.ndarray:
    """Where a byte lies: bits 4.. of its address, exclusive or bits 7.. ("Swizzling modes").

    A span of 128 bytes mixes three bits, 64 two, 32 one, 0 none.
    """
    mask = max(span // 16 - 1, 0)
    return address ^ (((address >> 7) & mask) << 4)


def map_of(grid: Grid, address) -> TensorMap:
    found = grid.maps.get(int(address) >> BUFFER_BITS)
    if found is None or int(address) & ((1 << BUFFER_BITS) - 1):
        raise EmulatorError("wanted the address of a tensor map")
    return found


def _box(tensor: TensorMap, start: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Of each byte of a box, innermost first: its offset in the buffer, and whether it exists."""
    offsets, inside = np.zeros(1, np.int64), np.ones(1, bool)
    for first, count, size, stride in zip(
        start, tensor.box, tensor.shape, tensor.all_strides, strict=True
    ):
        index = first + np.arange(count)
        offsets = (index[:, None] * stride + offsets).reshape(-1)
        inside = (((index >= 0) & (index < size))[:, None] & inside).reshape(-1)
    size = tensor.item
    return (offsets[:, None] + np.arange(size)).reshape(-1), np.repeat(inside, size)


def _check_aligned(tensor: TensorMap, offset: int) -> None:
    wanted = max(8 * tensor.swizzle, ALIGNMENT)
    if offset % wanted:
        raise EmulatorError(
            f"misaligned: a box in shared memory at byte {offset}, no multiple of {wanted}"
        )


def _check_coordinates(tensor: TensorMap, start) -> None:
    if len(start) != len(tensor.shape):
        raise EmulatorError(f"wanted {len(tensor.shape)} coordinates, got {len(start)}")


def load(op):
    into, mapped, coordinates, barrier, im2col, multicast, _, predicate = split(op)
    if op.operands[im2col] or op.operands[predicate]:
        raise EmulatorError("the emulator knows tiles without a predicate alone")
    found = load_to(*(space_of(op.operands[part][0]) for part in (into, barrier)))

    def run(grid: Grid, mask: Mask, *values):
        parts = (values[part] for part in (into, mapped, coordinates, barrier, multicast))
        found(grid, mask, *parts)

    return run


def load_to(shared: int, mbarrier: int) -> Callable:
    """Loads boxes; operands are lists of values, of which the ranks to multicast to may be none."""
    to, meet = access(shared, ALIGNMENT, 1), access(mbarrier, 8, 8)

    def run(grid: Grid, mask: Mask, into, mapped, coordinates, barrier, multicast):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane

            def pick(values, lane=lane):
                return [int(grid.spread(value)[lane]) for value in values]

            tensor, start = map_of(grid, pick(mapped)[0]), tuple(pick(coordinates))
            dependence.check(grid, grid.lane[one], np.array([tensor.region]))
            _check_coordinates(tensor, start)
            memory, rank, offset, thread = to(grid, one, into[0])
            _, barrier_rank, barrier_offset, _ = meet(grid, one, barrier[0])
            _check_aligned(tensor, int(offset[0]))
            places = swizzle(int(offset[0]) + np.arange(tensor.bytes), tensor.swizzle)
            ranks = [(int(rank[0]), int(barrier_rank[0]))]
            if multicast:
                ranks = [(r, r) for r in blocks_of(grid, pick(multicast)[0] & 0xFFFF)]
            fetch = _fetcher(grid, tensor, start, grid.lane[lane])
            for target, meeting in ranks:
                barrier_there = find(grid, meeting, barrier_offset[0])
                start_load(grid, memory, target, places, thread, barrier_there, fetch)

    return run


def _fetcher(grid: Grid, tensor: TensorMap, start: tuple[int, ...], lane: int) -> Callable:
    """Checks what a box reads now; the function reads it."""
    source, inside = _box(tensor, start)
    region, lanes = (np.full(int(inside.sum()), number) for number in (tensor.region, lane))
    grid.memory.bytes_at("reads", region, source[inside], lanes, 1)

    def fetch() -> np.ndarray:
        data = np.zeros(tensor.bytes, np.uint8)
        if inside.any():
            data[inside] = grid.memory.load(region, source[inside], lanes, 1)[:, 0]
        return data

    return fetch


def store(op):
    mapped, source, coordinates, _, predicate = split(op)
    if op.operands[predicate]:
        raise EmulatorError("the emulator knows tiles without a predicate alone")
    found = store_from(space_of(op.operands[source][0]))

    def run(grid: Grid, mask: Mask, *values):
        found(grid, mask, *(values[part] for part in (mapped, source, coordinates)))

    return run


def store_from(shared: int) -> Callable:
    """Stores boxes; operands are lists of values."""
    out = access(shared, ALIGNMENT, 1)

    def run(grid: Grid, mask: Mask, mapped, source, coordinates):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane
            start = tuple(int(grid.spread(value)[lane]) for value in coordinates)
            tensor = map_of(grid, grid.spread(mapped[0])[lane])
            dependence.check(grid, grid.lane[one], np.array([tensor.region]))
            _check_coordinates(tensor, start)
            memory, rank, offset, thread = out(grid, one, source[0])
            _check_aligned(tensor, int(offset[0]))
            places = swizzle(int(offset[0]) + np.arange(tensor.bytes), tensor.swizzle)
            data = start_store(grid, memory, int(rank[0]), places, thread)
            target, inside = _box(tensor, start)
            if not inside.any():
                continue
            region = np.full(int(inside.sum()), tensor.region)
            whole = np.full(region.shape, grid.lane[lane])
            grid.memory.store(region, target[inside], whole, data[inside][:, None])

    return run


EFFECTS = {
    "nvvm.cp.async.bulk.tensor.shared.cluster.global": load,
    "nvvm.cp.async.bulk.tensor.global.shared.cta": store,
}
