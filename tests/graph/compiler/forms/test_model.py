"""A model that is written out in elementary ops has the kernels of the one that names its ops."""

import math
from types import SimpleNamespace

import pytest
from written import softmax

from heddle.graph import ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler import pipeline
from heddle.pipelines.models import activations
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder import layers, model
from heddle.pipelines.models.encoder.config import EncoderConfig

CONFIG = EncoderConfig.of(
    {
        "model_type": "bert",
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
)


def layer_norm(x, gamma, beta, epsilon):
    centered = x - ops.mean(x, axis=-1)
    variance = ops.mean(centered * centered, axis=-1)
    return centered / ops.sqrt(variance + epsilon) * gamma + beta


def gelu(x):
    return x * 0.5 * (1.0 + ops.erf(x / math.sqrt(2.0)))


def attention(query, key, value, mask, layout):
    assert layout == "bshd"
    query, key, value = (ops.permute(each, (0, 2, 1, 3)) for each in (query, key, value))
    scores = query @ ops.transpose(key, -1, -2) / math.sqrt(query.shape[-1].static)
    shares = softmax(ops.where(mask, scores, -math.inf))
    return ops.permute(shares @ value, (0, 2, 1, 3))


def kernels(kind):
    """The kernels of the model in the order of their calls."""
    module = pipeline.lower(sentence_embedder(CONFIG).module, kind)
    return [op.attributes["kernel"].value for op in m.operations(module) if m.name(op) == "fused"]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_bert(kind, monkeypatch):
    named = kernels(kind)
    own = {"layer_norm": layer_norm, "attention": attention}
    for file in (model, layers):
        monkeypatch.setattr(file, "ops", SimpleNamespace(**{**vars(ops), **own}))
    monkeypatch.setitem(activations.ACTIVATIONS, "gelu", gelu)
    assert kernels(kind) == named
