"""Several products of one left side as one kernel, where rows are few."""

from dataclasses import replace

import cuda_cases as cases
import numpy as np
import pytest
from assembler import check_no_spills, needs_assembler
from cuda_cases import beside
from cuda_harness import run_call
from cuda_program import EmulatedModel
from emulator.memory import EmulatorError
from reference import evaluate, numpy_dtype, size
from test_kernels import arrays_for, check
from test_tensor_cores import body, floats, integers, product, quantized

from heddle.graph import DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda.products import beside as products_beside
from heddle.kernels.registry import MACHINES, Portion, find
from heddle.kernels.spec import Spec

HOPPER = MACHINES["sm_90a"]


def products(dtype: str, m, k: int, *widths: int, transposed: bool = True) -> Spec:
    return beside(*(product(dtype, m, n, k, transposed) for n in widths))


def scaled(m, k: int, *kinds: tuple[int, str]) -> Spec:
    """By weights of 8 bits, held in a dtype, and of 4 bits, of some columns each."""
    bits = {"uint8": 4}
    return beside(*(quantized("bfloat16", m, n, k, bits.get(d, 8), 32, d) for n, d in kinds))


FEW = {
    # spec, blocks for one row
    "all alike": (products("bfloat16", "d0", 72, 40, 40, 40), 6),
    "two alike": (products("float16", "d0", 72, 72, 24, 24), 5),
    "b in columns": (products("bfloat16", "d0", 72, 24, 72, transposed=False), 4),
    "own epilogues": (
        beside(
            body(product("bfloat16", "d0", 24, 72, True)),
            body(product("bfloat16", "d0", 24, 72, True)),
            product("bfloat16", "d0", 40, 72, True),
        ),
        4,
    ),
    "one in parts": (products("bfloat16", "d0", 3072, 4224, 24, 24), 138),
    "8-bit weights": (scaled("d0", 96, (40, "int8"), (24, "int8"), (24, "float8_e4m3fn")), 4),
    "4-bit weights": (scaled("d0", 96, (24, "int8"), (40, "uint8"), (40, "uint8")), 5),
    "bytes": (beside(*(integers("int8", "d0", n, 80, True) for n in (24, 40))), 3),
    "8-bit floats": (
        beside(*(floats("e4m3fn", "e4m3fn", "d0", n, 80, True) for n in (24, 24))),
        2,
    ),
}


@pytest.mark.parametrize("name", [name for name in FEW if name != "one in parts"])
@pytest.mark.parametrize("rows", [0, 1, 7, 17, 65])
def test_results(name, rows):
    check(FEW[name][0], {"d0": rows}, of=run_call)


@pytest.mark.parametrize("name", FEW)
def test_blocks_are_those_of_each_product_alone(name):
    spec, blocks = FEW[name]
    kernel = find(spec.op, "cuda")

    def started(of, rows):
        return [
            size(kernel.launch(share.spec).grid[0], {"d0": rows})
            for share in kernel.split(of)
            if size(share.condition, {"d0": rows})
        ]

    for rows in (1, 16) if name.endswith("weights") else (1, 16, 17, 64):
        (together,) = started(spec, rows)
        assert together == sum(sum(started(one, rows)) for one in spec.each)
        assert rows > 1 or together == blocks


PARTS = {
    # spec, blocks: strips of different widths, in parts of their own
    "different widths": (products("bfloat16", 3, 3072, 40, 24, 24), 2 * 3 + 3 + 3),
    "8-bit weights": (scaled(2, 6144, (24, "int8"), (40, "int8")), 3 + 6),
    "one in parts": (
        beside(product("bfloat16", 1, 24, 3072, True), product("bfloat16", 1, 40, 3072, False)),
        3 + 6,
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_strips(name):
    spec, blocks = PARTS[name]
    launch = find(spec.op, "cuda").launch(spec)
    assert launch.grid == (blocks, 1, 1)
    assert launch.counters == sum(find(spec.op, "cuda").launch(one).counters for one in spec.each)
    check(spec, {})


@pytest.mark.parametrize(
    ("spec", "rows"),
    [(FEW["two alike"][0], 9), (FEW["4-bit weights"][0], 20), (PARTS["different widths"][0], 3)],
)
def test_bits_are_those_of_each_product_alone(spec, rows):
    dims = {"d0": rows} if spec.dims else {}
    arrays = arrays_for(spec, dims)
    together, _ = run_call(spec, arrays, dims)
    for one, places, found in zip(spec.each, spec.places, together, strict=True):
        (alone,), _ = run_call(one, [arrays[i] for i in places[: len(one.inputs)]], dims)
        assert alone.tobytes() == found.tobytes()


MISTAKES = {
    "one counter for all": ("_COUNTER", 0),
    "one workspace for all": ("_with_memory", lambda frame, place, counter: frame),
    "the first product for all": (
        "_turn",
        lambda own, blocks, count: products_beside.emit.index(0),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(monkeypatch, name):
    monkeypatch.setattr(products_beside, *MISTAKES[name])
    with pytest.raises(EmulatorError, match=r"race: (writes over|updates) what thread"):
        check(PARTS["different widths"][0], {})


def test_rows_of_run_time_choose_between_one_kernel_and_one_for_each():
    spec = products("bfloat16", "d0", 64, 128, 64, 64)
    kernel = find("matmul", "cuda")
    few, some, *many = kernel.split(spec)
    for rows in (0, 1, 16, 17, 64, 65, 4096):
        started = [size(share.condition, {"d0": rows}) for share in (few, some, *many)]
        assert started == [rows <= 16, 16 < rows <= 64, *[rows > 64] * 3]
    assert [share.buffers for share in (few, some, *many)] == [None, None, *spec.places]
    assert len(few.spec.beside) == len(some.spec.beside) == 2
    assert not kernel.launch_on(few.spec, HOPPER).tensor_maps
    assert all(kernel.launch_on(share.spec, HOPPER).tensor_maps for share in (some, *many))
    assert many[1].spec == many[2].spec


@pytest.mark.parametrize("rows", [3, 17, 65])
def test_a_program_gives_each_kernel_its_buffers(rows):
    dtype, widths, k = DType.bfloat16, (40, 24, 24), 3072 if rows == 3 else 264
    kinds = [Weight(f"w{i}", dtype, (n, k)) for i, n in enumerate(widths)]
    with Graph("products", [TensorType(dtype, ("n", k))]) as graph:
        x = graph.inputs[0].tensor
        first, *others = (x @ graph.add_weight(kind).T for kind in kinds)
        graph.output(ops.relu(first), *others)
    random, number = np.random.default_rng(0), numpy_dtype("bfloat16")
    x, *weights = (random.standard_normal((n, k)).astype(number) for n in (rows, *widths))
    names = [kind.name for kind in kinds]
    found, _ = EmulatedModel(graph, dict(zip(names, weights, strict=True)))(x)
    wanted = [x.astype(np.float32) @ weight.T.astype(np.float32) for weight in weights]
    wanted[0] = np.maximum(wanted[0], 0)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other, rtol=1e-2, atol=0.5)


def test_what_is_split_off_is_what_a_product_alone_has():
    alone = find("matmul", "cuda").split(product("bfloat16", "d0", 64, 64, True))
    together = find("matmul", "cuda").split(products("bfloat16", "d0", 64, 128, 64))
    assert alone[2].spec == together[3].spec


def test_scaled_products_of_up_to_16_rows_are_beside_each_other():
    kernel, spec = find("quantized_matmul", "cuda"), scaled("d0", 96, (40, "int8"), (24, "uint8"))
    few, *many = kernel.split(spec)
    for rows in (0, 1, 16, 17, 64, 65, 500):
        started = [size(share.condition, {"d0": rows}) for share in (few, *many)]
        assert started == [rows <= 16, *[16 < rows <= 64] * 2, *[rows > 64] * 2]
    assert few.buffers is None
    assert [share.spec.operands for share in many] == [one.operands for one in spec.each] * 2
    known = scaled(16, 96, (40, "int8"), (24, "uint8"))
    assert kernel.supports(known) is None
    assert kernel.split(known) == (Portion(known),)
    assert kernel.supports(scaled(17, 96, (40, "int8"), (24, "uint8")))


def test_scaled_products_of_many_rows_by_warpgroups():
    spec, dims = FEW["4-bit weights"][0], {"d0": 70}
    arrays = arrays_for(spec, dims)
    found, _ = run_call(spec, arrays, dims, machine=HOPPER)
    for one, wanted in zip(found, evaluate(spec, dims, arrays), strict=True):
        one, wanted = (x.astype(np.float32) for x in (one, wanted))
        np.testing.assert_allclose(one, wanted, rtol=3e-2, atol=3e-2 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "spec",
    [
        products("bfloat16", 65, 64, 32, 32),  # Warpgroups, or tiles, take them one by one.
        products("float32", 4, 64, 32, 32),
        scaled(65, 96, (40, "int8"), (24, "uint8")),
        beside(
            product("bfloat16", 4, 32, 64, True, (2,)), product("bfloat16", 4, 8, 64, True, (2,))
        ),
        beside(*(integers("int8", 4, n, 64, False) for n in (32, 32))),
        beside(product("bfloat16", 4, 32, 64, True), product("bfloat16", 8, 32, 64, True)),
    ],
)
def test_what_stays_apart(spec):
    reason = find(spec.op, "cuda").supports(spec)
    assert reason == "products of one left side: wanted the same few rows, on tensor cores"


def test_every_product_has_to_be_one_of_the_kernel():
    spec = beside(product("bfloat16", 4, 8, 32, True), product("int8", 4, 8, 32, True))
    assert find("matmul", "cuda").supports(spec) == "matmul of int8"
    normed = replace(product("bfloat16", 4, 8, 32, True), source=spec)
    assert find("matmul", "cuda").supports(normed) == "it takes no norm in front"


DECODER = cases.BESIDE | {
    "8-bit floats": scaled(16, 4096, *((n, "float8_e4m3fn") for n in (4096, 1024, 1024))),
    "own epilogues": beside(
        *(body(product("float16", 64, n, 4096, True)) for n in (4096, 1024, 1024))
    ),
}


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", DECODER)
def test_no_register_is_spilled(name, arch):
    text = to_ptx(DECODER[name], MACHINES[arch])
    assert "ld.global" in text
    assert not any(word in text for word in ("call", ".local", "ld.b", "ld.v", "st.b", "st.v"))
    cubin = ptx.assemble(text, arch)
    assert cubin.spills == 0
    assert cubin.registers <= 128, "two blocks share a multiprocessor"


@needs_assembler
@pytest.mark.parametrize("held", ["int8", "uint8", "float8_e4m3fn"])
def test_strips_of_more_rows_spill_nothing(held):
    spec = scaled("d0", 4096, (4096, held), (1024, held), (1024, held))
    more = find(spec.op, "cuda").split(spec)[1].spec
    check_no_spills(more, HOPPER.arch)


def test_products_that_are_alike_share_code():
    def count(*widths):
        return to_ptx(products("bfloat16", 8, 512, *widths), HOPPER).count("mma.sync")

    assert count(64, 24, 24) == 2 * count(24, 24, 24) == 2 * count(24)
