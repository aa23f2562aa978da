"""Single instructions of AVX-512 on vectors of any bits, emulated and by the CPU."""

import ctypes
import math
import re

import avx512_emulation
import native
import numpy as np

from heddle.kernels.registry import MACHINES

V3, V4, DOTS = (MACHINES[arch] for arch in native.DOTS)

KERNEL = """
define void @kernel(ptr %dims, ptr %buffers, i64 %first, i64 %last) #0 {{
  %at_result = getelementptr ptr, ptr %buffers, i64 3
  %p = load ptr, ptr %at_result
{loads}
  %result = {instruction}
  store {kind} %result, ptr %p, align 1
  ret void
}}
attributes #0 = {{ "no-builtins" "prefer-vector-width"="512" }}
"""

# The instruction as LLVM IR; a CPU's name for it.
INSTRUCTIONS = {
    "call <16 x i32> @llvm.x86.avx512.pmaddw.d.512(<32 x i16> %a, <32 x i16> %b)": "vpmaddwd",
    "call <32 x i16> @llvm.x86.avx512.pmaddubs.w.512(<64 x i8> %a, <64 x i8> %b)": "vpmaddubsw",
    "call <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float> %a, <16 x i32> %b)": "vpermps",
    "call <32 x i16> @llvm.x86.avx512.permvar.hi.512(<32 x i16> %a, <32 x i16> %b)": "vpermw",
    "call <32 x i16> @llvm.x86.avx512.vpermi2var.hi.512(<32 x i16> %a, <32 x i16> %b, "
    "<32 x i16> %c)": "vperm[it]2w",
    "call <16 x i1> @llvm.x86.avx512.fpclass.ps.512(<16 x float> %a, i32 32)": "vfpclassps",
    "call <16 x float> @llvm.x86.avx512.mask.reduce.ps.512(<16 x float> %a, i32 9, "
    "<16 x float> %a, i16 -1, i32 4)": "vreduceps",
    "call <8 x double> @llvm.x86.avx512.mask.reduce.pd.512(<8 x double> %a, i32 9, "
    "<8 x double> %a, i8 -1, i32 4)": "vreducepd",
    "call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %a, <16 x float> %b, "
    "<16 x float> %a, i16 -1, i32 4)": "vscalefps",
    "call <8 x double> @llvm.x86.avx512.mask.scalef.pd.512(<8 x double> %a, <8 x double> %b, "
    "<8 x double> %a, i8 -1, i32 4)": "vscalefpd",
    "call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %a, <64 x i8> %b, "
    "<64 x i8> %c)": "vpdpbusd",
    "call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %a, <32 x bfloat> %b, "
    "<32 x bfloat> %c)": "vdpbf16ps",
    "call <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float> %a, "
    "<16 x float> %b)": "vcvtne2ps2bf16",
    "fptrunc <16 x float> %a to <16 x bfloat>": "vcvtneps2bf16",
}
BY_NAME = {name: instruction for instruction, name in INSTRUCTIONS.items()}
LEVEL = {
    name: V4 if any(f".{known}(" in text for known in avx512_emulation.V4) else DOTS
    for name, text in BY_NAME.items()
}


def kernel(instruction):
    """LLVM IR that does it once; the fourth buffer takes the result."""
    kinds = re.findall(r"<[^>]+>", instruction)
    vectors = {name: kind for kind, name in re.findall(r"(<[^>]+>) %([abc])\b", instruction)}
    loads = [
        f"  %at_{name} = getelementptr ptr, ptr %buffers, i64 {'abc'.index(name)}\n"
        f"  %p_{name} = load ptr, ptr %at_{name}\n"
        f"  %{name} = load {kind}, ptr %p_{name}, align 1"
        for name, kind in vectors.items()
    ]
    kind = kinds[0] if instruction.startswith("call") else kinds[-1]
    return KERNEL.format(loads="\n".join(loads), instruction=instruction, kind=kind)


def results(text, machine, operands, dtype):
    """What the code gives for each row of the operands, of 64 bytes each."""
    function, _memory = native.place(native.assemble(text, machine))
    found = np.zeros((len(operands[0]), 64 // np.dtype(dtype).itemsize), dtype)
    for row in range(len(found)):
        rows = [*(operand[row] for operand in operands), *[found[row]] * (4 - len(operands))]
        pointers = (ctypes.c_void_p * 4)(*(one.ctypes.data for one in rows))
        function(None, ctypes.addressof(pointers), 0, 0)
    return found


def emulate(name, *operands, dtype):
    """The emulated instruction on [n, lanes] arrays; where this CPU has it, that does the same."""
    operands = [np.ascontiguousarray(operand) for operand in operands]
    assert all(operand.nbytes == 64 * len(operand) for operand in operands)
    text = kernel(BY_NAME[name])
    found = results(avx512_emulation.emulated(text, V3), V3, operands, dtype)
    if LEVEL[name].arch in native.HERE:
        same(results(text, LEVEL[name], operands, dtype), found)
    return found


def same(found, wanted):
    """Bit by bit, but that one NaN is as good as another."""
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        found, wanted = (np.where(np.isnan(array), 0, array) for array in (found, wanted))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    np.testing.assert_array_equal(found, wanted)


def patterns(dtype, rows, seed):
    """Vectors of any bits, and of what is special: on the edges of what is normal, and none."""
    kind = np.dtype(dtype)
    bits, mantissa = np.dtype(f"u{kind.itemsize}"), {4: 23, 8: 52}[kind.itemsize]
    rng = np.random.default_rng(seed)
    found = rng.integers(0, np.iinfo(bits).max, (rows, 64 // kind.itemsize), bits, endpoint=True)
    one, infinite = (np.array(x, kind).view(bits).item() for x in (1, math.inf))
    normal, quiet = 1 << mantissa, infinite | 1 << (mantissa - 1)
    edges = [0, 1, normal - 1, normal, normal + 1, one - 1, one, one + 1]
    edges += [infinite - 1, infinite, infinite + 1, quiet, quiet + 1]
    signs = (rng.integers(0, 2, found.shape) << (8 * kind.itemsize - 1)).astype(bits)
    special = rng.choice(np.array(edges, bits), found.shape) | signs
    return np.where(rng.random(found.shape) < 0.3, special, found).view(kind)


def integers(dtype, rows, seed):
    """Vectors of integers over their whole range, whose ends are frequent."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    shape = (rows, 64 // np.dtype(dtype).itemsize)
    found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    ends = rng.choice(np.array([info.min, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.3, ends, found)
