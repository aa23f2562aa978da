"""Whole models that ONNX Runtime's own quantizer has written, beside ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_texts import parsed

from heddle.graph import compile
from heddle.pipelines.onnx import load
from heddle.runtime import InferenceSession

onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

PICTURES = """m (float[n, 3, 12, 12] x) => (float[n, 5] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
    r = Relu(a)
    c = Conv <strides = [2, 2]> (r, w1, b1)
    p = AveragePool <kernel_shape = [3, 3], strides = [2, 2]> (r)
    l = LeakyRelu <alpha = 0.1> (c)
    s = Add(l, p)
    g = Sigmoid(c)
    gated = Mul(s, g)
    both = Concat <axis = 1> (gated, p)
    means = GlobalAveragePool(both)
    flat = Flatten(means)
    z = Gemm <transB = 1> (flat, w2, b2)
    y = Softmax <axis = 1> (z)
}"""

ROWS = """m (float[n, 16] x) => (float[n, 6] y) {
    h = MatMul(x, w0)
    t = Add(h, b0)
    u = Mul(t, t)
    is_large = Greater(u, t)
    v = Where(is_large, u, t)
    k = Gemm(v, w1, b1)
    y = Sigmoid(k)
}"""

MODELS = {
    "pictures": (
        PICTURES,
        (4, 3, 12, 12),
        {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (5, 16), "b2": (5,)},
    ),
    "rows": (ROWS, (32, 16), {"w0": (16, 24), "b0": (24,), "w1": (24, 6), "b1": (6,)}),
}

FORMS = {
    "QOperator": ("QOperator", "QUInt8", "QInt8", {"ForceQuantizeNoInputCheck": True}),
    "QOperator of signed": ("QOperator", "QInt8", "QInt8", {}),
    "QDQ": ("QDQ", "QUInt8", "QInt8", {}),
    "QDQ of 16 bits": ("QDQ", "QUInt16", "QInt8", {"UseQDQContribOps": True}),
    "QDQ of weights of 4 bits": ("QDQ", "QUInt8", "QInt4", {}),
}


def written(name, form, folder):
    """The quantized model's path, and an input."""
    rng, (text, shape, weights) = np.random.default_rng(0), MODELS[name]
    model = parsed(text, 17)
    for held, sizes in weights.items():
        array = rng.standard_normal(sizes) / np.sqrt(np.prod(sizes[1:] or 16))
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), held))
    onnx.save(model, folder / "model.onnx")
    path, (layout, activations, kind, more) = folder / "quantized.onnx", FORMS[form]
    batches = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    quantization.quantize_static(
        folder / "model.onnx",
        path,
        _Batches(batches),
        quant_format=quantization.QuantFormat[layout],
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType[kind],
        per_channel=kind == "QInt8",
        reduce_range=kind == "QInt8",  # on some CPUs ONNX Runtime adds products in 16 bits
        extra_options=more,
    )
    return path, batches[0]["x"]


class _Batches(quantization.CalibrationDataReader):
    def __init__(self, batches):
        self.batches = iter(batches)

    def get_next(self):
        return next(self.batches, None)


def quantum(path):
    """The scale of the result."""
    graph = onnx.load(path).graph
    (last,) = (node for node in graph.node if "y" in node.output)
    (scale,) = (row for row in graph.initializer if row.name == last.input[1])
    return numpy_helper.to_array(scale).item()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_what_the_quantizer_writes_computes_the_same(name, form, tmp_path):
    path, x = written(name, form, tmp_path)
    options = onnxruntime.SessionOptions()  # its optimizer computes with 8 bits where it has 16
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    found = load(path, dims={"n": len(x)})
    artifact = compile(found.graph, "cpu:native", weights=found.weights, embed_weights=True)
    (y,) = InferenceSession(threads=1).load(artifact).execute(x)
    assert wanted.std() > 8 * quantum(path)
    np.testing.assert_allclose(y.to_numpy(), wanted, rtol=0, atol=1.01 * quantum(path))
