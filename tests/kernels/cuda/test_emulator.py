"""The emulator catches what it is there for; the tests plant mistakes and check instructions."""

import math

import cuda_cases as cases
import numpy as np
import pytest
from cuda_harness import run
from emulator import Buffer, launch
from emulator_memory import EmulatorError
from heddle.kernels.cuda import _block
from heddle.kernels.mlir import context, ir
from test_kernels import arrays_for

PRELUDE = """
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %block = nvvm.read.ptx.sreg.ctaid.x : i32
  %threads = nvvm.read.ptx.sreg.ntid.x : i32
  %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
  %all = arith.constant -1 : i32
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %last = arith.constant 31 : i32
  %first = arith.muli %block, %threads : i32
  %global = arith.addi %first, %tid : i32
  %from = llvm.getelementptr %x[%global] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %to = llvm.getelementptr %y[%global] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %tile = llvm.mlir.addressof @tile : !llvm.ptr<3>
  %mine = llvm.getelementptr %tile[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %next_number = arith.xori %tid, %one : i32
  %other = llvm.getelementptr %tile[%next_number] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
"""


def emulate(body: str, x: np.ndarray, y: np.ndarray, grid: int = 1, block: int = 32, **options):
    """Runs `body` with an input `x` and an output `y`."""
    text = f"""
      llvm.mlir.global private @tile() {{addr_space = 3 : i32, alignment = 16 : i64}}
        : !llvm.array<{block} x i32>
      llvm.func @kernel(%x: !llvm.ptr, %y: !llvm.ptr, %n: i64) {{
        {PRELUDE}
        {body}
        llvm.return
      }}"""
    buffers = [Buffer(x, **options), Buffer(y, written=True)]
    with context(), ir.Location.unknown():
        launch(ir.Module.parse(text), grid, block, buffers, [len(x)])
    return y


def numbers(count: int = 32) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


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


COMPUTED = {
    # name: (operations from %v, an i32 or f32 of each lane, to %r of the same type; meaning)
    "up": ("%r = nvvm.shfl.sync up %all, %v, %one, %zero : i32 -> i32", lambda v: [0, *v[:-1]]),
    "down": ("%r = nvvm.shfl.sync down %all, %v, %one, %last : i32 -> i32", lambda v: [*v[1:], 31]),
    "butterfly": ("%r = nvvm.shfl.sync bfly %all, %v, %one, %last : i32 -> i32", lambda v: v ^ 1),
    "broadcast": (
        "%r = nvvm.shfl.sync idx %all, %v, %one, %last : i32 -> i32",
        lambda v: [1] * 32,
    ),
    "truncating division": (
        """%c = arith.constant 7 : i32
           %d = arith.subi %v, %c : i32
           %m = arith.constant -2 : i32
           %r = arith.divsi %d, %m : i32""",
        lambda v: [int((n - 7) / -2) for n in v],
    ),
    "remainder of the dividend's sign": (
        """%c = arith.constant 7 : i32
           %d = arith.subi %v, %c : i32
           %m = arith.constant 3 : i32
           %r = arith.remsi %d, %m : i32""",
        lambda v: [int(math.fmod(n - 7, 3)) for n in v],
    ),
    "unsigned division and shift": (
        """%c = arith.constant -8 : i32
           %d = arith.addi %v, %c : i32
           %e = arith.shrui %d, %one : i32
           %r = arith.divui %e, %c : i32""",
        lambda v: ((v - 8).view(np.uint32) >> 1) // np.uint32(2**32 - 8),
    ),
    "loop with lanes that leave early": (
        """%r = scf.for %i = %zero to %v step %one iter_args(%s = %zero) -> (i32) : i32 {
             %t = arith.addi %s, %i : i32
             scf.yield %t : i32
           }""",
        lambda v: v * (v - 1) // 2,
    ),
    "while with lanes that leave early": (
        """%r = scf.while (%s = %v) : (i32) -> i32 {
             %c = arith.cmpi sgt, %s, %last : i32
             %go = arith.constant 20 : i32
             %less = arith.cmpi slt, %s, %go : i32
             scf.condition(%less) %s : i32
           } do {
           ^bb0(%s: i32):
             %t = arith.addi %s, %one : i32
             scf.yield %t : i32
           }""",
        lambda v: np.maximum(v, 20),
    ),
    "both branches": (
        """%c = arith.constant 16 : i32
           %less = arith.cmpi ult, %v, %c : i32
           %r = scf.if %less -> (i32) {
             scf.yield %one : i32
           } else {
             scf.yield %v : i32
           }""",
        lambda v: np.where(v < 16, 1, v),
    ),
    "saturating conversion": (
        """%f = arith.sitofp %v : i32 to f32
           %c = arith.constant 1.0e9 : f32
           %g = arith.mulf %f, %c : f32
           %r = arith.fptosi %g : f32 to i32""",
        lambda v: np.minimum(v.astype(np.float64) * 1e9, 2**31 - 1),
    ),
    "fused multiply-add": (
        """%f = arith.sitofp %v : i32 to f32
           %a = arith.constant 16777217.0 : f64
           %b = arith.truncf %a : f64 to f32
           %c = arith.constant -1.6777216e7 : f32
           %e = arith.constant 1.00000012 : f32
           %g = math.fma %b, %e, %c : f32
           %h = arith.addf %g, %f : f32
           %r = arith.fptosi %h : f32 to i32""",
        lambda v: v + 2,
    ),
    "vectors": (
        """%a = vector.broadcast %v : i32 to vector<4xi32>
           %b = vector.insert %one, %a[2] : i32 into vector<4xi32>
           %c = vector.shuffle %b, %b [2, 3] : vector<4xi32>, vector<4xi32>
           %d = vector.reduction <add>, %c : vector<2xi32> into i32
           %e = vector.from_elements %d, %one : vector<2xi32>
           %r = vector.extract %e[0] : i32 from vector<2xi32>""",
        lambda v: v + 1,
    ),
    "dynamic extraction": (
        """%a = vector.broadcast %v : i32 to vector<4xi32>
           %b = vector.insert %one, %a[2] : i32 into vector<4xi32>
           %three = arith.constant 3 : i32
           %m = arith.andi %v, %three : i32
           %i = arith.index_cast %m : i32 to index
           %r = vector.extract %b[%i] : i32 from vector<4xi32>""",
        lambda v: np.where(v % 4 == 2, 1, v),
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_instructions(name):
    body, meaning = COMPUTED[name]
    load, store = "%v = llvm.load %from : !llvm.ptr -> i32", "llvm.store %r, %to : i32, !llvm.ptr"
    found = emulate("\n".join((load, body, store)), numbers(), numbers() * 0)
    assert found.tolist() == [int(n) for n in meaning(numbers())]


@pytest.mark.parametrize(
    ("predicate", "relation"),
    [("oeq", lambda a, b: a == b), ("une", lambda a, b: a != b), ("olt", lambda a, b: a < b),
     ("ult", lambda a, b: not a >= b), ("ord", lambda a, b: a == a and b == b),
     ("uno", lambda a, b: a != a or b != b)],
)  # fmt: skip
def test_comparisons_with_nan(predicate, relation):
    x = np.resize(np.array([1, math.nan, 2, -math.inf], np.float32), 32)
    body = f"""
      %v = llvm.load %from : !llvm.ptr -> f32
      %b = arith.constant 1.0 : f32
      %c = arith.cmpf {predicate}, %v, %b : f32
      %r = arith.extui %c : i1 to i32
      llvm.store %r, %to : i32, !llvm.ptr"""
    found = emulate(body, x, numbers() * 0)
    assert found.tolist() == [int(relation(float(a), 1.0)) for a in x]


def test_one_thread_wins_an_exchange():
    body = """
      %pair = llvm.cmpxchg %y, %zero, %one monotonic monotonic : !llvm.ptr, i32
      %won = llvm.extractvalue %pair[1] : !llvm.struct<(i32, i1)>
      scf.if %won {
        %at = llvm.getelementptr %y[1] : (!llvm.ptr) -> !llvm.ptr, i32
        llvm.store %tid, %at : i32, !llvm.ptr
      }"""
    y = np.array([0, 77], np.int32)
    assert emulate(body, numbers(), y).tolist() == [1, 0]
