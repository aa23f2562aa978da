"""griddepcontrol: what comes before the wait touches no global memory."""

import numpy as np
import pytest
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.probe import emulate, numbers

from heddle.kernels.mlir import context, ir

COPY = """
  %v = llvm.load %from : !llvm.ptr -> i32
  llvm.store %v, %to : i32, !llvm.ptr
"""
WAIT = "nvvm.griddepcontrol wait\n"
# A number on the barrier makes the emulator run warp by warp.
BARRIERS = ["nvvm.barrier\n", "nvvm.barrier id = %one\n"]
ONE_WAITS = """
  %first_warp = arith.cmpi ult, %tid, %last : i32
  scf.if %first_warp { nvvm.griddepcontrol wait }
"""


@pytest.mark.parametrize("barrier", BARRIERS)
def test_after_the_wait(barrier):
    body = barrier + WAIT + COPY + "nvvm.griddepcontrol launch_dependents"
    assert emulate(body, numbers(64), numbers(64) * 0, block=64).tolist() == list(range(64))


@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_barrier_after_the_wait_of_some(barrier):
    found = emulate(ONE_WAITS + barrier + COPY, numbers(64), numbers(64) * 0, block=64)
    assert found.tolist() == list(range(64))


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("order", [COPY + WAIT, ONE_WAITS + COPY])
def test_before_the_wait(order, barrier):
    with pytest.raises(EmulatorError, match=r"touches global memory before griddepcontrol\.wait"):
        emulate(barrier + order, numbers(64), numbers(64) * 0, block=64)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_what_is_settled_is_read_before_the_wait(barrier):
    """But nothing is written before it."""
    read, write = COPY.strip().splitlines(keepends=True)
    x = numbers(64)
    found = emulate(barrier + read + WAIT + write, x, x * 0, block=64, settled=True)
    assert found.tolist() == list(range(64))
    with pytest.raises(EmulatorError, match="touches global memory before"):
        emulate(barrier + COPY + WAIT, x, x * 0, block=64, settled=True)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_block_that_does_not_wait(barrier):
    """Some of its threads are enough, but not those of another block."""
    body = barrier + ONE_WAITS + barrier
    emulate(body, numbers(64), numbers(64) * 0, block=64)
    first = (
        "%leads = arith.cmpi ult, %block, %one : i32\nscf.if %leads { nvvm.griddepcontrol wait }"
    )
    with pytest.raises(EmulatorError, match=r"block 1 ends without griddepcontrol\.wait"):
        emulate(barrier + first, numbers(64), numbers(64) * 0, grid=2)


def test_more_shared_memory_than_there_is():
    text = """
      llvm.mlir.global external @tile() {addr_space = 3 : i32, alignment = 16 : i64}
        : !llvm.array<0 x i8>
      llvm.func @kernel(%x: !llvm.ptr) { llvm.return }"""
    with context(), ir.Location.unknown():
        launch(ir.Module.parse(text), 1, 32, [Buffer(np.zeros(1))], [], shared=227 * 1024)
        with pytest.raises(EmulatorError, match="232464 bytes of shared memory, wanted at m"):
            launch(ir.Module.parse(text), 1, 32, [Buffer(np.zeros(1))], [], shared=227 * 1024 + 16)
