"""Sentences through compiled models, and MiniLM against its recorded reference."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from heddle.graph import Dim, DType, Graph, TensorType, compile, reference
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.embedding import SentenceEmbedder, pad
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.sentence_settings import Reading
from heddle.runtime import InferenceSession, InputError

GOLDEN = Path(__file__).parents[1] / "golden" / "minilm.npz"


@pytest.fixture(scope="module")
def model(tiny_artifact):
    return InferenceSession(threads=2).load(tiny_artifact)


def rows(*lengths):
    generator = np.random.default_rng(sum(lengths))
    return [generator.integers(4, 50, length).tolist() for length in lengths]


@pytest.mark.parametrize("lengths", [(1,), (24,), (3, 3), (1, 24, 7), (5,) * 33])
def test_compiled_agrees_with_numpy(tiny, tiny_weights, model, lengths):
    graph = sentence_embedder(EncoderConfig.read(tiny / "config.json"), "tiny")
    inputs = pad(rows(*lengths))
    (wanted,) = reference.evaluate(graph, inputs, tiny_weights)
    (found,) = model.execute(*inputs)
    np.testing.assert_allclose(found.to_numpy(), wanted, atol=1e-5)


def test_texts_come_back_in_order(tiny, model):
    embedder = SentenceEmbedder(model, tiny / "tokenizer.json")
    texts = ["warp weft shed loom thread", "loom", "reed " * 40, "weft shed"]
    together = embedder.embed(texts, batch=2)
    assert together.shape == (4, 32)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_a_long_text_is_cut(tiny, model):
    embedder = SentenceEmbedder(model, tiny / "tokenizer.json", Reading(maximum=5))
    assert embedder.tokens(["loom " * 9, "weft"]) == [[2, 7, 7, 7, 3], [2, 5, 3]]


def test_a_long_text_may_lose_its_beginning(tiny, tmp_path, model):
    """As `tokenizer_config.json` says, or the tokenizer where that says nothing."""
    text, rest = ["loom loom weft shed"], [[2, 7, 5, 6, 3]]
    (tmp_path / "tokenizer_config.json").write_text('{"truncation_side": "left"}')
    reading = replace(Reading.read(tmp_path), maximum=5)
    assert SentenceEmbedder(model, tiny / "tokenizer.json", reading).tokens(text) == rest
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    tokenizer.enable_truncation(99, direction="left")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    embedder = SentenceEmbedder(model, tmp_path / "tokenizer.json", Reading(maximum=5))
    assert embedder.tokens(text) == rest
    right = Reading(maximum=5, truncation_side="right")
    embedder = SentenceEmbedder(model, tmp_path / "tokenizer.json", right)
    assert embedder.tokens(text) == [[2, 7, 7, 5, 3]]


def test_no_texts_are_refused(tiny, model):
    embedder = SentenceEmbedder(model, tiny / "tokenizer.json")
    with pytest.raises(InputError, match="wanted at least one text, got none"):
        embedder.embed([])
    with pytest.raises(InputError, match="text 1: wanted at least one token, got none"):
        embedder.embed_tokens([[2, 3], []])


def test_a_token_beyond_the_vocabulary_is_refused(model):
    tokens, mask = pad([[2, 50, 3]])
    with pytest.raises(InputError, match="50"):
        model.execute(tokens, mask)
    model.execute(*pad([[2, 49, 3]]))


def test_a_model_of_another_kind_is_refused(tiny):
    with Graph("other", [TensorType(DType.float32, (Dim("n"),))], input_names=["x"]) as graph:
        graph.output(graph.inputs[0] + 1)
    other = InferenceSession().load(compile(graph, targets=["cpu:native"]))
    with pytest.raises(InputError, match=r"wanted a model with inputs tokens, .* got x"):
        SentenceEmbedder(other, tiny / "tokenizer.json")


def test_a_file_that_is_no_tokenizer_is_refused(tiny, model):
    with pytest.raises(InputError, match=r"config\.json: wanted a tokenizer\.json"):
        SentenceEmbedder(model, tiny / "config.json")


def minilm_embedder(dtype):
    if not find_spec(checkpoint.PACKAGE):
        pytest.skip("the demo's model is not installed")
    found = checkpoint.minilm()
    graph = sentence_embedder(EncoderConfig.read(found.config), "minilm", dtype=dtype)
    arrays = weights.select(found.weights, graph.weights)
    artifact = compile(graph, targets=["cpu:native"], weights=arrays, embed_weights=True)
    return SentenceEmbedder(InferenceSession(threads=2).load(artifact), found.tokenizer)


@pytest.fixture(scope="module")
def minilm():
    return minilm_embedder(DType.float32)


def golden():
    data = np.load(GOLDEN)
    ids = np.split(data["tokens"], data["token_offsets"][1:-1])
    places = data["text_offsets"]
    texts = [data["text"][first:last].tobytes().decode() for first, last in pairwise(places)]
    return texts, ids, data["embeddings"]


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_minilm_agrees_with_the_recorded_reference(minilm, batch):
    """64 sentences of 1 to 512 tokens, through one artifact."""
    _, ids, wanted = golden()
    found = minilm.embed_tokens(ids, batch)
    assert np.abs(found - wanted).max() < 1e-4
    cosines = np.sum(found * wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() > 0.99999


def test_minilm_in_bfloat16_stays_near_the_recorded_reference():
    _, ids, wanted = golden()
    found = minilm_embedder(DType.bfloat16).embed_tokens(ids)
    assert found.dtype == np.float32
    cosines = np.sum(found * wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() > 0.9999
    assert np.abs(found - wanted).max() > 1e-4


def test_minilm_tokenizes_as_recorded(minilm):
    texts, ids, _ = golden()
    for found, wanted in zip(minilm.tokens(texts[1:]), ids[1:], strict=True):
        assert found == wanted.tolist()
