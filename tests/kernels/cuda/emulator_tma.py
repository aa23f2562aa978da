"""Copies of boxes between tensors in global memory and shared memory (TMA).

PTX ISA 9.0, "Data Movement and Conversion Instructions: Tensor copy": cp.async.bulk.tensor,
cp.async.bulk.commit_group, wait_group; "Tensors": bounding boxes, out of bounds access (zeros are
read, nothing is written), swizzling modes. The CUDA driver API, cuTensorMapEncodeTiled, says which
maps there are.

Loads arrive as late as they may and count their bytes at an mbarrier; stores read shared memory
until their thread waits for their group. Both go through the async proxy.
"""

import itertools

import emulator_dependence
import numpy as np
from emulator_clocks import IN_FLIGHT
from emulator_grid import BUFFER_BITS, Grid, Mask
from emulator_mbarrier import check_made, find
from emulator_memory import EmulatorError
from emulator_tensor_map import ALIGNMENT, TensorMap
from emulator_threads import access
from emulator_types import number


def swizzle(address: np.ndarray, span: int) -> np.ndarray:
    """Where a byte lies: bits 4.. of its address, exclusive or bits 7.. ("Swizzling modes").

    A span of 128 bytes mixes three bits, 64 two, 32 one, 0 none.
    """
    mask = max(span // 16 - 1, 0)
    return address ^ (((address >> 7) & mask) << 4)


def _map_of(grid: Grid, address) -> TensorMap:
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


def _split(op) -> list[slice]:
    """Where each kind of operand lies among an operation's operands."""
    ends = list(itertools.accumulate(op.attributes["operandSegmentSizes"], initial=0))
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def load(op):
    into, mapped, coordinates, barrier, im2col, multicast, _, predicate = _split(op)
    if op.operands[im2col] or op.operands[predicate]:
        raise EmulatorError("the emulator knows tiles without a predicate alone")
    to = access(op.operands[into][0], ALIGNMENT, 1)
    meet = access(op.operands[barrier][0], 8, 8)

    def run(grid: Grid, mask: Mask, *values):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane
            pick = [int(grid.spread(value)[lane]) for value in values]
            emulator_dependence.check(grid, grid.lane[one])
            tensor, start = _map_of(grid, pick[mapped][0]), tuple(pick[coordinates])
            _check_coordinates(tensor, start)
            memory, rank, offset, thread = to(grid, one, values[into][0])
            _, barrier_rank, barrier_offset, _ = meet(grid, one, values[barrier][0])
            _check_aligned(tensor, int(offset[0]))
            ranks = [(int(rank[0]), int(barrier_rank[0]))]
            if pick[multicast]:
                chosen = pick[multicast][0] & 0xFFFF
                ranks = [(r, r) for r in range(16) if chosen >> r & 1]
                if not ranks or ranks[-1][0] >= grid.cluster.blocks:
                    raise EmulatorError(
                        f"wanted blocks of a cluster of {grid.cluster.blocks}, got mask {chosen:#x}"
                    )
            for target, meeting in ranks:
                _start_load(grid, tensor, start, memory, target, int(offset[0]), thread,
                            find(grid, meeting, barrier_offset[0]))  # fmt: skip

    return run


def _start_load(grid: Grid, tensor, start, memory, rank: int, offset: int, thread, barrier) -> None:
    check_made(grid, barrier, thread, True)
    grid.cluster.check_alive(rank)
    places = swizzle(offset + np.arange(tensor.bytes), tensor.swizzle)
    memory.bytes_at("copies to", np.array([rank]), np.array([offset]), thread, tensor.bytes)
    at = (memory.starts[rank] + places)[None]
    memory.check_ordinary(at)
    memory.refuse(memory.order.write_later(at, thread, [barrier.agent], [IN_FLIGHT]), at)
    sender = grid.cluster.first * grid.threads + thread

    def arrive() -> None:
        source, inside = _box(tensor, start)
        data = np.zeros(tensor.bytes, np.uint8)
        region = np.full(int(inside.sum()), tensor.region)
        whole = np.broadcast_to(sender, region.shape)
        data[inside] = grid.memory.load(region, source[inside], whole, 1)[:, 0]
        memory.put(at, data[None])
        memory.order.stamp[at] = barrier.phase + 1
        barrier.copied(tensor.bytes)

    grid.cluster.late.append(arrive)


class Bulk:
    """How many groups of stores one thread has committed, and how many it waited for."""

    def __init__(self) -> None:
        self.committed = self.waited = 0
        self.open = False


def _bulk(grid: Grid, thread: int) -> Bulk:
    return grid.cluster.groups.setdefault(("bulk", thread), Bulk())


def _agent(grid: Grid, thread: int) -> int:
    return grid.cluster.clocks.agent("a bulk store of thread", thread)


def store(op):
    mapped, source, coordinates, _, predicate = _split(op)
    if op.operands[predicate]:
        raise EmulatorError("the emulator knows tiles without a predicate alone")
    out = access(op.operands[source][0], ALIGNMENT, 1)

    def run(grid: Grid, mask: Mask, *values):
        for lane in np.flatnonzero(mask):
            one = np.arange(len(mask)) == lane
            pick = [int(grid.spread(value)[lane]) for value in values]
            emulator_dependence.check(grid, grid.lane[one])
            tensor, start = _map_of(grid, pick[mapped][0]), tuple(pick[coordinates])
            _check_coordinates(tensor, start)
            memory, rank, offset, thread = out(grid, one, values[source][0])
            _check_aligned(tensor, int(offset[0]))
            memory.bytes_at("copies from", rank, offset, thread, tensor.bytes)
            places = swizzle(int(offset[0]) + np.arange(tensor.bytes), tensor.swizzle)
            at = (memory.starts[rank[0]] + places)[None]
            bulk, agent = _bulk(grid, int(thread[0])), _agent(grid, int(thread[0]))
            memory.check_ordinary(at)
            memory.refuse(memory.order.read_later(at, thread, agent, bulk.committed + 1), at)
            memory.check_valid(at)
            bulk.open = True
            target, inside = _box(tensor, start)
            region = np.full(int(inside.sum()), tensor.region)
            whole = np.broadcast_to(grid.lane[lane], region.shape)
            grid.memory.store(region, target[inside], whole, memory.bytes[at][0][inside][:, None])

    return run


def commit(op):
    def run(grid: Grid, mask: Mask):
        for thread in grid.cluster.number(grid.lane[mask]):
            bulk = _bulk(grid, int(thread))
            bulk.committed, bulk.open = bulk.committed + 1, False

    return run


def wait(op):
    left = number(op, "group")

    def run(grid: Grid, mask: Mask):
        threads = grid.cluster.number(grid.lane[mask])
        for thread in threads:
            bulk = _bulk(grid, int(thread))
            bulk.waited = max(bulk.waited, bulk.committed - left)
            if bulk.committed:
                clocks = grid.cluster.clocks
                clocks.learn(np.array([thread]), _agent(grid, int(thread)), bulk.waited)

    return run


def check_finished(cluster) -> None:
    """At the end: shared memory is gone, so that no store may still read it."""
    for key, bulk in cluster.groups.items():
        if key[0] == "bulk" and (bulk.open or bulk.waited < bulk.committed):
            raise EmulatorError(f"thread {key[1]} ends while its bulk stores read shared memory")


EFFECTS = {
    "nvvm.cp.async.bulk.tensor.shared.cluster.global": load,
    "nvvm.cp.async.bulk.tensor.global.shared.cta": store,
    "nvvm.cp.async.bulk.commit.group": commit,
    "nvvm.cp.async.bulk.wait_group": wait,
}
