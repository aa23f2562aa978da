"""A whole model compiled for CUDA, on the emulator: kernels, grids, dims, memory plan together."""

import numpy as np
import pytest
from cuda_program import EmulatedModel

from heddle.graph import DType, Graph, TensorType, ops, reference
from heddle.pipelines.embedding import pad
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig

CONFIG = EncoderConfig.of(
    {
        "model_type": "bert",
        "vocab_size": 40,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 12,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
)


@pytest.fixture(scope="module")
def model():
    graph = sentence_embedder(CONFIG)
    random = np.random.default_rng(7)
    weights = {
        name: random.standard_normal([int(dim) for dim in weight.shape]).astype(np.float32) * 0.3
        for name, weight in graph.weights.items()
    }
    return graph, weights, EmulatedModel(graph, weights)


@pytest.mark.parametrize("lengths", [(1,), (5, 12), (3, 7, 2)])
def test_sentence_embeddings(model, lengths):
    graph, weights, emulated = model
    random = np.random.default_rng(3)
    inputs = pad([random.integers(0, CONFIG.vocab_size, length).tolist() for length in lengths])
    (found,), status = emulated(*inputs)
    (wanted,) = reference.evaluate(graph, inputs, weights)
    assert status == [0, 0, 0, 0]
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_a_token_out_of_range_is_reported_by_its_kernel(model):
    _, _, emulated = model
    tokens, mask = pad([[3, 1, 39], [2, 40]])
    _, status = emulated(tokens, mask)
    assert status == [1, 40, 40, 0]


def test_what_is_updated_holds_what_was_there():
    """The program copies it to where the kernel adds to it."""
    types = [TensorType(DType.float32, ("n", 4)), TensorType(DType.int64, ("k",))]
    with Graph("scatter", [*types, TensorType(DType.float32, ("k", 4))]) as graph:
        x, places, rows = graph.inputs
        graph.output(ops.scatter(x * 2.0, places, rows, axis=0, reduce="max"))
    x, rows = (np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32) for n in (6, 3))
    inputs = [x, np.array([1, 4, 1]), rows]
    (found,), _ = EmulatedModel(graph, {})(*inputs)
    np.testing.assert_array_equal(found, reference.evaluate(graph, inputs)[0])
