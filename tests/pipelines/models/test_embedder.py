"""Poolings and what follows them, and scores of pairs, beside sentence-transformers."""

import numpy as np
import pytest
from encoder_cases import GOLDEN, SCORERS, config_of, drawn, inputs_of, run
from encoder_weights import weight

from heddle.graph import Dim, DType, Graph, TensorType
from heddle.pipelines.models.embedder import Dense, Head, sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.models.pooling import MODES
from heddle.pipelines.models.scorer import ScorerConfig, pair_scorer

IDENTITY = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}


def embedded(head: Head) -> np.ndarray:
    """What follows the encoder `bert`, of its recorded hidden states; what is padded is 7."""
    _, mask = inputs_of("bert")
    rows = GOLDEN["bert.hidden"]
    hidden = np.full((*mask.shape, rows.shape[1]), 7, np.float32)
    hidden[mask] = rows
    batch, sequence = Dim("batch", 1, 8), Dim("sequence", 1, 32)
    types = [
        TensorType(DType.float32, (batch, sequence, rows.shape[1])),
        TensorType(DType.bool, (batch, sequence)),
    ]
    with Graph("head", types) as graph:
        graph.output(head(graph, *(value.tensor for value in graph.inputs)))
    return run(graph, {}, hidden, mask)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_poolings_are_those_of_sentence_transformers(mode, normalized):
    wanted = GOLDEN[f"pooled.{mode}"]
    found = embedded(Head((mode,), normalized=normalized))
    np.testing.assert_allclose(found, unit(wanted) if normalized else wanted, atol=1e-5)


def test_poolings_stand_side_by_side():
    wanted = np.concatenate([GOLDEN["pooled.max"], GOLDEN["pooled.mean"]], axis=1)
    np.testing.assert_allclose(embedded(Head(("max", "mean"))), unit(wanted), atol=1e-5)


def test_a_dense_layer():
    matrix, bias = weight("linear.weight", (20, 32)), weight("linear.bias", (20,))
    found = embedded(Head(dense=(Dense(matrix, bias, "tanh"),)))
    np.testing.assert_allclose(found, GOLDEN["dense"], atol=1e-5)
    plain = embedded(Head(dense=(Dense(matrix, None, None),), normalized=False))
    np.testing.assert_allclose(plain, GOLDEN["pooled.mean"] @ matrix.T, atol=1e-5)


def test_a_vector_of_zeros_stays_so():
    nothing = np.zeros((20, 32), np.float32)
    assert not embedded(Head(dense=(Dense(nothing, None, None),))).any()


def test_the_pooling_of_an_embedder():
    """From tokens to what is recorded."""
    graph = sentence_embedder(
        EncoderConfig.of(config_of("bert")), head=Head(("cls",), normalized=False)
    )
    found = run(graph, drawn(graph), *inputs_of("bert"))
    np.testing.assert_allclose(found, GOLDEN["pooled.cls"], atol=2e-5)


def scores(name: str, change: dict) -> tuple[Graph, np.ndarray]:
    values = config_of(name)
    graph = pair_scorer(
        EncoderConfig.of(values), ScorerConfig.of(values | change), prefix=prefix(name)
    )
    tokens, mask = inputs_of(name)
    typed = [GOLDEN[f"{name}.types"]] if len(graph.inputs) == 3 else []
    return graph, run(graph, drawn(graph), tokens, mask, *typed)


def prefix(name: str) -> str:
    """What the class of transformers puts before the encoder's names."""
    family = config_of(name)["model_type"].replace("xlm-roberta", "roberta")
    return "model." if family == "modernbert" else f"{family}."


@pytest.mark.parametrize("name", SCORERS)
def test_scores_are_those_of_transformers(name):
    graph, found = scores(name, IDENTITY)
    np.testing.assert_allclose(found, GOLDEN[f"{name}.logits"], atol=3e-5)
    typed = name.startswith(("bert", "nomic", "roberta"))
    assert len(graph.inputs) == 2 + typed


@pytest.mark.parametrize(
    "change", [{}, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}]
)
def test_the_last_step_of_a_score(change):
    """A sigmoid, unless the model says another."""
    logits = GOLDEN["bert_pairs.logits"]
    _, found = scores("bert_pairs", change)
    np.testing.assert_allclose(found, logits if change else 1 / (1 + np.exp(-logits)), atol=3e-5)
