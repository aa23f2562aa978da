"""The BERT graph, evaluated by NumPy: what the compiler then has to keep."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from heddle.graph import DType, reference
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.embedding import pad
from heddle.pipelines.models.bert import BertConfig, sentence_embedder
from heddle.runtime.errors import GraphError

GOLDEN = Path(__file__).parents[1] / "golden" / "minilm.npz"


@pytest.fixture(scope="module")
def config(tiny) -> BertConfig:
    return BertConfig.read(tiny / "config.json")


def rows(generator, *lengths):
    return [generator.integers(4, 50, length).tolist() for length in lengths]


def evaluate(graph, inputs, arrays):
    (result,) = reference.evaluate(graph, inputs, arrays)
    return result


@pytest.mark.skipif(not find_spec(checkpoint.PACKAGE), reason="the demo's model is not installed")
def test_minilm_agrees_with_the_recorded_reference():
    found = checkpoint.minilm()
    graph = sentence_embedder(BertConfig.read(found.config))
    golden = np.load(GOLDEN)
    ids = np.split(golden["tokens"], golden["token_offsets"][1:-1])
    chosen = [0, 1, 4, 20]
    result = evaluate(graph, pad([ids[i] for i in chosen]), weights.read(found.weights))
    np.testing.assert_allclose(result, golden["embeddings"][chosen], atol=1e-6)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type: wanted 'bert', got 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "wanted 'absolute', got 'relative_key'"),
        ({"hidden_act": "mish"}, "hidden_act: wanted one of gelu, .*, got 'mish'"),
        ({"hidden_size": None}, "wanted the keys of a BERT model, got no hidden_size"),
        ({"num_attention_heads": 3}, "hidden_size: wanted a multiple of 3 heads, got 32"),
    ],
)
def test_a_config_of_another_model_is_refused(tmp_path, tiny, change, message):
    values = json.loads((tiny / "config.json").read_text()) | change
    values = {name: value for name, value in values.items() if value is not None}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(GraphError, match=message) as error:
        BertConfig.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(GraphError, match=r"wanted a model's config\.json"):
        BertConfig.read(path)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
def test_every_activation_builds(config, tiny_weights, activation):
    changed = BertConfig(**{**vars(config), "hidden_act": activation})
    inputs = pad(rows(np.random.default_rng(2), 4))
    result = evaluate(sentence_embedder(changed), inputs, tiny_weights)
    np.testing.assert_allclose(np.linalg.norm(result), 1, atol=1e-6)
