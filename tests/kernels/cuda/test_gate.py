"""A product and its gate, `silu(x @ gate) * (x @ up)`, as one kernel where rows are few."""

from dataclasses import replace

import cuda_cases as cases
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_cases import gated
from cuda_harness import run_call
from cuda_program import EmulatedModel
from emulator.memory import EmulatorError
from reference import evaluate, numpy_dtype, size
from test_kernels import arrays_for, check
from test_tensor_cores import floats, integers, product, quantized

from heddle.graph import DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda._frame import Frame
from heddle.kernels.cuda.products import skinny
from heddle.kernels.cuda.products.group_scales import StagedScales
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec

HOPPER = MACHINES["sm_90a"]


FEW = {
    "bfloat16": gated(product("bfloat16", "d0", 40, 72, True)),
    "float16 with a bias": gated(product("float16", "d0", 72, 40, True), bias=True),
    "b in columns": gated(product("bfloat16", "d0", 40, 72, False)),
    "odd sizes": gated(product("bfloat16", "d0", 37, 51, True)),
    "odd sizes in columns": gated(product("float16", "d0", 37, 51, False), bias=True),
    "int8": gated(quantized("bfloat16", "d0", 40, 288, 8, 32)),
    "int4": gated(quantized("float16", "d0", 72, 320, 4, 64), bias=True),
    "8-bit floats as weights": gated(quantized("bfloat16", "d0", 36, 96, 8, 32, "float8_e4m3fn")),
    "bytes": gated(integers("int8", "d0", 40, 80, True)),
    "8-bit floats": gated(floats("e4m3fn", "e5m2", "d0", 40, 80, True)),
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("rows", [0, 1, 17, 65])
def test_results(name, rows):
    check(FEW[name], {"d0": rows}, of=run_call)


@pytest.mark.parametrize("name", ["bfloat16", "odd sizes", "int4"])
def test_single_elements(name):
    check(FEW[name], {"d0": 3}, shift=1, of=run_call)


PARTS = {
    # spec, strips, parts of each
    "bfloat16": (gated(product("bfloat16", 3, 40, 3072, True)), 2, 5),
    "8-bit weights": (gated(quantized("bfloat16", 2, 24, 8192, 8, 32)), 1, 4),
}


@pytest.mark.parametrize("name", PARTS)
def test_strips_are_cut_along_k(name):
    spec, strips, parts = PARTS[name]
    launch = find(spec.op, "cuda").launch(spec)
    assert (launch.grid, launch.counters) == ((strips * parts, 1, 1), strips)
    check(spec, {})


@pytest.mark.parametrize("name", ["bfloat16", "float16 with a bias", "8-bit floats"])
def test_bits_are_those_of_two_kernels(name):
    """Whose strips have 64 columns, too: for more than 16 rows, or where there are many of them."""
    spec, dims = FEW[name], {"d0": 20}
    arrays, own = arrays_for(spec, dims), len(spec.inputs) - len(spec.gate.inputs) + 1
    (together,), _ = run_call(spec, arrays, dims)
    gates, _ = run_call(spec.gate, [arrays[0], *arrays[own:]], dims)
    (apart,), _ = run_call(replace(spec, gate=None), [*arrays[:own], *gates], dims)
    assert together.tobytes() == apart.tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float16 with a bias", "int8"])
def test_more_rows_by_warpgroups(name):
    spec, dims = FEW[name], {"d0": 130}
    arrays = arrays_for(spec, dims)
    (found,), _ = run_call(spec, arrays, dims, machine=HOPPER)
    (wanted,) = evaluate(spec, dims, arrays)
    found, wanted = (x.astype(np.float32) for x in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=3e-2, atol=3e-2 * np.abs(wanted).max())


MISTAKES = {
    "both products in one place": (skinny.Strip, "b_lines", 0, "uninitialised bytes"),
    "one weight for both": (Frame, "products", lambda self: of_one_weight(self), "Mismatch"),
}
products = Frame.products


def of_one_weight(frame: Frame) -> list[Frame]:
    own, *gate = products(frame)
    return [own, *(replace(one, inputs=own.inputs[:2]) for one in gate)]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    *mistake, message = MISTAKES[name]
    monkeypatch.setattr(*mistake)
    with pytest.raises((EmulatorError, AssertionError), match=message):
        check(FEW["bfloat16"], {"d0": 3}, of=run_call)


def test_scales_of_the_product_for_the_gate_are_caught(monkeypatch):
    right = StagedScales.__init__

    def wrong(self, whose, *others):
        pointers = [whose.pointers[0]] * len(whose.pointers)
        right(self, replace(whose, pointers=pointers), *others)

    monkeypatch.setattr(StagedScales, "__init__", wrong)
    with pytest.raises(AssertionError, match="Mismatch"):
        check(FEW["int8"], {"d0": 3}, of=run_call)


def test_rows_of_run_time_choose_between_one_kernel_and_two():
    spec = FEW["float16 with a bias"]
    few, some, gate, behind = shares = find("matmul", "cuda").split(spec)
    for rows in (0, 1, 16, 17, 64, 65, 4096):
        started = [size(share.condition, {"d0": rows}) for share in shares]
        assert started == [rows <= 16, 16 < rows <= 64, *[rows > 64] * 2]
    # x, up, its bias, the gate's weight and bias, the result; and the gate in memory.
    assert few.buffers is some.buffers is None
    assert [share.buffers for share in (gate, behind)] == [(0, 3, 4, 6), (0, 1, 2, 6, 5)]
    assert few.spec.gate == spec.gate.with_attr("most_rows", 16)
    assert some.spec.gate == spec.gate.with_attr("least_rows", 17).with_attr("most_rows", 64)
    assert gate.spec.gate is behind.spec.gate is None
    assert gate.spec.outputs == behind.spec.inputs[-1:]
    for share in shares:
        assert Spec.from_json(share.spec.to_json()) == share.spec


def test_weights_of_8_bits_have_a_gate_in_the_lowest_strips():
    spec = FEW["int8"]
    few, *many = find("quantized_matmul", "cuda").split(spec)
    for rows in (0, 16, 17, 64, 65):
        started = [size(share.condition, {"d0": rows}) for share in (few, *many)]
        assert started == [rows <= 16, *[16 < rows <= 64] * 2, *[rows > 64] * 2]
    assert few.spec.gate is not None
    assert few.buffers is None
    assert not any(share.spec.gate for share in many)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (gated(product("bfloat16", 65, 40, 72, True)), "the same few rows"),
        (gated(product("float32", 4, 40, 72, True)), "the same few rows"),
        (gated(product("bfloat16", 4, 40, 72, True, (2,))), "the same few rows"),
        (
            replace(FEW["int8"], gate=gated(quantized("bfloat16", "d0", 40, 288, 8, 96)).gate),
            "a gate: wanted one product of the same sizes and dtypes",
        ),
        (
            replace(FEW["bfloat16"], beside=(product("bfloat16", "d0", 40, 72, True),)),
            "a gate: wanted one product of the same sizes and dtypes, nothing beside it",
        ),
        (
            replace(product("bfloat16", "d0", 40, 72, True), beside=(FEW["bfloat16"],)),
            "a gate: wanted one product of the same sizes and dtypes, nothing beside it",
        ),
    ],
)
def test_what_stays_apart(spec, reason):
    assert reason in find(spec.op, "cuda").supports(spec)


@pytest.mark.parametrize("rows", [3, 17, 65])
def test_a_program_gives_each_kernel_its_buffers(rows):
    dtype, wide = DType.bfloat16, DType.float32
    weights = [Weight(name, dtype, (40, 72)) for name in ("gate", "up")]
    with Graph("gated", [TensorType(dtype, ("n", 72))]) as graph:
        x = graph.inputs[0].tensor
        gate, up = (ops.cast(x @ graph.add_weight(kind).T, wide) for kind in weights)
        graph.output(ops.cast(ops.silu(gate) * up, dtype))
    random, number = np.random.default_rng(0), numpy_dtype("bfloat16")
    arrays = [random.standard_normal((n, 72)).astype(number) for n in (rows, 40, 40)]
    model = EmulatedModel(graph, dict(zip(("gate", "up"), arrays[1:], strict=True)))
    assert len(model.program.main.instructions) == 4
    (found,), _ = model(arrays[0])
    x, gate, up = (array.astype(np.float32) for array in arrays)
    gate, up = x @ gate.T, x @ up.T
    wanted = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-2, atol=0.5)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", cases.GATED)
def test_no_register_is_spilled(name, arch):
    few, more, *_ = find(cases.GATED[name].op, "cuda").split(cases.GATED[name])
    text = to_ptx(few.spec, MACHINES[arch])
    assert not any(word in text for word in ("call", ".local", "ld.b", "ld.v", "st.b", "st.v"))
    cubin = ptx.assemble(text, arch)
    assert cubin.spills == 0
    assert cubin.registers <= 128, "two blocks share a multiprocessor"
    check_no_spills(more.spec, arch)
