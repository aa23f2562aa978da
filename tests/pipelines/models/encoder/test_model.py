"""Encoders beside what transformers computes; and BERT evaluated by NumPy."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from encoder_cases import ENCODERS, GOLDEN, config_of, drawn, encoder_graph, inputs_of, run

from heddle.graph import DType, reference
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.embedding import pad
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.quantization import array_of, bits_of, narrowed, widened

MINILM = Path(__file__).parents[3] / "golden" / "minilm.npz"


@pytest.fixture(scope="module")
def config(tiny) -> EncoderConfig:
    return EncoderConfig.read(tiny / "config.json")


def rows(generator, *lengths):
    return [generator.integers(4, 50, length).tolist() for length in lengths]


def evaluate(graph, inputs, arrays):
    (result,) = reference.evaluate(graph, inputs, arrays)
    return result


@pytest.mark.skipif(not find_spec(checkpoint.PACKAGE), reason="the demo's model is not installed")
def test_minilm_agrees_with_the_recorded_reference():
    found = checkpoint.minilm()
    graph = sentence_embedder(EncoderConfig.read(found.config))
    golden = np.load(MINILM)
    ids = np.split(golden["tokens"], golden["token_offsets"][1:-1])
    chosen = [0, 1, 4, 20]
    result = evaluate(graph, pad([ids[i] for i in chosen]), weights.read(found.weights))
    np.testing.assert_allclose(result, golden["embeddings"][chosen], atol=1e-6)


@pytest.mark.parametrize("name", ENCODERS)
def test_hidden_states_are_those_of_transformers(name):
    graph = encoder_graph(config_of(name))
    tokens, mask = inputs_of(name)
    found = run(graph, drawn(graph), tokens, mask)
    np.testing.assert_allclose(found[mask], GOLDEN[f"{name}.hidden"], atol=2e-5)


@pytest.mark.parametrize("name", ["mpnet", "modernbert"])
@pytest.mark.parametrize(("dtype", "atol"), [(DType.bfloat16, 0.15), (DType.float16, 0.02)])
def test_hidden_states_in_a_narrow_dtype_stay_near(name, dtype, atol):
    graph = encoder_graph(config_of(name), dtype)
    tokens, mask = inputs_of(name)
    found = run(graph, drawn(graph), tokens, mask)[mask]
    np.testing.assert_allclose(found, GOLDEN[f"{name}.hidden"], atol=atol)
    assert np.abs(found - GOLDEN[f"{name}.hidden"]).max() > atol / 100


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["mpnet", "nomic_bert"])
def test_weights_are_taken_as_they_are_stored(name, kind):
    """The same as from those weights in float32."""
    inputs, wide = inputs_of(name), encoder_graph(config_of(name))
    stored = {n: array_of(narrowed(a, kind), kind) for n, a in drawn(wide).items()}
    narrow = encoder_graph(config_of(name), stored=dict.fromkeys(stored, DType(kind)))
    assert {w.dtype for w in narrow.weights.values()} == {DType(kind)}
    widely = {n: widened(bits_of(a)) for n, a in stored.items()}
    (wanted, found), (_, mask) = (run(wide, widely, *inputs), run(narrow, stored, *inputs)), inputs
    np.testing.assert_allclose(found[mask], wanted[mask], atol=1e-5)


def test_the_signature(config):
    graph = sentence_embedder(config, "tiny")
    assert graph.name == "tiny"
    assert graph.symbols == {"batch": (1, 1024), "sequence": (1, 24)}
    assert [str(value.type) for value in graph.inputs] == [
        "int32[batch, sequence] on cpu:0",
        "bool[batch, sequence] on cpu:0",
    ]


def test_padding_changes_nothing(config, tiny_weights):
    graph = sentence_embedder(config)
    texts = rows(np.random.default_rng(0), 3, 11, 24)
    together = evaluate(graph, pad(texts), tiny_weights)
    alone = [evaluate(graph, pad([row]), tiny_weights)[0] for row in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_token_types_choose_their_segment(config, tiny_weights):
    inputs = pad(rows(np.random.default_rng(1), 5, 7))
    graph = sentence_embedder(config, types=True)
    zeros, ones = (np.full(inputs[0].shape, value, np.int32) for value in (0, 1))
    without = evaluate(sentence_embedder(config), inputs, tiny_weights)
    np.testing.assert_allclose(evaluate(graph, (*inputs, zeros), tiny_weights), without, atol=1e-6)
    assert np.abs(evaluate(graph, (*inputs, ones), tiny_weights) - without).max() > 1e-3


@pytest.mark.parametrize(("dtype", "atol"), [(DType.bfloat16, 0.03), (DType.float16, 0.004)])
def test_a_narrow_dtype_stays_near(config, tiny_weights, dtype, atol):
    inputs = pad(rows(np.random.default_rng(3), 5, 24))
    wide, narrow = (sentence_embedder(config, dtype=kind) for kind in (DType.float32, dtype))
    assert narrow.weights == wide.weights
    found = evaluate(narrow, inputs, tiny_weights)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, evaluate(wide, inputs, tiny_weights), atol=atol)
    assert (found != evaluate(wide, inputs, tiny_weights)).any()


def test_a_prefix_is_part_of_the_weights_names(config):
    plain, named = (sentence_embedder(config, prefix=text) for text in ("", "bert."))
    assert list(named.weights) == [f"bert.{name}" for name in plain.weights]


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_every_activation_builds(config, tiny_weights, activation):
    changed = replace(config, hidden_act=activation)
    inputs = pad(rows(np.random.default_rng(2), 4))
    result = evaluate(sentence_embedder(changed), inputs, tiny_weights)
    np.testing.assert_allclose(np.linalg.norm(result), 1, atol=1e-6)
