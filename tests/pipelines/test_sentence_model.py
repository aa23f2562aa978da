"""Folders of encoders as graphs: what is in them decides what becomes of them."""

import json

import numpy as np
import pytest
from encoder_cases import config_of, drawn, inputs_of
from safetensors.numpy import save_file

from heddle.graph import DType, compile, reference
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.sentence_model import build
from heddle.runtime import InferenceSession
from heddle.runtime.errors import ArtifactError, GraphError

MODULES = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")


def folder_of(folder, name, prefix="", dtype="float32", more=(), **change):
    """The checkpoint of one of the recorded encoders, in `folder`."""
    values = config_of(name) | change
    graph = sentence_embedder(EncoderConfig.of(config_of(name)), prefix=prefix)
    arrays = {name: array.astype(dtype) for name, array in drawn(graph).items()}
    arrays |= {name: np.ones(3, np.float32) for name in more}
    (folder / "config.json").write_text(json.dumps(values))
    save_file(arrays, folder / "model.safetensors")
    return Checkpoint(folder)


def evaluated(found, name, *more):
    """The graph of the folder, evaluated by NumPy on its own weights."""
    graph = build(found, "tiny")
    arrays = weights.select(found.weights, graph.weights)
    return reference.evaluate(graph, (*inputs_of(name), *more), arrays)[0]


@pytest.mark.parametrize("name", ["bert", "mpnet", "modernbert", "nomic_bert"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_the_mean_of_length_1_where_nothing_is_said(tmp_path, name, prefix):
    found = folder_of(tmp_path, name, prefix, more=["lm_head.bias", f"{prefix}pooler.dense.bias"])
    assert build(found, "tiny").name == "tiny"
    vectors = evaluated(found, name)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_modules_of_the_folder(tmp_path):
    found = folder_of(tmp_path, "bert")
    mean = evaluated(found, "bert")
    rows = [{"type": f"sentence_transformers.models.{kind}", "path": at} for kind, at in MODULES]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    first = evaluated(found, "bert")
    assert np.abs(first - mean).max() > 0.01
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dtype", [None, DType.bfloat16])
def test_weights_in_float16(tmp_path, dtype):
    """They are taken as they are, and the model computes in float32 unless asked otherwise."""
    wide, narrow = (tmp_path / kind for kind in ("wide", "narrow"))
    for folder in (wide, narrow):
        folder.mkdir()
    graph = build(folder_of(narrow, "bert", dtype="float16"), "tiny", dtype)
    assert {w.dtype for w in graph.weights.values()} == {DType.float16}
    arrays = weights.select(narrow / "model.safetensors", graph.weights)
    artifact = compile(graph, "cpu:native", weights=arrays, embed_weights=True)
    (found,) = InferenceSession(threads=2).load(artifact).execute(*inputs_of("bert"))
    wanted = evaluated(folder_of(wide, "bert"), "bert")
    np.testing.assert_allclose(found.to_numpy(), wanted, atol=0.03 if dtype else 1e-3)


@pytest.mark.parametrize("dtype", [None, DType.bfloat16])
def test_any_number_of_threads_gives_the_same_bits(tmp_path, dtype):
    """Of embeddings: products, attention, norms and activations, of as many rows as are shared."""
    graph = build(folder_of(tmp_path, "bert"), "tiny", dtype)
    arrays = weights.select(tmp_path / "model.safetensors", graph.weights)
    artifact = compile(graph, "cpu:native", weights=arrays, embed_weights=True)
    inputs = [np.tile(array, (64, 1)) for array in inputs_of("bert")]
    found = [
        InferenceSession(threads=count).load(artifact).execute(*inputs)[0].to_numpy().tobytes()
        for count in (1, 2, 3, 7)
    ]
    assert found == found[:1] * len(found)


def test_a_class_for_classification_is_a_scorer(reranker):
    graph = build(Checkpoint(reranker), "reranker")
    assert len(graph.inputs) == 3
    assert {"bert.pooler.dense.weight", "classifier.weight"} < set(graph.weights)


def test_a_pooling_is_an_embedder_whatever_the_class(tmp_path):
    found = folder_of(tmp_path, "bert", architectures=["BertForSequenceClassification"])
    rows = [{"type": kind, "path": at} for kind, at in MODULES]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text("{}")
    assert evaluated(found, "bert").shape == (3, 32)


@pytest.mark.parametrize(
    ("name", "change", "more", "named"),
    [
        ("bert", {"num_hidden_layers": 1}, (), r"encoder\.layer\.1\."),
        ("modernbert", {}, ("layers.0.attn.Wqkv.bias",), r"layers\.0\.attn\.Wqkv\.bias$"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, name, change, more, named):
    """Which the graph would leave out: other embeddings would come of it."""
    found = folder_of(tmp_path, name, more=more, **change)
    with pytest.raises(GraphError, match=f"wanted the weights of the model in .* got also {named}"):
        build(found, "tiny")


def test_frequencies_that_are_stored_are_no_weights(tmp_path):
    more = ["encoder.layers.0.attn.rotary_emb.inv_freq"]
    build(folder_of(tmp_path, "nomic_bert", more=more), "tiny")


def test_another_family_than_the_weights_are_of(tmp_path):
    folder_of(tmp_path, "modernbert")
    (tmp_path / "config.json").write_text(json.dumps(config_of("bert")))
    with pytest.raises(ArtifactError, match=r"wanted one tensor named \.\.\.embeddings\.word_emb"):
        build(Checkpoint(tmp_path), "tiny")


@pytest.mark.parametrize("classes", ["BertModel", [7]])
def test_classes_that_are_none_are_refused(tmp_path, classes):
    found = folder_of(tmp_path, "bert", architectures=classes)
    with pytest.raises(GraphError, match="architectures: wanted a list of texts, got"):
        build(found, "tiny")
