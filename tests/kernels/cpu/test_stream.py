"""Results that go past the cache: the same numbers, at every alignment and length."""

import machine_code
import native
import numpy as np
import pytest

from heddle.graph.compiler.codegen import cpu
from heddle.kernels import stream
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Body, Operand, Spec, Step

NORM = (("epsilon", 1e-5),)


@pytest.fixture
def everything_is_large(monkeypatch, emitted_anew):
    monkeypatch.setattr(stream, "LARGE", 1)
    assert "nontemporal" in text(cast("int32", "float32", (64,)))


def cast(source: str, target: str, shape) -> Spec:
    x, y = Operand(source, shape), Operand(target, shape)
    return Spec("map", (y,), y, (y,), (), Body((x,), (Step("cast", (0,), target),), (1,)))


def moved(op: str, operands, shape, starts=(), **attrs) -> Spec:
    result = Operand(operands[0].dtype, shape)
    named = tuple(sorted(attrs.items()))
    return Spec(op, tuple(operands), result, (result,), named, starts=starts)


def two_outputs(shape) -> Spec:
    """A norm in two dtypes: where one is aligned the other need not be."""
    x, gamma, other = (
        Operand("float32", shape),
        Operand("float32", shape[-1:]),
        Operand("bfloat16", shape),
    )
    epilogue = Body((), (Step("cast", (0,), "bfloat16"),), (0, 1))
    return Spec("rms_norm", (x, gamma), x, (x, other), NORM, None, epilogue)


def text(spec: Spec) -> str:
    with context(), ir.Location.unknown():
        return str(cpu.build(spec, MACHINES["x86-64-v4"]))


@pytest.mark.parametrize("arch", native.ARCHS)
@pytest.mark.parametrize("length", [1, 15, 64, 333])
@pytest.mark.parametrize("target", ["float32", "bfloat16", "int64", "bool"])
def test_elementwise(everything_is_large, target, length, arch):
    source = "int32" if target == "float32" else "float32"
    native.check(cast(source, target, (3, length)), arch=arch)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("length", "half"),
    [(24, 12), (32, 16), (64, 32), (100, 50), (128, 64), (128, 48), (128, 40), (36, 16), (80, 16)],
)
def test_rope(everything_is_large, length, half, interleaved):
    """Past the cache where both halves and every row are aligned, as with 64 and 128.

    Rows of 36 are not, nor are halves of 40 on every machine; 16 rows begin where memory is.
    """
    x, table = (Operand("float32", (16, size)) for size in (length, half))
    spec = moved("rope", (x, table, table), x.shape, interleaved=interleaved)
    native.check(spec)


@pytest.mark.parametrize("length", [5, 64, 100, 130, 600])
def test_rows(everything_is_large, length):
    """With 130, vectors end before the blocks of the next row's exponentials do."""
    x, gamma = Operand("float32", ("d0", length)), Operand("float32", (length,))
    native.check(Spec("rms_norm", (x, gamma), x, (x,), NORM), {"d0": 5})
    native.check(Spec("layer_norm", (x, gamma, gamma), x, (x,), NORM), {"d0": 5}, atol=1e-5)
    native.check(Spec("softmax", (x,), x, (x,)), {"d0": 5}, rtol=1e-5)
    native.check(two_outputs(("d0", length)), {"d0": 5})


@pytest.mark.parametrize("arch", native.DOTS)
@pytest.mark.parametrize("length", [5, 64, 131, 600])
def test_rows_in_pairs(everything_is_large, length, arch):
    """With 131, vectors begin at odd columns, whose exponentials are kept apart."""
    x, gamma = Operand("bfloat16", (5, length)), Operand("bfloat16", (length,))
    native.check(Spec("rms_norm", (x, gamma), x, (x,), NORM), arch=arch)
    native.check(Spec("layer_norm", (x, gamma, gamma), x, (x,), NORM), arch=arch, atol=1e-4)
    native.check(Spec("softmax", (x,), x, (x,)), arch=arch)


@pytest.mark.parametrize("shape", [(64, 128), (48, 80), (30, 33), (3, 160), (170, 4)])
def test_moves(everything_is_large, shape):
    rows, columns = shape
    x = Operand("float32", shape)
    native.check(moved("transpose", [x], (columns, rows), permutation=(1, 0)))
    native.check(moved("concat", [x, x], (rows, 2 * columns), axis=1))
    native.check(moved("slice", [x], (rows, columns - 3), starts=(0, 3), steps=(1, 1)))
    table = np.random.default_rng(0).standard_normal(shape, np.float32)
    indices = np.array([1, 0, 7], np.int32)
    spec = moved("gather", [x, Operand("int32", (3,))], (3, columns), axis=0)
    native.check(spec, arrays=[table, indices])


@pytest.mark.parametrize("arch", native.ARCHS)
@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("columns", [5, 64, 131])
def test_transpose_by_blocks(everything_is_large, columns, dtype, arch):
    """Whole blocks and parts of them; planes too narrow for them, or not of whole lines."""
    x = Operand(dtype, (2, "d0", 3, columns))
    shape = (columns, 3, 2, "d0")
    spec = moved("transpose", [x], shape, permutation=(3, 2, 0, 1))
    native.check(spec, {"d0": 320}, arch=arch)
    native.check(spec, {"d0": 37}, arch=arch)


@pytest.mark.parametrize("read", [0, 16, 96])
@pytest.mark.parametrize("written", [0, 16, 96])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_transposes_begin_with_lines_of_the_cache(everything_is_large, dtype, written, read):
    """Tiles in front of the first line, and behind the last, of planes that follow each other."""
    x = Operand(dtype, (2, "d0", 3, "d1"))
    spec = moved("transpose", [x], (3, "d1", 2, "d0"), permutation=(2, 3, 0, 1))
    for rows, columns in ((32, 64), (320, 96), (64, 33), (40, 64)):
        dims = {"d0": rows, "d1": columns}
        native.check(spec, dims, shift=read, shift_written=written)


def test_only_large_results_go_past_the_cache():
    at_least = stream.LARGE // 4
    assert "nontemporal" in text(cast("int32", "float32", (at_least,)))
    assert "nontemporal" in text(cast("int32", "float32", ("d0",)))
    assert "nontemporal" not in text(cast("int32", "float32", (at_least - 1,)))


@pytest.mark.parametrize("arch", native.ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_large_results_are_stored_so(dtype, arch):
    """LLVM had made ordinary stores of some vectors of 16-bit floats."""
    x = Operand(dtype, (stream.LARGE // 1024, 1024))
    assert "vmovnt" in machine_code.assembly(Spec("softmax", (x,), x, (x,)), MACHINES[arch])
