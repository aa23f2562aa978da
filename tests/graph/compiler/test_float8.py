"""Products of 8-bit floats, compiled, run and compared with NumPy."""

from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

E4M3, E5M2, F32 = DType.float8_e4m3fn, DType.float8_e5m2, DType.float32
NEEDS = {"x86-64-v3": "avx2", "x86-64-v4": "avx512bw", "cooperlake": "avx512_bf16"}


def quantized(x):
    """x in 8 bits, and the scale of each row."""
    scale = ops.maximum(ops.max(ops.abs(x), axis=-1) / 448, 1e-30)
    return ops.saturating_cast(x / scale, E4M3), scale


@pytest.fixture(scope="module")
def case():
    """A layer, and products by other operands of every kind; the weights."""
    rng, weights = np.random.default_rng(0), {}

    def weight(name, dtype, shape):
        weights[name] = held(rng.standard_normal(shape), dtype)
        return graph.add_weight(Weight(name, dtype, shape))

    inputs = [
        TensorType(F32, ("m", 64)),
        TensorType(E5M2, (2, "m", 50)),
        TensorType(E4M3, (2, 50, "n")),
    ]
    with Graph("floats", inputs) as graph:
        x, rows, columns = graph.inputs
        q, scale = quantized(x)
        product = ops.float8_matmul(q, weight("w", E4M3, (40, 64)).T)
        layer = ops.relu(product * scale * weight("w scale", F32, (40,)))
        graph.output(
            layer,
            ops.float8_matmul(q, weight("straight", E5M2, (64, 70))),
            ops.float8_matmul(rows, columns),
            ops.float8_matmul(rows, weight("odd", E4M3, (33, 50)).T),
        )
    return graph, weights


@pytest.mark.parametrize("arch", NEEDS)
def test_every_operand(case, arch):
    if NEEDS[arch] not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this CPU has no {NEEDS[arch]}")
    graph, weights = case
    given = {name: array.astype(graph.weights[name].dtype.value) for name, array in weights.items()}
    model = InferenceSession(threads=2).load(compile(graph, f"cpu:{arch}"), given)
    rng = np.random.default_rng(1)
    for m, n in ((1, 1), (13, 40)):
        x = rng.standard_normal((m, 64)).astype(np.float32)
        x[0] = 0
        shapes = ((2, m, 50), (2, 50, n))
        narrow = [
            rng.standard_normal(shape).astype(dtype.value)
            for shape, dtype in zip(shapes, (E5M2, E4M3), strict=True)
        ]
        wanted = evaluate(graph, [x, *narrow], weights)
        for result, reference in zip(model.execute(x, *narrow), wanted, strict=True):
            near = 1e-5 * np.abs(reference).max()
            np.testing.assert_allclose(result.to_numpy(), reference, rtol=1e-5, atol=near)


def test_a_layer_is_one_kernel_and_packing_happens_at_load():
    with Graph("layer", [TensorType(F32, ("m", 64))]) as graph:
        q, scale = quantized(graph.inputs[0])
        w = graph.add_weight(Weight("w", E4M3, (40, 64)))
        graph.output(ops.cast(ops.float8_matmul(q, w.T) * scale, DType.bfloat16))
    text = compile(graph, "cpu", stop_after="select")
    lines = [line for line in text.splitlines() if "kernel = " in line]
    # The largest of a row, its codes, the product; at load packing and the scale of one.
    assert sum('stage = "init"' not in line for line in lines) == 3
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ((F32, E4M3), "a: wanted float8_e4m3fn or float8_e5m2, got float32"),
        ((E4M3, DType.int8), "b: wanted float8_e4m3fn or float8_e5m2, got int8"),
    ],
)
def test_mistakes(dtypes, message):
    types = [TensorType(dtype, (8, 8)) for dtype in dtypes]
    with pytest.raises(GraphError) as caught, Graph("wrong", types) as graph:
        graph.output(ops.float8_matmul(*graph.inputs))
    assert str(caught.value).endswith(f": float8_matmul: {message}")
