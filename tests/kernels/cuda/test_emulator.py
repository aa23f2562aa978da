"""The emulator catches what it is there for: each test plants a mistake."""

import cuda_cases as cases
import pytest
from cuda_harness import run
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.probe import emulate, numbers
from test_kernels import arrays_for

from heddle.kernels.cuda import _block
from heddle.kernels.mlir import context, ir

COPY = """
  %v = llvm.load %from : !llvm.ptr -> i32
  llvm.store %v, %to : i32, !llvm.ptr
"""
SWAP = """
  %v = llvm.load %from : !llvm.ptr -> i32
  llvm.store %v, %mine : i32, !llvm.ptr<3>
  {barrier}
  %w = llvm.load %other : !llvm.ptr<3> -> i32
  llvm.store %w, %to : i32, !llvm.ptr
"""


def test_blocks_and_threads():
    found = emulate(COPY, numbers(128), numbers(128) * 0, grid=2, block=64)
    assert found.tolist() == list(range(128))


def test_shared_memory_between_barriers():
    found = emulate(SWAP.format(barrier="nvvm.barrier"), numbers(64), numbers(64) * 0, 2, 32)
    assert found.tolist() == (numbers(64) ^ 1).tolist()


MISTAKES = {
    "missing barrier": (SWAP.format(barrier=""), "race: reads what another thread wrote in shared"),
    "barrier too early": (
        SWAP.format(barrier="nvvm.barrier") + "llvm.store %v, %mine : i32, !llvm.ptr<3>",
        "race: writes what another thread reads in shared memory of block 0",
    ),
    "shared store to one place": (
        "llvm.store %tid, %tile : i32, !llvm.ptr<3>",
        "race: two threads write shared memory",
    ),
    "global store to one place": (
        "llvm.store %tid, %y : i32, !llvm.ptr",
        "race: two threads write buffer 1",
    ),
    "store to an input": ("llvm.store %tid, %from : i32, !llvm.ptr", "writes the input buffer 0"),
    "load of an output": (
        "%v = llvm.load %to : !llvm.ptr -> i32",
        "reads uninitialised bytes of buffer 1",
    ),
    "load of shared memory that is empty": (
        "%v = llvm.load %mine : !llvm.ptr<3> -> i32",
        "reads uninitialised bytes of shared memory",
    ),
    "one too far": (
        """%two = arith.constant 2 : i32
           %past = arith.addi %global, %two : i32
           %at = llvm.getelementptr %x[%past] : (!llvm.ptr, i32) -> !llvm.ptr, i32
           %v = llvm.load %at : !llvm.ptr -> i32""",
        r"out of bounds: thread 30 reads 4 bytes at 128 of buffer 0 \(128 bytes\)\n.*llvm.load",
    ),
    "before the start": (
        """%at = llvm.getelementptr %tile[%all] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
           llvm.store %tid, %at : i32, !llvm.ptr<3>""",
        r"out of bounds: thread 0 writes 4 bytes at -4 of shared memory .*\n.*llvm.store",
    ),
    "nowhere": (
        """%big = arith.constant 99999999999 : i64
           %at = llvm.getelementptr %x[%big] : (!llvm.ptr, i64) -> !llvm.ptr, i32
           %v = llvm.load %at : !llvm.ptr -> i32""",
        "of no buffer",
    ),
    "vector without alignment": (
        "%v = llvm.load %from {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>",
        "misaligned: 16 bytes at an address that is no multiple of 16",
    ),
    "divergent barrier": (
        """%some = arith.cmpi slt, %tid, %last : i32
           scf.if %some { nvvm.barrier }""",
        "divergent barrier: 31 of 32 threads of block 0 arrive",
    ),
    "divergent shuffle": (
        """%some = arith.cmpi slt, %tid, %last : i32
           scf.if %some {
             %v = nvvm.shfl.sync bfly %all, %tid, %one, %last : i32 -> i32
           }""",
        "divergent: the lanes named by the member mask are not the active ones",
    ),
    "divergent warp barrier": (
        """%some = arith.cmpi slt, %tid, %last : i32
           scf.if %some { nvvm.bar.warp.sync %all : i32 }""",
        "divergent: the lanes named",
    ),
    "reduction of floats": (
        "%f = arith.sitofp %tid : i32 to f32\n%v = nvvm.redux.sync fmax %f, %all : f32 -> f32",
        "the emulator knows redux.sync of integers alone, got fmax",
    ),
    "division by zero": ("%v = arith.divsi %one, %tid : i32", "divides by zero"),
    "loop that stands": (
        "scf.for %i = %zero to %one step %zero : i32 { }",
        "a loop's step is not positive",
    ),
    "unknown operation": ("%v = math.ctpop %tid : i32", "has no row for math.ctpop"),
    "pointer to a field": (
        "%at = llvm.getelementptr %x[1, 2] : (!llvm.ptr) -> !llvm.ptr, !llvm.array<4 x i32>",
        "pointer arithmetic on one index alone",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    body, message = MISTAKES[name]
    with pytest.raises(EmulatorError, match=message):
        emulate(body, numbers(), numbers() * 0)


def test_shuffle_from_a_lane_that_left():
    body = """
      %some = arith.cmpi slt, %tid, %last : i32
      scf.if %some {
        %but_last = arith.constant 0x7fffffff : i32
        %v = nvvm.shfl.sync idx %but_last, %tid, %last, %last : i32 -> i32
      }"""
    with pytest.raises(EmulatorError, match="shuffles a value out of a lane that is not active"):
        emulate(body, numbers(), numbers() * 0)


def test_wrong_number_of_arguments():
    text = "llvm.func @kernel(%x: !llvm.ptr, %n: i64) { llvm.return }"
    with (
        context(),
        ir.Location.unknown(),
        pytest.raises(EmulatorError, match="wanted 2 arguments, got 1"),
    ):
        launch(ir.Module.parse(text), 1, 32, [Buffer(numbers())], [])


@pytest.mark.parametrize("name", ["matmul, float32", "transpose, int16", "softmax blocks, float32"])
def test_real_kernels_without_their_barriers(monkeypatch, name):
    monkeypatch.setattr(_block, "barrier", lambda: None)
    spec = cases.ALL[name]
    with pytest.raises(EmulatorError, match=r"race|uninitialised"):
        run(spec, arrays_for(spec, cases.DIMS), cases.DIMS)


def test_a_real_kernel_on_a_buffer_that_is_too_short():
    spec = cases.ALL["map, float32"]
    arrays = arrays_for(spec, cases.DIMS)
    arrays[0] = arrays[0][:-1]
    with pytest.raises(EmulatorError, match=r"out of bounds: .* of buffer 0 \(384 bytes\)\n.*load"):
        run(spec, arrays, cases.DIMS)
