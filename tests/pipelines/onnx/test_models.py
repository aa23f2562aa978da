"""Whole models from ONNX files: compiled, and with the kernels that Heddle's own have."""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from heddle.graph import compile
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.graph.compiler.stages import known_at_init
from heddle.pipelines import weights
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.onnx import load
from heddle.runtime import InferenceSession

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import onnx_bert
from onnx_texts import imported

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Models of ONNX's collection, each weight a single number, with what they compute."""


@pytest.fixture(scope="module")
def encoder(tiny, tmp_path_factory):
    """The ONNX file of a small sentence embedder, as exporters write it."""
    path = tmp_path_factory.mktemp("onnx") / "encoder.onnx"
    arrays = {name: np.asarray(each) for name, each in weights.read(weights_of(tiny)).items()}
    onnx_bert.build(arrays, json.loads((tiny / "config.json").read_text()), "standard", path)
    return path


def weights_of(folder):
    return folder / "model.safetensors"


def kernels(graph, kind):
    """How often a run of the model calls each kernel."""
    module = pipeline.lower(graph.module, kind)
    early = known_at_init(module)
    fused = [op for op in m.operations(module) if m.name(op) == "fused"]
    return Counter(op.attributes["kernel"].value for op in fused if op.results[0] not in early)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_an_encoder_has_the_kernels_of_one_that_names_its_ops(encoder, tiny, kind):
    graph = sentence_embedder(EncoderConfig.read(tiny / "config.json"))
    own, read = kernels(graph, kind), kernels(load(encoder, dims=graph.symbols).graph, kind)
    for name in ("attention", "layer_norm", "matmul", "matmul_packed"):
        assert count(read, name) == count(own, name)
    # Its mask and the length of its results take more steps, and an index may be negative.
    assert read.total() <= own.total() + 4


def count(found, name):
    """How many of the kernels are called so before their hash."""
    return sum(number for kernel, number in found.items() if kernel.rpartition("-")[0] == name)


def test_an_encoder_computes_what_its_checkpoint_does(encoder, tiny):
    found = load(encoder)
    assert found.graph.symbols["sequence"] == (1, 24)
    artifact = compile(found.graph, "cpu:native", weights=found.weights, embed_weights=True)
    own = compile(sentence_embedder(EncoderConfig.read(tiny / "config.json")), "cpu:native")
    session = InferenceSession()
    model = weights.load(session, own, weights_of(tiny))
    rng = np.random.default_rng(0)
    for batch, sequence in ((1, 1), (3, 24)):
        ids = rng.integers(0, 50, (batch, sequence))
        mask = np.ones((batch, sequence), np.int64)
        mask[-1, sequence // 2 + 1 :] = 0
        (wanted,) = model.execute(ids.astype(np.int32), mask.astype(bool))
        (got,) = session.load(artifact).execute(ids, mask)
        np.testing.assert_allclose(got.to_numpy(), wanted.to_numpy(), atol=2e-6)


CAUSAL = """m (float[b, 4, t, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v)
=> (float[b, 4, t, 16] y) {
    one = Constant <value_floats = [1.0]> ()
    zero = Constant <value_floats = [0.0]> ()
    lowest = Constant <value_floats = [-3e38]> ()
    none = Add(lowest, lowest)
    sizes = Shape <start = 2, end = 3> (q)
    square = Concat <axis = 0> (sizes, sizes)
    ones = Expand(one, square)
    triangle = Trilu <upper = 0> (ones)
    hidden = Equal(triangle, zero)
    mask = Where(hidden, none, zero)
    turned = Transpose <perm = [0, 1, 3, 2]> (k)
    root = Constant <value_floats = [0.5]> ()
    less = Mul(q, root)
    small = Mul(turned, root)
    scores = MatMul(less, small)
    masked = Add(scores, mask)
    shares = Softmax <axis = -1> (masked)
    y = MatMul(shares, v)
}"""


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_attention_as_exporters_write_it_is_one_kernel_without_a_mask(kind):
    module = pipeline.lower(imported(CAUSAL).graph.module, kind)
    (fused,) = [op for op in m.operations(module) if m.name(op) == "fused"]
    (attention,) = [op for op in m.inner(fused) if m.name(op) == "attention"]
    assert m.attrs(attention)["causal"]
    assert m.attrs(attention)["scale"] == 0.25
    assert len(attention.operands) == 3


def test_a_picture_network_computes_what_onnx_says():
    found = load(LIGHT / "light_squeezenet.onnx")
    (type,) = [value.type for value in found.graph.inputs]
    artifact = compile(found.graph, "cpu:native", weights=found.weights, embed_weights=True)
    moved = [name for name in kernels(found.graph, "cpu") if name.startswith("transpose")]
    assert len(moved) == 1  # of the picture
    x = np.ones(type.shape.static, np.float32)
    (y,) = InferenceSession().load(artifact).execute(x)
    proto = onnx.TensorProto()
    proto.ParseFromString((LIGHT / "light_squeezenet_output_0.pb").read_bytes())
    np.testing.assert_allclose(y.to_numpy(), numpy_helper.to_array(proto), rtol=1e-3)
