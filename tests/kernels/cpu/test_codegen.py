"""From a spec to a flat image: for every instruction set, and what is refused."""

import ctypes
import mmap
from collections import defaultdict
from dataclasses import replace

import pytest
import ragged_batches
import row_groups
import sampling_rows
import scattered
import window_specs
from test_matmul import product as few_rows

from heddle.graph.compiler.codegen.cpu import SYMBOL, build, compile_cpu, to_object
from heddle.graph.compiler.codegen.image import flatten
from heddle.kernels.cpu import KERNELS
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Spec, Step
from heddle.runtime.errors import CompileError

pytestmark = pytest.mark.usefixtures("live_tools")

LEVELS = [machine for machine in MACHINES.values() if machine.target == "cpu"]


def _specs() -> dict[str, Spec]:
    """One spec for each kernel, with the ops that LLVM would rather call a library for."""
    x, row = Operand("float32", ("d0", 33)), Operand("float32", (33,))
    half = Operand("bfloat16", ("d0", 33))
    ops = ("exp", "log", "tanh", "erf", "sqrt", "sigmoid")
    steps = [Step("cast", (0,), "float32"), *(Step(op, (1,), "float32") for op in ops)]
    steps += [Step("cast", (2,), "float64"), Step("log", (8,), "float64")]
    steps += [Step("cast", (9,), dtype) for dtype in ("bfloat16", "float16", "uint64", "int8")]
    steps += [Step(op, (1,), "float32") for op in ("sin", "cos", "floor", "round")]
    steps += [Step(op, (8, 9), "float64") for op in ("pow", "mod", "floor_divide")]
    results = tuple(range(10, 21))
    body = Body((half,), tuple(steps), results)
    outputs = tuple(Operand(steps[number - 1].dtype, ("d0", 33)) for number in results)
    epsilon = (("epsilon", 1e-5),)
    q = Operand("float32", (1, 2, "d0", 32))
    attention = (("causal", True), ("layout", "bhsd"), ("masked", False), ("scale", 0.1))
    packed, product = Operand("float32", (2, 33, 32)), Operand("float32", ("d0", 40))
    words = Operand("uint32", (2, 4, 32))
    columns, turned = Operand("float32", ("d0", 1)), Operand("float32", (33, "d0"))
    chosen, best = Operand("float32", (5, 33)), Operand("int64", ("d0", 4))
    scalar, picked = Operand("float32", ()), Operand("float32", ("d0", 4))
    angles, even = Operand("float32", (16,)), Operand("float32", ("d0", 32))
    tokens, sorting = Operand("int64", ("d0",)), (("groups", 5), ("kind", "order"))
    steps = (("steps", (1, -1)),)
    return {
        "map": Spec("map", outputs[:1], outputs[0], outputs, (), body),
        "reduce": Spec("reduce", (x,), columns, (columns,), (("axis", 1), ("kind", "mean"))),
        "softmax": Spec("softmax", (x,), x, (x,)),
        "layer_norm": Spec("layer_norm", (x, row, row), x, (x,), epsilon),
        "rms_norm": Spec("rms_norm", (x, row), x, (x,), epsilon),
        "attention": Spec("attention", (q, q, q), q, (q,), attention),
        "ragged_attention": ragged_batches.attention("ragged_attention"),
        "paged_attention": ragged_batches.attention("paged_attention"),
        "paged_write": ragged_batches.writing(),
        "rotate_and_write": ragged_batches.rotating(),
        "pack_b": Spec("pack_b", (Operand("float32", (33, 40)),), packed, (packed,)),
        "matmul": few_rows("float32", (), 5, 33, 40),
        "matmul_packed": Spec("matmul_packed", (x, packed), product, (product,)),
        "grouped_matmul_packed": Spec(
            "grouped_matmul_packed",
            (x, Operand("float32", (3, 2, 33, 32)), Operand("int32", (4,))),
            product,
            (product,),
        ),
        "window_matmul_packed": window_specs.packed("float32", (2, "d0", 9, 6), 40, (3, 3), 2),
        "window_reduce": window_specs.reducing("mean", "float32", (2, "d0", 9, 20), (3, 3)),
        "group_rows": Spec("group_rows", (tokens,), tokens, (tokens,), sorting),
        "integer_matmul_packed": Spec(
            "integer_matmul_packed",
            (Operand("uint8", ("d0", 33)), Operand("int8", (2, 9, 32, 4))),
            Operand("int32", ("d0", 40)),
            (Operand("int32", ("d0", 40)),),
        ),
        "pack_int4": Spec("pack_int4", (Operand("uint8", (40, 16)),), words, (words,)),
        "quantized_matmul_packed": Spec(
            "quantized_matmul_packed",
            (Operand("float32", ("d0", 32)), words, Operand("float32", (2, 1, 32))),
            product,
            (product,),
            (("group", 32),),
        ),
        "quantized_grouped_matmul_packed": row_groups.scaling(
            "quantized_grouped_matmul_packed", "float32", "uint32", 32, 40, "d0", 3
        ),
        "rounded_grouped_matmul_packed": row_groups.scaling(
            "rounded_grouped_matmul_packed", "float32", "uint32", 32, 40, "d0", 3
        ),
        "round_rows": Spec(
            "round_rows",
            (Operand("float32", ("d0", 32)),),
            Operand("uint8", ("d0", 40)),
            (Operand("uint8", ("d0", 40)),),
            (("bits", 4), ("group", 32)),
        ),
        "rounded_matmul_packed": Spec(
            "rounded_matmul_packed",
            (Operand("uint8", ("d0", 40)), words, Operand("float32", (2, 1, 32))),
            product,
            (product,),
            (("group", 32),),
        ),
        "transpose": Spec("transpose", (x,), turned, (turned,), (("permutation", (1, 0)),)),
        "concat": Spec("concat", (chosen, chosen), Operand("float32", (10, 33)),
                       (Operand("float32", (10, 33)),), (("axis", 0),)),
        "slice": Spec("slice", (x,), x, (x,), steps, starts=(0, 32)),
        "rope": Spec("rope", (even, angles, angles), even, (even,), (("interleaved", True),)),
        "top_k": Spec("top_k", (x,), best, (best,), (("smallest", False),)),
        "take_along": Spec("take_along", (x, best), picked, (picked,)),
        "cumsum": Spec("cumsum", (x,), x, (x,), (("axis", 1),)),
        "iota": Spec("iota", (scalar, scalar), row, (row,), starts=(0,)),
        "random_uniform": Spec("random_uniform", (Operand("int64", ("d0", 2)),), x, (x,)),
        "penalize": sampling_rows.penalizing(),
        "sample_tokens": sampling_rows.drawing(mask=True),
        "scatter": scattered.scattering("float32", (), "d0", 5, (33,), "add"),
        "gather": Spec("gather", (x, Operand("int64", (5,))), chosen, (chosen,), (("axis", 0),)),
    }  # fmt: skip


SPECS = _specs()


def test_every_kernel_is_here():
    assert set(SPECS) == {kernel.op for kernel in KERNELS}
    assert find("frobnicate", "cpu") is None


def alike(spec):
    """The levels, in groups of those whose code is one."""
    kernel, found = find(spec.op, "cpu"), defaultdict(list)
    for machine in LEVELS:
        uses = [getattr(machine, name) for name in kernel.depends(spec)]
        found[(machine.vector_bytes, *uses)].append(machine)
    return list(found.values())


OWN = [(op, levels[0]) for op, spec in SPECS.items() for levels in alike(spec)]


@pytest.mark.parametrize(("op", "machine"), OWN, ids=[f"{op}-{level.arch}" for op, level in OWN])
def test_every_level_needs_nothing_outside(op, machine):
    code = compile_cpu(SPECS[op], machine)
    assert (code.arch, code.format) == (machine.arch, "image")
    assert 0 <= code.entry < len(code.data)
    assert code.alignment in (16, 32, 64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", SPECS)
def test_levels_differ_in_what_the_row_says(op, dtype):
    """Machines that are alike in vectors and in what `uses` names get the same MLIR."""
    spec = Spec.from_json(SPECS[op].to_json().replace("float32", dtype))
    if op == "matmul_packed" and dtype == "bfloat16":
        a, b = spec.operands
        spec = replace(spec, operands=(a, Operand(dtype, (b.shape[0], -(-b.shape[1] // 2), 32, 2))))
    if find(op, "cpu").supports(spec) is not None:
        return
    check_levels(spec)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", [80, 160, 256])
def test_levels_of_heads_of_other_sizes(size, dtype):
    """Of which some fill tiles when rows decode alone, and some never."""
    check_levels(ragged_batches.attention("paged_attention", dtype, size=size, block=16))


def check_levels(spec):
    for machines in alike(spec):
        if len(machines) > 1:
            assert len({mlir(spec, machine) for machine in machines}) == 1


def mlir(spec, machine):
    with context(), ir.Location.unknown():
        return str(build(spec, machine))


def test_same_spec_same_bytes():
    machine = MACHINES["x86-64-v4"]
    assert compile_cpu(SPECS["softmax"], machine) == compile_cpu(SPECS["softmax"], machine)


def test_unknown_op():
    x = Operand("float32", (3,))
    with pytest.raises(CompileError, match=r"^frobnicate for x86-64-v3: there is no such kernel$"):
        compile_cpu(Spec("frobnicate", (x,), x, (x,)), LEVELS[0])


def test_refused_spec():
    x = Operand("int32", (3,))
    with pytest.raises(CompileError, match=r"^softmax for x86-64-v3: wanted floats, got int32$"):
        compile_cpu(Spec("softmax", (x,), x, (x,)), LEVELS[0])


HEAD = "define void @kernel(ptr %dims, ptr %buffers, i64 %first, i64 %last) {\n"


def test_constants_are_found_wherever_the_image_lies():
    text = """
        @table = private constant [4 x i64] [i64 10, i64 -20, i64 30, i64 7]
        define internal i64 @look(i64 %i) noinline {
          %p = getelementptr i64, ptr @table, i64 %i
          %v = load i64, ptr %p
          ret i64 %v
        }
    """ + HEAD + """
          %out = load ptr, ptr %buffers
          %v = call i64 @look(i64 %first)
          store i64 %v, ptr %out
          ret void
        }
    """  # fmt: skip
    image = flatten(to_object(text, LEVELS[0]), SYMBOL)
    access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE, prot=access)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
    for offset in (0, 64 * image.alignment):
        memory.seek(offset)
        memory.write(image.data)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + offset
        result = ctypes.c_int64()
        buffers = (ctypes.c_void_p * 1)(ctypes.addressof(result))
        for index, value in enumerate((10, -20, 30, 7)):
            kind(address + image.entry)(None, ctypes.addressof(buffers), index, 0)
            assert result.value == value


OUTSIDE = {
    "wanted no outside symbol, found 'expf'": """
        declare float @expf(float)
        {head}
          %x = load float, ptr %dims
          %y = call float @expf(float %x)
          store float %y, ptr %buffers
          ret void
        }
    """,
    "wanted code and constants only, found section .data": """
        @counter = internal global i64 5
        {head}
          %x = load i64, ptr @counter
          %y = add i64 %x, %first
          store i64 %y, ptr @counter
          ret void
        }
    """,
    "wanted relative addresses only, found R_X86_64_REX_GOTPCRELX": """
        @shared = constant [2 x i64] [i64 1, i64 2]
        {head}
          store ptr @shared, ptr %buffers
          ret void
        }
    """,
}


@pytest.mark.parametrize("message", OUTSIDE)
def test_what_an_image_cannot_hold(message):
    with pytest.raises(CompileError) as caught:
        flatten(to_object(OUTSIDE[message].replace("{head}", HEAD), LEVELS[0]), SYMBOL)
    assert str(caught.value) == f"image: {message}"
