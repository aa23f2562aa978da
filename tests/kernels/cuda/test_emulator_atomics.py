"""Atomics, and blocks that hand over global memory: the last one adds up what all have written."""

import numpy as np
import pytest
from emulator.build import assemble, block, get, i32, kernel, llvm, nvvm, put, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.probe import emulate, numbers

from heddle.kernels import emit
from heddle.kernels.mlir import context, ir

BLOCKS, THREADS = 3, 64


def add(pointer, value):
    add, monotonic = llvm.AtomicBinOp.add, llvm.AtomicOrdering.monotonic
    return llvm.atomicrmw(add, pointer, value, monotonic, syncscope="device")


def last_block(mistake: str = "") -> ir.Module:
    """Each thread writes its number to `work`; the last block to arrive adds up over the blocks."""

    def fence(name: str) -> None:
        if mistake not in ("no fence", name):
            llvm.fence(llvm.AtomicOrdering.acq_rel, syncscope="device")

    def body(work, count, y, base):
        first = emit.compare("equal", thread(), i32(0))
        put(work, (block() * THREADS + thread()) * 4, block() * THREADS + thread())
        if mistake != "no barrier":
            nvvm.barrier(aligned=True)
        with emit.when(first):
            fence("no first fence")
            put(base, 0, add(count, i32(1)))
            fence("no second fence")
        nvvm.barrier(aligned=True)
        with emit.when(emit.compare("equal", get(base, 0), i32(BLOCKS - 1))):
            total = i32(0)
            for number in range(BLOCKS):
                total = total + get(work, (thread() + number * THREADS) * 4)
            put(y, thread() * 4, total)

    return kernel(3, THREADS, 16, body)


def execute(mistake: str = "") -> np.ndarray:
    work, count = np.zeros((BLOCKS, THREADS), np.int32), np.zeros(1, np.int32)
    y = np.zeros(THREADS, np.int32)
    buffers = [
        Buffer(work, written=True),
        Buffer(count, written=True, initialised=True),
        Buffer(y, written=True),
    ]
    with context(), ir.Location.unknown():
        launch(last_block(mistake), BLOCKS, THREADS, buffers, [])
    return y


def test_the_last_block_adds_up():
    wanted = np.arange(BLOCKS * THREADS).reshape(BLOCKS, THREADS).sum(axis=0)
    assert (execute() == wanted).all()


@pytest.mark.parametrize("mistake", ["no barrier", "no fence", "no first fence", "no second fence"])
def test_mistakes(mistake):
    with pytest.raises(EmulatorError, match=r"race: reads what .*wrote in buffer 0"):
        execute(mistake)


def test_it_is_assembled():
    with context(), ir.Location.unknown():
        text, _ = assemble(last_block(), "sm_80")
    assert text.count("fence.acq_rel.gpu") == 2
    assert "atom.global.add" in text


OPERATIONS = {
    "add": lambda v: [v.sum()] * 32,
    "max": lambda v: [31] * 32,
    "min": lambda v: [0] * 32,
    "umax": lambda v: [31] * 32,
    "umin": lambda v: [0] * 32,
    "_or": lambda v: [31] * 32,
    "_and": lambda v: [0] * 32,
    "xchg": lambda v: [31] * 32,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    """Lanes come one after the other; all see the word after the last of them."""
    body = f"""
      %v = llvm.load %from : !llvm.ptr -> i32
      scf.if %first_lane {{ llvm.store %v, %tile : i32, !llvm.ptr<3> }}
      nvvm.barrier
      %old = llvm.atomicrmw {name} %tile, %v monotonic : !llvm.ptr<3>, i32
      nvvm.barrier
      %w = llvm.load %tile : !llvm.ptr<3> -> i32
      llvm.store %w, %to : i32, !llvm.ptr"""
    first = "%first_lane = arith.cmpi eq, %tid, %zero : i32\n"
    found = emulate(first + body, numbers(), numbers() * 0)
    assert found.tolist() == [int(n) for n in OPERATIONS[name](numbers())]


ONE = """
      %first_lane = arith.cmpi eq, %tid, %zero : i32
      scf.if %first_lane { llvm.store %zero, %tile : i32, !llvm.ptr<3> }
"""
COUNT = "%old = llvm.atomicrmw add %tile, %tid monotonic : !llvm.ptr<3>, i32\n"
READ = """
      %w = llvm.load %tile : !llvm.ptr<3> -> i32
      llvm.store %w, %to : i32, !llvm.ptr
"""
WAITS = ["nvvm.barrier\n", "nvvm.barrier id = %one\n"]
RACES = {
    # In lockstep, and warp by warp.
    "counted before it is cleared": (lambda wait: ONE + COUNT + wait + READ, "updates what"),
    "read before all have counted": (lambda wait: ONE + wait + COUNT + READ, "reads what"),
    "cleared before all have read": (
        lambda wait: ONE + wait + COUNT + wait + READ + COUNT.replace("%old", "%again"),
        "updates what",
    ),
    "cleared before all have counted": (
        lambda wait: ONE + wait + COUNT + ONE.replace("%first_lane", "%again"),
        "write",
    ),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("name", RACES)
def test_atomics_race_with_ordinary_accesses(name, wait):
    body, message = RACES[name]
    text = body(wait) + (wait if "id" in wait else "")  # Makes it run warp by warp.
    with pytest.raises(EmulatorError, match=f"race: .*{message}"):
        emulate(text, numbers(64), numbers(64) * 0, block=64)


@pytest.mark.parametrize("wait", WAITS)
def test_atomics_do_not_race_with_each_other(wait):
    found = emulate(ONE + wait + COUNT + wait + READ, numbers(64), numbers(64) * 0, block=64)
    assert (found == sum(range(64))).all()


BAD = {
    "wanted a monotonic atomic: the code generator drops other orders": (
        "%old = llvm.atomicrmw add %mine, %tid acq_rel : !llvm.ptr<3>, i32"
    ),
    "the emulator does not know this atomic operation": (
        "%old = llvm.atomicrmw nand %mine, %tid monotonic : !llvm.ptr<3>, i32"
    ),
    "reads uninitialised bytes of shared memory": (
        "%old = llvm.atomicrmw add %mine, %tid monotonic : !llvm.ptr<3>, i32"
    ),
    "writes the input buffer 0": (
        "%old = llvm.atomicrmw add %from, %tid monotonic : !llvm.ptr, i32"
    ),
    "out of bounds: thread 0 updates 4 bytes at -4": (
        "%low = llvm.getelementptr %mine[-1] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32\n"
        "%old = llvm.atomicrmw add %low, %tid monotonic : !llvm.ptr<3>, i32"
    ),
    "the emulator knows fences that acquire and release, of the GPU, alone": (
        'llvm.fence syncscope("block") acq_rel'
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_forbidden(message):
    with pytest.raises(EmulatorError, match=message):
        emulate(BAD[message], numbers(), numbers() * 0)
