"""Products with weights of 16, 8 and 4 bits, compiled, run and compared with NumPy."""

import re
from pathlib import Path

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held
from heddle.runtime import InferenceSession

WIDE = {DType.float32: 1e-5, DType.float16: 2e-3, DType.bfloat16: 1.6e-2}
"""Dtypes of activations, and the rounding that results may differ by."""

KINDS = (
    (DType.int8, 70, 32),
    (DType.uint8, 33, 128),
    (DType.uint8, 96, 32),
    (DType.float8_e4m3fn, 40, 64),
    (DType.float8_e5m2, 33, 256),
)
"""Dtypes of weights, with n and the size of a group."""


def level(name):
    """The architecture as a target, skipped where this CPU is older."""
    needed = {"x86-64-v4": "avx512bw", "cooperlake": "avx512_bf16"}.get(name, "")
    if needed not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this CPU has no {needed}")
    return f"cpu:{name}"


def numbers(rng, dtype, shape):
    values = rng.standard_normal(shape).astype(np.float32)
    return held(values, dtype)


def weights_of(rng, dtype, kind, n, k, group):
    if kind.is_float8:
        integers = numbers(rng, kind, (n, k))
    elif kind is DType.int8:
        integers = rng.integers(-128, 128, (n, k)).astype(np.int8)
    else:
        integers = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    scales = numbers(rng, dtype, (n, k // group)) / 64
    return integers, scales.astype(scales.dtype)


def weight_dtype(name):
    """The dtype that the name of a weight of floats begins with."""
    return DType[name.split()[0]]


def given(dtype, array):
    """What the runtime takes for what the reference holds."""
    return array if dtype.in_numpy else array.astype(dtype.value)


def graph_of_all(k, dtypes):
    """Each of `dtypes` by every kind of weight, and the weights."""
    rng, weights = np.random.default_rng(0), {}
    with Graph("all", [TensorType(dtype, (Dim("m", 1, 99), k)) for dtype in dtypes]) as graph:
        results = []

        def weight(name, dtype, array):
            weights[name] = array
            return graph.add_weight(Weight(name, dtype, array.shape))

        for x in graph.inputs:
            for kind, n, group in KINDS:
                name = f"{kind} {n} for {x.dtype}"
                integers, scales = weights_of(rng, x.dtype, kind, n, k, group)
                w, s = (
                    weight(name, kind, integers),
                    weight(f"{x.dtype} for {name}", x.dtype, scales),
                )
                bits = 4 if kind is DType.uint8 else 8
                product = ops.quantized_matmul(x, w, s, bits=bits, group=group)
                results.append(ops.relu(product))
            w = weight(f"{x.dtype} plain", x.dtype, numbers(rng, x.dtype, (50, k)))
            results.append(ops.tanh(x) @ w.T)
        graph.output(*results)
    return graph, weights


@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4", "cooperlake"])
def test_every_weight_with_every_dtype(arch):
    # Products take float16 as float32: that is the same on every level, and tried on the last.
    wide = [dtype for dtype in WIDE if dtype is not DType.float16 or arch == "cooperlake"]
    graph, weights = graph_of_all(256, wide)
    dtypes = [dtype for dtype in wide for _ in range(len(KINDS) + 1)]
    loaded = {name: given(weight_dtype(name), array) for name, array in weights.items()}
    model = InferenceSession(threads=2).load(compile(graph, level(arch)), loaded)
    rng = np.random.default_rng(1)
    for rows in (1, 3, 8, 17, 40):
        inputs = [numbers(rng, dtype, (rows, 256)) for dtype in wide]
        wanted = evaluate(graph, inputs, weights)
        results = model.execute(*map(given, wide, inputs))
        for dtype, result, reference in zip(dtypes, results, wanted, strict=True):
            got = result.to_numpy().astype(np.float32)
            near = WIDE[dtype] * np.abs(reference).max()
            np.testing.assert_allclose(got, reference, rtol=WIDE[dtype], atol=near)


def rounding(k, dtypes):
    """As `graph_of_all`, of integers alone, with activations in 8 bits; those are computed."""
    rng, weights = np.random.default_rng(0), {}
    with Graph("rounding", [TensorType(dtype, (Dim("m", 1, 99), k)) for dtype in dtypes]) as graph:
        results = []
        for x in graph.inputs:
            for bits, group in ((8, 32), (8, 128), (4, 32), (4, 64)):
                kind = DType.int8 if bits == 8 else DType.uint8
                arrays = weights_of(rng, x.dtype, kind, 50, k, group)
                names = [f"{part} of {bits} in {group} for {x.dtype}" for part in ("w", "s")]
                w, s = (
                    graph.add_weight(Weight(name, dtype, array.shape))
                    for name, dtype, array in zip(names, (kind, x.dtype), arrays, strict=True)
                )
                weights |= zip(names, zip((kind, x.dtype), arrays, strict=True), strict=True)
                attrs = {"bits": bits, "group": group, "activations": "int8"}
                results.append(ops.quantized_matmul(ops.relu(x), w, s, **attrs))
        graph.output(*results)
    return graph, weights


@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4", "cooperlake"])
def test_activations_in_8_bits(arch):
    graph, weights = rounding(256, WIDE)
    loaded = {name: given(dtype, array) for name, (dtype, array) in weights.items()}
    model = InferenceSession(threads=2).load(compile(graph, level(arch)), loaded)
    rng, arrays = np.random.default_rng(1), {name: array for name, (_, array) in weights.items()}
    for rows in (1, 4, 40):
        inputs = [numbers(rng, dtype, (rows, 256)) for dtype in WIDE]
        wanted = evaluate(graph, inputs, arrays)
        results = model.execute(*map(given, WIDE, inputs))
        dtypes = [dtype for dtype in WIDE for _ in range(4)]
        for dtype, result, reference in zip(dtypes, results, wanted, strict=True):
            got = result.to_numpy().astype(np.float32)
            near = WIDE[dtype] * np.abs(reference).max()
            np.testing.assert_allclose(got, reference, rtol=WIDE[dtype], atol=near)


def test_activations_in_8_bits_keep_their_meaning_on_cuda():
    """There each group is rounded in front of a product of floats."""
    graph, weights = rounding(128, [DType.float32, DType.bfloat16])
    rng, arrays = np.random.default_rng(1), {name: array for name, (_, array) in weights.items()}
    inputs = [numbers(rng, dtype, (5, 128)) for dtype in (DType.float32, DType.bfloat16)]
    inputs[0][2], inputs[1][3, :32] = 0, 0
    # Half of the largest: 63.5 steps, whose float32 inverse is a bit too small.
    inputs[0][4, :32] = [2.703125, 1.3515625] + [0] * 30
    wanted = evaluate(graph, inputs, arrays)
    module = pipeline.lower(graph.module, "cuda", stop_after="legalize")
    found = evaluate(module, inputs, arrays)
    for number, (a, b) in enumerate(zip(wanted, found, strict=True)):
        near = (1e-5 if number < 4 else 1e-2) * np.abs(a).max()
        np.testing.assert_allclose(b, a, rtol=0, atol=near)
    assert "round" in {m.name(op) for op in m.operations(module)}
    inputs[0][1, 70] = np.inf
    assert all(np.isnan(b[1]).all() for b in evaluate(module, inputs, arrays)[:4])


def test_rows_are_rounded_once_for_all_products():
    graph, _ = rounding(256, [DType.float32])
    text = compile(graph, "cpu", stop_after="select")
    kernels = re.findall(r'kernel = "(\w+)-', text)
    # Once for each size of groups and number of bits, of what one kernel has computed for all.
    assert (kernels.count("round_rows"), kernels.count("map")) == (4, 1)
    module = pipeline.lower(graph.module, "cuda", stop_after="legalize")
    rounded = [op for op in m.operations(module) if m.name(op) == "round"]
    assert len(rounded) == len({op.operands[0] for op in rounded}) == 3  # sizes of groups


def test_packing_happens_at_load():
    with Graph("once", [TensorType(DType.float16, ("m", 64))]) as graph:
        w = graph.add_weight(Weight("w", DType.uint8, (40, 32)))
        s = graph.add_weight(Weight("s", DType.float16, (40, 2)))
        x = ops.exp(graph.inputs[0])
        graph.output(ops.quantized_matmul(x, w, s, bits=4, group=32))
    text = compile(graph, "cpu", stop_after="select")
    lines = [line for line in text.splitlines() if "kernel = " in line]
    init = [line for line in lines if 'stage = "init"' in line]
    # The scales and the weight at load; then exp with the cast of its result, and the product.
    assert (len(init), len(lines)) == (2, 4)
    assert 'kernel = "pack_int4-' in "".join(init)


@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4", "cooperlake"])
@pytest.mark.parametrize("dtype", [DType.float32, DType.float16])
def test_rows_that_a_reader_keeps_apart(dtype, arch):
    """What is added to each batch alone keeps batches from being rows of one product."""
    rng = np.random.default_rng(0)
    types = [TensorType(dtype, (2, 5, 64)), TensorType(dtype, (5, 33))]
    with Graph("apart", types) as graph:
        x, y = graph.inputs
        given, weights = [], {}
        for kind in (DType.int8, DType.uint8):
            integers, scales = weights_of(rng, dtype, kind, 33, 64, 32)
            names = f"{kind.name} weight", f"{kind.name} scales"
            weights |= dict(zip(names, (integers, scales), strict=True))
            kinds = (kind, integers), (dtype, scales)
            given.append(
                [
                    graph.add_weight(Weight(name, of, array.shape))
                    for name, (of, array) in zip(names, kinds, strict=True)
                ]
            )
        graph.output(
            *(
                ops.quantized_matmul(x, *pair, bits=bits, group=32) + y
                for pair, bits in zip(given, (8, 4), strict=True)
            )
        )
    arrays = [numbers(rng, dtype, type.shape) for type in (v.type for v in graph.inputs)]
    model = InferenceSession(threads=1).load(compile(graph, level(arch)), weights)
    wanted = evaluate(graph, arrays, weights)
    for found, reference in zip(model.execute(*arrays), wanted, strict=True):
        limit = WIDE[dtype] * np.abs(reference).max()
        np.testing.assert_allclose(found.to_numpy(), reference, rtol=0, atol=limit)
