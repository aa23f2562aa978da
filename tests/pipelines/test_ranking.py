"""Pairs of texts through a compiled cross-encoder."""

import numpy as np
import pytest

from heddle.graph import reference
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.embedding import SentenceEmbedder
from heddle.pipelines.ranking import PairScorer
from heddle.pipelines.sentence_model import build
from heddle.pipelines.sentence_settings import Reading
from heddle.runtime import InferenceSession, InputError


@pytest.fixture(scope="module")
def model(reranker_artifact):
    return InferenceSession(threads=2).load(reranker_artifact)


@pytest.fixture(scope="module")
def scorer(model, reranker):
    return PairScorer(model, reranker / "tokenizer.json")


def test_a_pair_is_one_sequence_of_two_types(reranker, scorer):
    found = Checkpoint(reranker)
    graph = build(found, "reranker")
    arrays = weights.select(found.weights, graph.weights)
    tokens = np.array([[2, 4, 5, 3, 7, 9, 3]], np.int32)
    types = np.array([[0, 0, 0, 0, 1, 1, 1]], np.int32)
    (wanted,) = reference.evaluate(graph, (tokens, tokens > 0, types), arrays)
    np.testing.assert_allclose(scorer.score("warp weft", ["loom reed"]), wanted, atol=1e-5)


def test_scores_are_in_the_order_of_the_texts(scorer):
    texts = ["loom", "warp weft shed", "reed " * 9, "thread"]
    together = scorer.score("warp", texts, batch=2)
    alone = [float(scorer.score("warp", [text])[0]) for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert len(set(alone)) == 4


def test_the_longer_text_of_a_pair_is_cut(model, reranker):
    scorer = PairScorer(model, reranker / "tokenizer.json", Reading(maximum=6))
    short, long = scorer.score("warp", ["loom loom", "loom " * 9])
    np.testing.assert_allclose(short, long, atol=1e-6)


def test_no_texts_are_refused(scorer):
    with pytest.raises(InputError, match="scorer: wanted at least one text, got none"):
        scorer.score("warp", [])
    with pytest.raises(InputError, match="scorer: query: wanted a text in UTF-8"):
        scorer.score("\udcff", ["warp"])
    with pytest.raises(InputError, match="scorer: text 1: wanted a text in UTF-8"):
        scorer.score("warp", ["loom", "\udcff"])


def test_a_model_of_another_kind_is_refused(tiny, tiny_artifact, reranker, model):
    file = tiny / "tokenizer.json"
    embedder = InferenceSession().load(tiny_artifact)
    with pytest.raises(InputError, match="scorer: wanted a model with output scores, got embedd"):
        PairScorer(embedder, file)
    with pytest.raises(InputError, match=r"embedder: wanted .* tokens, attention_mask, got tok"):
        SentenceEmbedder(model, file)
