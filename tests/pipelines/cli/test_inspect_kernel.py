"""`heddle inspect --kernel`: kernels that are read, out of an artifact or built afresh."""

import shutil

import pytest

from heddle.graph import Graph, TensorType, compile, ops
from heddle.graph.compiler.codegen import ptx
from heddle.graph.dtype import DType
from heddle.pipelines.bench import reading
from heddle.pipelines.cli import disassembly
from heddle.runtime import Artifact
from heddle.runtime.errors import CompileError, InputError

pytestmark = pytest.mark.filterwarnings("ignore::heddle.graph.targets.TargetWarning")

SIZES = ("--set", "m=4", "--set", "n=40")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """A softmax and an exp for two CPU levels and a GPU."""
    with Graph("two", [TensorType(DType.float32, [4, 40])]) as graph:
        (x,) = graph.inputs
        graph.output(ops.softmax(x), ops.exp(x))
    path = tmp_path_factory.mktemp("inspect") / "two.heddle"
    compile(graph, ["cpu:x86-64-v3", "cpu:x86-64-v4", "cuda:sm_80"]).save(path)
    return path


def name_of(artifact, op):
    (kernel, *_) = [k for k in Artifact.load(artifact).programs[0]["kernels"] if op in k["name"]]
    return kernel["name"]


@pytest.mark.parametrize(
    ("form", "part"),
    [("mlir", "llvm.func @kernel("), ("llvm", "define void @kernel("), ("asm", "vmovups")],
)
def test_built_for_the_cpu(heddle, form, part):
    result = heddle("inspect", "--kernel", "softmax", "--show", form, *SIZES)
    assert part in result.stdout
    assert result.stderr.startswith(f"softmax: {form} for ")


def test_built_for_a_level_and_a_dtype(heddle):
    options = ("--arch", "x86-64-v3", "--dtype", "float64")
    text = heddle("inspect", "--kernel", "relu", *options).stdout
    assert "ymm" in text
    assert "zmm" not in text
    assert "pd" in text


def test_a_kernel_that_another_one_needs(heddle):
    given = ("--set", "m=4", "--set", "k=8", "--set", "n=40")
    result = heddle("inspect", "--kernel", "pack_b", "--show", "mlir", *given)
    assert "llvm.func @kernel(" in result.stdout
    assert result.stderr.startswith("pack_b: mlir for ")


def test_built_for_a_gpu(heddle):
    result = heddle("inspect", "--kernel", "transpose", "--target", "cuda", "--arch", "sm_80")
    assert ".target sm_80" in result.stdout
    assert "transpose: ptx for sm_80" in result.stderr


def test_the_parameters_in_force_are_told(heddle):
    result = heddle("inspect", "--kernel", "transpose", "--show", "mlir", *SIZES)
    assert result.stderr.rstrip().endswith(", ahead=64")


@pytest.mark.skipif(not shutil.which("objdump"), reason="objdump is not installed")
def test_code_of_an_artifact(heddle, artifact):
    name = name_of(artifact, "softmax")
    result = heddle("inspect", artifact, "--kernel", name, "--arch", "x86-64-v3")
    assert "ret" in result.stdout
    assert "%ymm" in result.stdout
    assert result.stderr == f"{name}: asm for x86-64-v3\n"
    text = heddle("inspect", artifact, "--kernel", name, "--show", "asm").stdout
    assert "%zmm" in text


def test_ptx_of_an_artifact(heddle, artifact):
    text = heddle("inspect", artifact, "--kernel", "softmax", "--show", "ptx").stdout
    assert text.strip().startswith("//")
    assert "\0" not in text
    assert ".entry heddle_" in text


def test_offset_and_entry_are_those_of_the_code(artifact):
    found = Artifact.load(artifact)
    for program in found.programs:
        for code in (code for kernel in program["kernels"] for code in kernel["codes"]):
            data = found.to_bytes()[code["offset"] : code["offset"] + code["bytes"]]
            start = {"image": b"", "cubin": b"\x7fELF", "ptx": b"//"}[code["format"]]
            assert data.lstrip().startswith(start)
            assert code["entry"] < code["bytes"]


@pytest.mark.parametrize("form", ["mlir", "llvm"])
def test_an_artifact_has_machine_code_alone(heddle, artifact, form):
    text = heddle("inspect", artifact, "--kernel", "softmax", "--show", form, code=1).stderr
    assert f"softmax: wanted {form}, it has asm for x86-64-v3, asm for x86-64-v4" in text
    assert "'heddle inspect --kernel NAME --show FORM' builds a kernel afresh" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "softmx"), "wanted a kernel of 'heddle bench list', or one that those run"),
        (("--kernel", "softmax", "--show", "ptx"), "--show: wanted one of mlir, llvm, asm for cpu"),
        (("--kernel", "softmax", "--arch", "sm_80"), "--arch: wanted one of x86-64-v3, "),
        (("--kernel", "softmax", "--set", "q=1"), "softmax: --set: wanted one of m, n"),
        (("--kernel", "pack_b", "--dtype", "bool"), "pack_b: --dtype: wanted one of float16, "),
        (("--kernel", "softmax", "--set", "n=0"), "Error: m=4096 n=0 axis=1: softmax: wanted at"),
        (("--kernel", "softmax", "--set", "m=8,16"), "--set m: wanted one size, got 2"),
        (("--kernel", "softmax", "--dtype", "int8"), "softmax: --dtype: wanted one of float16"),
    ],
)
def test_bad_input(heddle, arguments, message):
    assert message in heddle("inspect", *arguments, code=2).stderr


def test_a_kernel_is_found_where_its_dtype_is(heddle):
    """Of the workloads that pack, the first ones multiply floats."""
    text = heddle("inspect", "--kernel", "pack_b", "--dtype", "int8", "--show", "mlir").stdout
    assert "xi8>" in text
    assert "f32" not in text


def test_a_kernel_that_the_artifact_does_not_have(heddle, artifact):
    text = heddle("inspect", artifact, "--kernel", "s0ftmax", code=1).stderr
    assert f"--kernel: wanted one of {name_of(artifact, 'softmax')}, map-" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "wanted an ARTIFACT, or --kernel NAME"),
        (("a.heddle", "--show", "asm"), "--show: is for use with --kernel"),
        (("a.heddle", "--kernel", "x", "--dtype", "int8"), "--dtype: is for use without ARTIFACT"),
        (("--kernel", "softmax", "--json"), "--json: is for use without --kernel"),
    ],
)
def test_bad_usage(heddle, arguments, message):
    assert message in heddle("inspect", *arguments, code=2).stderr


# The programs that read machine code


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Puts a program that prints its arguments, or fails, on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(disassembly, "packaged_nvdisasm", lambda: None)

    def add(name, code=0):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {name} $1\nexit {code}\n")
        path.chmod(0o755)

    return add


def test_cubins_are_read_by_nvdisasm_else_by_cuobjdump(programs):
    programs("cuobjdump")
    assert disassembly.sass(b"") == "cuobjdump -sass\n"
    programs("nvdisasm")
    assert disassembly.sass(b"") == "nvdisasm -c\n"


def test_a_program_that_refuses(programs):
    programs("nvdisasm", 1)
    with pytest.raises(InputError, match="nvdisasm: nvdisasm -c"):
        disassembly.sass(b"")


def test_programs_that_are_not_there(programs):
    with pytest.raises(InputError, match="found none; pip install nvidia-cuda-nvdisasm"):
        disassembly.sass(b"")
    with pytest.raises(InputError, match=r"asm: wanted objdump \(binutils\) on PATH, found none"):
        disassembly.x86(b"", 0)


def test_a_cubin_needs_an_assembler(monkeypatch):
    monkeypatch.setattr(ptx, "assemble", lambda text, arch: None)
    spec = reading.find_spec("relu", {}, None, "cuda")
    with pytest.raises(CompileError, match="sass: wanted a PTX assembler"):
        reading.cubin(spec, reading.machine_for("cuda", None))


@pytest.mark.skipif(not ptx.find_nvjitlink(), reason="nvJitLink is not installed")
def test_sass_of_a_built_kernel(heddle, monkeypatch):
    monkeypatch.setattr(disassembly, "_run", lambda command, code: f"{code[:4]!r}")
    monkeypatch.setattr(disassembly, "packaged_nvdisasm", lambda: "nvdisasm")
    text = heddle("inspect", "--kernel", "relu", "--target", "cuda", "--show", "sass").stdout
    assert text == "b'\\x7fELF'\n"
