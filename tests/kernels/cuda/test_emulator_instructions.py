"""What single operations compute on the emulator, against their meaning written out here."""

import math

import numpy as np
import pytest
from emulator.probe import emulate, numbers


def _permuted(selector: int) -> int:
    """Four of the bytes 0x80, 0x11 to 0x77, lowest first; a number from 8 on is the sign alone."""
    found = []
    for i in range(4):
        byte = [0x80, *range(0x11, 0x88, 0x11)][selector >> 4 * i & 7]
        found.append((0xFF if byte & 0x80 else 0) if selector >> 4 * i & 8 else byte)
    return int.from_bytes(bytes(found), "little", signed=True)


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
    "bytes of two words by number": (
        """%low = arith.constant 0x33221180 : i32
           %high = arith.constant 0x77665544 : i32
           %c = arith.constant 0x8700 : i32
           %d = arith.addi %c, %v : i32
           %r = nvvm.prmt #nvvm.permute_mode<default> %d, %low, %high : i32""",
        lambda v: [_permuted(0x8700 + int(n)) for n in v],
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
    "ballot": (
        """%c = arith.cmpi sgt, %v, %one : i32
           %r = nvvm.vote.sync ballot %all, %c -> i32""",
        lambda v: [-4] * 32,
    ),
    "votes": (
        """%c = arith.cmpi sge, %v, %zero : i32
           %d = arith.cmpi sgt, %v, %last : i32
           %e = arith.cmpi eq, %v, %one : i32
           %f = nvvm.vote.sync all %all, %c -> i1
           %g = nvvm.vote.sync any %all, %d -> i1
           %h = nvvm.vote.sync uni %all, %e -> i1
           %i = nvvm.vote.sync uni %all, %d -> i1
           %j = arith.select %f, %v, %zero : i32
           %k = arith.select %g, %zero, %j : i32
           %m = arith.select %h, %zero, %k : i32
           %r = arith.select %i, %m, %zero : i32""",
        lambda v: v,
    ),
    "reductions of some lanes": (
        """%half = arith.constant 16 : i32
           %low = arith.constant 65535 : i32
           %less = arith.cmpi slt, %v, %half : i32
           %neg = arith.subi %zero, %v : i32
           %r = scf.if %less -> (i32) {
             %a = nvvm.redux.sync add %v, %low : i32 -> i32
             %b = nvvm.redux.sync min %neg, %low : i32 -> i32
             %c = nvvm.redux.sync umax %neg, %low : i32 -> i32
             %d = arith.addi %a, %b : i32
             %e = arith.addi %d, %c : i32
             scf.yield %e : i32
           } else {
             %lane = nvvm.read.ptx.sreg.laneid : i32
             scf.yield %lane : i32
           }""",
        lambda v: np.where(v < 16, 120 - 15 - 1, v),
    ),
    "approximations": (
        """%f = arith.sitofp %v : i32 to f32
           %a = nvvm.ex2 %f : f32
           %b = nvvm.log2 %a : f32
           %c = nvvm.rsqrt %a : f32
           %d = nvvm.rcp.approx.ftz.f %c : f32
           %e = arith.mulf %d, %d : f32
           %g = nvvm.log2 %e : f32
           %h = arith.addf %b, %g : f32
           %i = math.roundeven %h : f32
           %r = arith.fptosi %i : f32 to i32""",
        lambda v: 2 * v,
    ),
    "a number as a pointer": (
        """%p = llvm.ptrtoint %mine : !llvm.ptr<3> to i32
           %q = llvm.inttoptr %p : i32 to !llvm.ptr<3>
           llvm.store %v, %q : i32, !llvm.ptr<3>
           %r = llvm.load %mine : !llvm.ptr<3> -> i32""",
        lambda v: v,
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
