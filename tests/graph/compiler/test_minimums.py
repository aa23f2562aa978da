"""Products by `n * scale + minimum`: what they become, and that it is what they mean."""

import re

import ml_dtypes
import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler.pipeline import lower
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held
from heddle.runtime import InferenceSession

F32, F16, BF16, U8 = DType.float32, DType.float16, DType.bfloat16, DType.uint8
NEAR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of the largest result, what rounding may change."""

K, N, GROUP = 128, 40, 32
CASES = [
    # dtypes of x and of scales, bits, activations
    (F32, F16, 4, "float"),
    (F32, F32, 8, "int8"),
    (BF16, BF16, 4, "float"),
    (BF16, F16, 8, "float"),
    (F16, F16, 4, "int8"),
]
HARD = [(BF16, BF16, 4, "float"), (BF16, F16, 8, "float")]
EXPERTS = 3


def given(dtype, array):
    """What the runtime takes for what the reference holds."""
    return array.astype(ml_dtypes.bfloat16) if dtype is BF16 else array


def weights_of(graph, name, bits, dtype, minimum, experts=()):
    """The values of integers, scales and minimums in the graph, and what they hold."""
    rng = np.random.default_rng(bits)
    integers = rng.integers(0, 256, (*experts, N, K * bits // 8)).astype(np.uint8)
    shape = (*experts, N, K // GROUP)
    scales = held(rng.uniform(0.5, 1, shape) / 2**bits, dtype)
    arrays = {
        f"{name} n": (U8, integers),
        f"{name} scales": (dtype, scales),
        f"{name} minimums": (dtype, held(rng.uniform(0.5, 1, shape) * minimum, dtype)),
    }
    made = [
        graph.add_weight(Weight(key, kind, array.shape)) for key, (kind, array) in arrays.items()
    ]
    return made, arrays


def products(cases, minimum=-0.5, grouped=False):
    """A graph of them by the same rows in each dtype, and its weights; the offsets come last."""
    dtypes = list(dict.fromkeys(case[0] for case in cases))
    types = [TensorType(dtype, (Dim("m", 1, 99), K)) for dtype in dtypes]
    experts, offsets = (), []
    if grouped:
        experts, types = (EXPERTS,), [*types, TensorType(DType.int64, (EXPERTS + 1,))]
    with Graph("minimums", types) as graph:
        results, weights = [], {}
        inputs = dict(zip(dtypes, graph.inputs, strict=False))
        if grouped:
            offsets = graph.inputs[-1:]
        for case in cases:
            dtype, scales, bits, activations = case
            name = " ".join(map(str, case))
            (n, *sides), arrays = weights_of(graph, name, bits, scales, minimum, experts)
            sides = [n, sides[0], *offsets, sides[1]]
            attrs = {"bits": bits, "group": GROUP, "activations": activations}
            op = ops.quantized_grouped_matmul if grouped else ops.quantized_matmul
            results.append(op(inputs[dtype], *sides, **attrs))
            weights |= arrays
        graph.output(*results)
    return graph, weights


def run(graph, target, weights, inputs):
    """The results of the compiled graph."""
    loaded = {name: given(dtype, array) for name, (dtype, array) in weights.items()}
    model = InferenceSession(threads=2).load(compile(graph, target), loaded)
    results = model.execute(*map(given, [value.dtype for value in graph.inputs], inputs))
    return [result.to_numpy() for result in results]


def close(found, wanted):
    """Whether they differ by rounding alone."""
    near = NEAR[found.dtype.name] * np.abs(wanted).max()
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=0, atol=near)


def arrays_of(weights):
    return {name: array for name, (_, array) in weights.items()}


@pytest.mark.parametrize("grouped", [False, True])
def test_compiled_they_equal_their_reference(grouped):
    cases = CASES[:4:3] if grouped else CASES
    graph, weights = products(cases, grouped=grouped)
    rng = np.random.default_rng(1)
    dtypes = list(dict.fromkeys(case[0] for case in cases))
    for rows in (1, 9):
        inputs = [held(rng.standard_normal((rows, K)), dtype) for dtype in dtypes]
        inputs += [np.array([0, rows // 2, rows // 2, rows])] if grouped else []
        wanted = evaluate(graph, inputs, arrays_of(weights))
        for found, result in zip(run(graph, "cpu:native", weights, inputs), wanted, strict=True):
            close(found, result)


def test_what_cancels_is_not_rounded_before():
    """Products of 16 bits and corrections, of which a five-hundredth is left when they meet."""
    graph, weights = products(HARD)
    for name, (kind, array) in weights.items():
        if kind is U8:
            weights[name] = kind, np.full_like(array, 0xFF)
    for name, (kind, _) in weights.items():
        if name.endswith("minimums"):  # of weights that are what their rounding leaves
            _, scales = weights[name.replace("minimums", "scales")]
            most = 15 if " 4 " in name else 255
            weights[name] = kind, held(-most * scales, kind)
    x = held(np.random.default_rng(2).uniform(0.5, 1, (3, K)), BF16)
    wanted = evaluate(graph, [x], arrays_of(weights))
    for found, result in zip(run(graph, "cpu:native", weights, [x]), wanted, strict=True):
        close(found, result)
        assert np.abs(result).max() < 0.01 * 7 * K


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_passes_keep_the_meaning(kind):
    graph, weights = products(CASES[:4])
    rng = np.random.default_rng(3)
    inputs = [held(rng.standard_normal((5, K)), dtype) for dtype in (F32, BF16)]
    wanted = evaluate(graph, inputs, arrays_of(weights))
    module = lower(graph.module, kind, stop_after="pack")
    for found, result in zip(evaluate(module, inputs, arrays_of(weights)), wanted, strict=True):
        near = 2e-2 * np.abs(result).max()
        np.testing.assert_allclose(found, result, rtol=0, atol=near)


@pytest.mark.parametrize("activations", ["float", "int8"])
def test_sums_are_there_once_and_corrections_at_load(activations):
    with Graph("once", [TensorType(BF16, ("m", K))]) as graph:
        x = ops.silu(graph.inputs[0])
        sides = [weights_of(graph, name, 4, BF16, 1.0)[0] for name in ("query", "key")]
        attrs = {"bits": 4, "group": GROUP, "activations": activations}
        graph.output(*(ops.quantized_matmul(x, *each, **attrs) for each in sides))
    module = lower(graph.module, "cpu", stop_after="select")
    late = [op for op in m.operations(module) if m.name(op) == "fused" and not is_early(op)]
    names = [re.match(r'"(\w+)-', str(op.attributes["kernel"]))[1] for op in late]
    rounds = ["round_rows"] if activations == "int8" else []
    product = "rounded_matmul_packed" if rounds else "quantized_matmul_packed"
    # Both corrections are one kernel, and both products, whose epilogues add them.
    assert sorted(names) == sorted(["map", "reduce", "matmul_packed", *rounds, product])


@pytest.mark.parametrize("grouped", [False, True])
def test_kernels_of_a_gpu_take_minimums_where_rows_are_floats(grouped):
    name = "quantized_grouped_matmul" if grouped else "quantized_matmul"
    for activations, operands in (("float", 4), ("int8", 3)):
        graph, _ = products([(BF16, BF16, 4, activations)], grouped=grouped)
        module = lower(graph.module, "cuda", stop_after="legalize")
        ops_of = {m.name(op): op for op in m.operations(module)}
        assert len(ops_of[name].operands) == operands + grouped
        assert ("sum" in ops_of) == (activations == "int8")


def is_early(operation):
    return "stage" in operation.attributes
