"""TMA: boxes of tensors of one to five axes, swizzles, bounds, stores, multicast; and mistakes."""

from dataclasses import replace

import numpy as np
import pytest
from emulator.build import at, attribute, get, i32, kernel, llvm, nvvm, put, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.tensor_map import TensorMap

from heddle.kernels import emit
from heddle.kernels.mlir import ir

pytestmark = pytest.mark.usefixtures("in_a_context")

RANDOM = np.random.default_rng(11)
ROOM = 4096  # Bytes of shared memory for a box; the mbarrier lies behind.
MOST = 10**6


def only_thread(number: int):
    return emit.when(emit.compare("equal", thread(), i32(number)))


def start_barrier(barrier, count: int = 1) -> None:
    with only_thread(0):
        nvvm.mbarrier_init(barrier, i32(count))
        nvvm.fence_mbarrier_init()
    nvvm.barrier(aligned=True)


def fetch(target, tensor, start, barrier, **options) -> None:
    target = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), target)
    coordinates = [i32(first) for first in start]
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        target, tensor, coordinates, barrier, [], **options
    )


def write_out(y, base, count: int, offset=0) -> None:
    """Every byte from `base` on, by 32 threads."""
    loop = emit.scf.ForOp(thread() % 32 * 4, i32(count), i32(128))
    with ir.InsertionPoint(loop.body):
        word = get(base, loop.induction_variable)
        put(y, loop.induction_variable + offset, word)
        emit.scf.yield_([])


def tensor_of(shape: tuple[int, ...], box: tuple[int, ...], dtype, swizzle: int = 0) -> TensorMap:
    """A map of random data; `shape` and `box` outermost first, as NumPy has them."""
    array = RANDOM.integers(1, 100, shape).astype(dtype)
    strides = tuple(array.strides[::-1][1:])
    return TensorMap(Buffer(array), array.itemsize, shape[::-1], strides, box[::-1], swizzle)


def cut(tensor: TensorMap, start: tuple[int, ...]) -> np.ndarray:
    """The box at `start` (innermost first), zeros where it is outside."""
    array, box = tensor.buffer.array, tensor.box[::-1]
    found = np.zeros(box, array.dtype)
    for index in np.ndindex(*box):
        place = tuple(i + s for i, s in zip(index, start[::-1], strict=True))
        if all(0 <= p < n for p, n in zip(place, array.shape, strict=True)):
            found[index] = array[place]
    return found


def chunks_moved(data: bytes, span: int) -> bytes:
    """The manual's tables: chunk c of 16 bytes in row r of `span` bytes lies at another place."""
    rows = np.frombuffer(data, np.uint8).reshape(-1, span // 16, 16)
    found = np.zeros_like(rows)
    for r in range(len(rows)):
        for c in range(span // 16):
            found[r, c ^ (r // (128 // span) % (span // 16))] = rows[r, c]
    return found.tobytes()


def loaded(tensor: TensorMap, start: tuple[int, ...], mistake: str = "") -> bytes:
    def body(x, y, base):
        barrier = at(base, ROOM)
        start_barrier(barrier)
        with only_thread(0):
            if mistake == "proxy":
                llvm.store(i32(1), base, alignment=4)
            if mistake == "twice":
                fetch(base, x, start, barrier)
            if mistake == "predicate":
                fetch(base, x, start, barrier, predicate=emit.constant(emit.integer(1), 1))
            nvvm.mbarrier_arrive_expect_tx(barrier, i32(tensor.bytes))
            offset = 128 if mistake == "alignment" else ROOM - 1024 if mistake == "room" else 0
            fetch(at(base, offset), x, start, barrier)
        if mistake != "wait":
            nvvm.mbarrier_try_wait_parity(barrier, i32(0), i32(MOST))
        write_out(y, base, tensor.bytes)

    y = np.zeros(tensor.bytes, np.uint8)
    module = kernel(2, 32, ROOM + 8, body)
    launch(module, 1, 32, [tensor, Buffer(y, written=True)], [])
    return y.tobytes()


BOXES = {
    # name: (shape, box, dtype, start innermost first)
    "one axis": ((100,), (64,), np.int32, (7,)),
    "one axis, over the end": ((100,), (64,), np.int32, (60,)),
    "two axes": ((20, 24), (8, 16), np.int16, (8, 5)),
    "two axes, before the start": ((20, 24), (8, 16), np.int16, (-3, -2)),
    "two axes, nothing inside": ((20, 24), (8, 16), np.int16, (0, 20)),
    "three axes": ((3, 5, 16), (2, 4, 16), np.int8, (0, 3, 2)),
    "four axes": ((2, 3, 4, 8), (2, 2, 3, 4), np.int32, (4, 1, 2, 0)),
    "five axes": ((2, 2, 3, 4, 8), (2, 1, 2, 3, 4), np.int32, (2, -1, 2, 1, 1)),
}


@pytest.mark.parametrize("name", BOXES)
def test_boxes(name):
    shape, box, dtype, start = BOXES[name]
    tensor = tensor_of(shape, box, dtype)
    assert loaded(tensor, start) == cut(tensor, start).tobytes()


@pytest.mark.parametrize("span", [32, 64, 128])
def test_swizzles(span):
    tensor = tensor_of((32, 64), (24, span // 2), np.int16, span)
    assert loaded(tensor, (16, 3)) == chunks_moved(cut(tensor, (16, 3)).tobytes(), span)


def stored(tensor: TensorMap, start: tuple[int, ...]) -> None:
    """Writes words 0, 1, ... of shared memory to the box at `start`."""

    def body(x, base):
        loop = emit.scf.ForOp(thread(), i32(tensor.bytes // 4), i32(32))
        with ir.InsertionPoint(loop.body):
            put(base, loop.induction_variable * 4, loop.induction_variable)
            emit.scf.yield_([])
        nvvm.fence_proxy(
            attribute("#nvvm.proxy_kind<async.shared>"), space=attribute("#nvvm.shared_space<cta>")
        )
        nvvm.barrier(aligned=True)
        with only_thread(0):
            nvvm.cp_async_bulk_tensor_global_shared_cta(x, base, [i32(s) for s in start])
            nvvm.cp_async_bulk_commit_group()
            nvvm.cp_async_bulk_wait_group(0)

    launch(kernel(1, 32, ROOM, body), 1, 32, [tensor], [])


@pytest.mark.parametrize("span", [0, 128])
def test_store_writes_what_is_inside(span):
    tensor = tensor_of((20, 48), (16, 32), np.int32, span)
    tensor = replace(tensor, buffer=Buffer(tensor.buffer.array, written=True, initialised=True))
    before, words = tensor.buffer.array.copy(), np.arange(512, dtype=np.int32)
    if span:  # Moving chunks twice puts them back.
        words = np.frombuffer(chunks_moved(words.tobytes(), span), np.int32)
    before[10:, 32:] = words.reshape(16, 32)[:10, :16]
    stored(tensor, (32, 10))
    assert (tensor.buffer.array == before).all()


WHOLE = ((32, 32), (32, 32), np.int32, 128)
MISTAKES = {
    "wait": "race: reads what a copy in flight to the mbarrier at byte 4096",
    "proxy": r"race: no fence\.proxy\.async before it writes over what thread 0 wrote in shared",
    "twice": "race: writes over what a copy in flight to the mbarrier at byte 4096",
    "predicate": "the emulator knows tiles without a predicate alone",
    "alignment": "misaligned: a box in shared memory at byte 128, no multiple of 1024",
    "room": r"out of bounds: thread 0 copies to 4096 bytes at 3072 of .* \(4104 bytes\)",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake):
    with pytest.raises(EmulatorError, match=MISTAKES[mistake]):
        loaded(tensor_of(*WHOLE), (0, 0), mistake)


def test_wrong_number_of_coordinates():
    with pytest.raises(EmulatorError, match="wanted 2 coordinates, got 1"):
        loaded(tensor_of(*WHOLE), (0,))


def test_a_tensor_beyond_its_buffer():
    tensor = replace(tensor_of(*WHOLE), shape=(32, 40))
    with pytest.raises(
        EmulatorError, match=r"out of bounds: .* 1 bytes at 4096 of buf.*\n.*tensor"
    ):
        loaded(tensor, (0, 8))


@pytest.mark.parametrize(
    "touch",
    [
        lambda x, base: nvvm.cp_async_bulk_tensor_global_shared_cta(x, base, [i32(0)]),
        lambda x, base: nvvm.prefetch(x, tensormap=True),
    ],
    ids=["store", "prefetch"],
)
def test_a_map_that_is_none(touch):
    with pytest.raises(EmulatorError, match="wanted the address of a tensor map"):
        launch(kernel(1, 32, ROOM, touch), 1, 32, [Buffer(np.zeros(4, np.int32))], [])


REFUSED = {
    "one to five axes": {"shape": (8,) * 6, "box": (4,) * 6, "strides": (64,) * 5},
    "a box of as many axes": {"box": (32,)},
    "strides of all axes but the innermost": {"strides": (128, 128)},
    "strides of whole 16 bytes": {"strides": (120,)},
    "at most 256 elements of a box's axis": {"box": (32, 257)},
    "rows of a box of whole 16 bytes": {"box": (3, 32)},
    "a swizzle of 0, 32, 64 or 128 bytes": {"swizzle": 16},
    "rows of a box as wide as the swizzle": {"box": (64, 32)},
}


@pytest.mark.parametrize("wanted", REFUSED)
def test_maps_that_the_driver_refuses(wanted):
    tensor = tensor_of(*WHOLE)
    with pytest.raises(EmulatorError, match=f"tensor map: wanted {wanted}, got Ten"):
        replace(tensor, **REFUSED[wanted])


def multicast(mask: int, mistake: str = "") -> np.ndarray:
    """Rank 0 of a cluster of two copies for the blocks of `mask`; each writes out what it has."""
    tensor = tensor_of((8, 32), (8, 32), np.int32)

    def body(x, y, base):
        barrier = at(base, ROOM)
        rank = nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])
        start_barrier(barrier)
        if mistake != "no barrier of the cluster":
            nvvm.cluster_arrive(aligned=True)
            nvvm.cluster_wait(aligned=True)
        with only_thread(0):
            nvvm.mbarrier_arrive_expect_tx(barrier, i32(tensor.bytes))
            with emit.when(emit.compare("equal", rank, i32(0))):
                bits = emit.constant(emit.integer(16), mask)
                fetch(base, x, (0, 0), barrier, multicast_mask=bits)
        nvvm.mbarrier_try_wait_parity(barrier, i32(0), i32(MOST))
        write_out(y, base, tensor.bytes, rank * tensor.bytes)

    y = np.zeros((2, 8, 32), np.int32)
    module = kernel(2, 32, ROOM + 8, body, cluster_dim="array<i32: 2, 1, 1>")
    launch(module, 2, 32, [tensor, Buffer(y, written=True)], [])
    return y - tensor.buffer.array


def test_multicast():
    assert not multicast(0b11).any()


MULTICAST_MISTAKES = {
    "no barrier of the cluster": (0b11, "nobody initialised an mbarrier at byte 4096 .* block 1"),
    "a block too few": (0b01, "warp 0 of block 1 waits for .* lacks 0 of 1 arrivals and 1024 byt"),
    "a block too many": (0b111, "wanted blocks of a cluster of 2, got mask 0x7"),
}


@pytest.mark.parametrize("mistake", MULTICAST_MISTAKES)
def test_multicast_with_a_mistake(mistake):
    mask, message = MULTICAST_MISTAKES[mistake]
    with pytest.raises(EmulatorError, match=message):
        multicast(mask, mistake)
