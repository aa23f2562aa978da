"""From a spec to PTX and cubin: what is returned, and what is refused."""

import importlib.machinery
import importlib.util
import re
import sys
from dataclasses import replace

import cuda_cases as cases
import pytest

from heddle.graph.compiler.codegen import cuda, ptx
from heddle.graph.compiler.codegen.llvm_text import for_older_llvm
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec
from heddle.runtime.errors import CompileError

pytestmark = pytest.mark.usefixtures("live_tools")

MACHINE = MACHINES["sm_90a"]
SPEC = cases.ALL["rms_norm blocks, float32"]
ASSEMBLERS = {
    "nvJitLink": (ptx.find_nvjitlink, ptx.with_nvjitlink),
    "ptxas": (ptx.find_ptxas, ptx.with_ptxas),
}


@pytest.fixture(params=ASSEMBLERS)
def assembler(request):
    find, run = ASSEMBLERS[request.param]
    path = find()
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param, lambda text, arch: run(path, text, arch)


def test_both_assemblers_tell_the_same(assembler):
    _, assemble = assembler
    cubin = assemble(cuda.to_ptx(SPEC, MACHINE), "sm_90a")
    assert cubin.data.startswith(b"\x7fELF")
    assert cubin.registers > 16
    assert (cubin.spills, cubin.shared) == (0, 32)


def test_refused_ptx_names_the_assembler_and_the_line(assembler):
    name, assemble = assembler
    with pytest.raises(
        CompileError, match=rf"{name}: wanted a cubin for sm_80, .*(?s:.*)'nonsense'"
    ):
        assemble(".version 8.0\n.target sm_80\n.address_size 64\nnonsense;\n", "sm_80")


def test_nvjitlink_refuses_an_architecture():
    library = ptx.find_nvjitlink()
    if library is None:
        pytest.skip("nvJitLink is not installed")
    with pytest.raises(CompileError, match="nvJitLink: wanted a linker for compute_80, got st"):
        ptx.with_nvjitlink(library, "", "compute_80")


MOVES = ("transpose", "concat", "slice", "gather")


@pytest.mark.parametrize("name", [name for name in cases.ALL if name.endswith(", bfloat16")])
def test_bfloat16_is_rounded_by_an_instruction(name):
    """cvt.rn, of two numbers at once where there are two; what moves is not rounded."""
    for machine in (MACHINES["sm_80"], MACHINE):
        text = cuda.to_ptx(cases.ALL[name], machine)
        assert not re.search(r"bfe\.u32 .*, 16, 1;", text), "rounds by integer operations"
        assert ("cvt.rn.bf16" in text) == (name.split(",")[0] not in MOVES)


def test_log_without_registers():
    with pytest.raises(CompileError, match="wanted 'Used N registers' in its log, got 'fine'"):
        ptx.resources(b"", "fine")


def test_log_with_spills():
    log = """ptxas info : Function properties for kernel
        .     16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads
    ptxas info    : Used 255 registers, used 1 barriers, 33024 bytes smem, 384 bytes cmem[0]"""
    assert ptx.resources(b"x", log) == ptx.Cubin(b"x", 255, 48, 33024, log)


def test_cubin_and_ptx_of_one_symbol():
    codes = cuda.compile_cuda(SPEC, MACHINE)
    assert codes[-1].format == "ptx"
    assert codes[-1].data.endswith(b"\0")
    assert all((code.arch, code.symbol) == ("sm_90a", cuda.symbol(SPEC)) for code in codes)
    if len(codes) == 2:
        assert codes[0].format == "cubin"
        assert codes[0].registers > 16
        assert codes[0].spills == 0


def test_same_spec_same_bytes():
    assert cuda.compile_cuda(SPEC, MACHINE) == cuda.compile_cuda(SPEC, MACHINE)


def test_ptx_alone_without_an_assembler(monkeypatch):
    monkeypatch.setattr(ptx, "find_nvjitlink", lambda: None)
    monkeypatch.setattr(ptx, "find_ptxas", lambda: None)
    (code,) = cuda.compile_cuda(SPEC, MACHINE)
    assert (code.format, code.registers, code.spills) == ("ptx", 0, 0)


@pytest.mark.parametrize("blocked", ["nvidia", "nvidia.cu13"])
def test_no_package_no_library(monkeypatch, blocked):
    monkeypatch.setitem(sys.modules, blocked, None)
    assert ptx.find_nvjitlink() is None


def test_no_ptxas_on_an_empty_path(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "nvidia.cu13", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ptx.find_ptxas() is None


def test_ptxas_of_the_package_comes_before_that_on_the_path(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "ptxas"
    program.parent.mkdir()
    program.touch(mode=0o700)
    package = importlib.machinery.ModuleSpec("nvidia.cu13", None, is_package=True)
    package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package)
    assert ptx.find_ptxas() == program


def test_ptxas_is_asked_first():
    assert [run for _, run in ptx._ASSEMBLERS] == [ptx.with_ptxas, ptx.with_nvjitlink]


REFUSED = {
    "no such kernel": ("pack_b", cases.ALL["softmax, float32"]),
    "softmax of int32": ("softmax", cases.ALL["transpose, int32"]),
    "layer_norm of int32": ("layer_norm", cases.ALL["transpose, int32"]),
    "rms_norm of int32": ("rms_norm", cases.ALL["transpose, int32"]),
    "attention of int32": ("attention", cases.ALL["transpose, int32"]),
    "matmul of float32 and int64": ("matmul", cases.ALL["gather, float32"]),
    "integer_matmul of float32 by float32": ("integer_matmul", cases.ALL["matmul, float32"]),
    "gather by float32": ("gather", cases.ALL["rms_norm, float32"]),
    "attention of head size 300": ("attention", cases.attention("float32", head=300)),
    "no elementwise code for 'surprise'": ("map", cases.unknown_step()),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_specs(reason):
    op, spec = REFUSED[reason]
    spec = Spec(op, spec.operands, spec.result, spec.outputs, spec.attrs, spec.prologue)
    with pytest.raises(CompileError, match=f"^{op} on sm_90a: {reason}"):
        cuda.to_ptx(spec, MACHINE)


def test_mean_of_integers_is_refused():
    x = cases.tensor("int32", 4, 8)
    spec = cases.plain("reduce", [x], cases.tensor("int32", 4, 1), axis=1, kind="mean")
    with pytest.raises(CompileError, match="reduce on sm_90a: mean of int32"):
        cuda.to_ptx(spec, MACHINE)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("float f0x3F4C422A", "float 0x3FE9884540000000"),
        ("float 4.471500e-02", "float 0x3FA6E4E260000000"),
        ("double 1.000000e-01", "double 0x3FB999999999999A"),
        ("half f0x3C00, half -2.500000e+00", "half 0xH3C00, half 0xHC100"),
        ("bfloat 1.329230e+36, bfloat f0xBC80", "bfloat 0xR7B80, bfloat 0xRBC80"),
        ("bfloat 1.003906e+00, float 1.0e+00", "bfloat 0xR3F80, float 0x3FF0000000000000"),
        ("float -inf, double +inf", "float 0xFFF0000000000000, double 0x7FF0000000000000"),
        ("float +qnan", "float 0x7FF8000000000000"),
        ("<4 x float> splat (float 5.000000e-01)", "<4 x float> splat (float 0x3FE0000000000000)"),
        ("i32 12, ptr @f.1e-2, %x", "i32 12, ptr @f.1e-2, %x"),
    ],
)
def test_constants_for_an_older_llvm(newer, older):
    assert for_older_llvm(newer) == older


def test_quantized_matmul_refuses_other_dtypes():
    supports = find("quantized_matmul", "cuda").supports
    spec = cases.quantized("float32", 4)
    x, weight, scales = spec.operands
    assert supports(spec) is None
    wide = replace(spec, operands=(x, cases.tensor("uint32", 72, 12), scales))
    assert supports(wide) == "float32 by uint32 of 4 bits and float32"
    other = replace(spec, operands=(x, weight, cases.tensor("bfloat16", 72, 3)))
    assert supports(other) == "float32 by uint8 of 4 bits and bfloat16"
