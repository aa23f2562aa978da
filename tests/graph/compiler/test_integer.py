"""Products of 8-bit integers, compiled, run and compared with NumPy."""

from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

NEEDS = {"x86-64-v3": "avx2", "x86-64-v4": "avx512bw", "cooperlake": "avx512_bf16"}


def quantized(x):
    """x as int8, and the scale of each row."""
    scale = ops.max(ops.abs(x), axis=-1) / 127
    return ops.cast(ops.round(x / ops.maximum(scale, 1e-30)), DType.int8), scale


@pytest.fixture(scope="module")
def case():
    """A layer of int8, and products by other operands of every kind; the weights."""
    rng, weights = np.random.default_rng(0), {}

    def weight(name, shape, dtype=DType.int8):
        values = rng.integers(-128, 128, shape).astype(dtype.to_numpy())
        weights[name] = values
        return graph.add_weight(Weight(name, dtype, shape))

    inputs = [
        TensorType(DType.float32, ("m", 50)),
        TensorType(DType.int8, (2, "m", 50)),
        TensorType(DType.uint8, (2, "m", 50)),
        TensorType(DType.int8, (2, 50, "n")),
    ]
    with Graph("integers", inputs) as graph:
        x, signed, unsigned, columns = graph.inputs
        q, scale = quantized(x)
        product = ops.integer_matmul(q, weight("w", (33, 50)).T)
        w_scale = weight("w scale", (33,), DType.float32)
        layer = ops.relu(ops.cast(product, DType.float32) * scale * w_scale)
        v = weight("v", (50, 70))
        graph.output(
            layer,
            ops.integer_matmul(signed, v),
            ops.integer_matmul(unsigned, v),
            ops.integer_matmul(signed, columns),
            ops.integer_matmul(unsigned, weight("batch", (2, 40, 50)).transpose(1, 2)),
        )
    return graph, weights


@pytest.mark.parametrize("arch", NEEDS)
def test_every_operand_is_exact(case, arch):
    if NEEDS[arch] not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this CPU has no {NEEDS[arch]}")
    graph, weights = case
    model = InferenceSession(threads=2).load(compile(graph, f"cpu:{arch}"), weights)
    rng = np.random.default_rng(1)
    for m, n in ((1, 1), (13, 40)):
        x = rng.standard_normal((m, 50)).astype(np.float32)
        x[0] = 0
        lowest = np.full((2, m, 50), -128, np.int8)
        given = [
            x,
            lowest,
            rng.integers(0, 256, (2, m, 50)).astype(np.uint8),
            rng.integers(-128, 128, (2, 50, n)).astype(np.int8),
        ]
        wanted = evaluate(graph, given, weights)
        layer, *exact = (result.to_numpy() for result in model.execute(*given))
        np.testing.assert_allclose(layer, wanted[0], rtol=1e-5)
        for result, reference in zip(exact, wanted[1:], strict=True):
            np.testing.assert_array_equal(result, reference)


def test_a_layer_is_one_kernel_and_packing_happens_at_load():
    with Graph("layer", [TensorType(DType.float32, ("m", 64))]) as graph:
        q, scale = quantized(graph.inputs[0])
        w = graph.add_weight(Weight("w", DType.int8, (40, 64)))
        graph.output(ops.cast(ops.integer_matmul(q, w.T), DType.float32) * scale)
    text = compile(graph, "cpu", stop_after="select")
    lines = [line for line in text.splitlines() if "kernel = " in line]
    # The largest of a row, its integers, the product; at load packing and two for column sums.
    assert sum('stage = "init"' not in line for line in lines) == 3
    assert len(lines) == 6
