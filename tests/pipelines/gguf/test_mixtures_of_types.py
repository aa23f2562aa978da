"""Files with several types of blocks, as the likes of Q4_K_M have them."""

import math

import numpy as np
import pytest
from decoder_cases import drawn
from gguf_files import byte_level, rounded, write

from heddle.contexts import SamplingParams, TextGenerationRequest
from heddle.graph import compile
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import GgufCheckpoint
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.language_model import build
from heddle.pipelines.models.products import AS_STORED, AsStored
from heddle.runtime import InferenceSession

CONFIG = {
    "model_type": "llama",
    "vocab_size": 260,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}

BETTER = ("token_embd.weight", "blk.0.attn_v.weight", "blk.0.ffn_down.weight")
"""The tensors that Q4_K_M has in Q6_K: the embeddings, and two of some layers."""


def kind_of(name):
    return "Q6_K" if name in BETTER else "Q4_K"


@pytest.fixture(scope="module")
def arrays():
    return drawn(CONFIG)


@pytest.fixture(scope="module")
def found(tmp_path_factory, arrays, tokenizer):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    add = byte_level(tokenizer, size=260, bos=256, eos=257)
    return GgufCheckpoint(write(path, "llama", CONFIG, arrays, kind_of, add))


def test_what_weights_are_held_in(found, arrays):
    graph = build(found)
    kinds = {name: w.dtype.name for name, w in graph.weights.items()}
    exact = {"integers": "uint8", "scales": "float16", "minimums": "float16"}
    anew = {"integers": "int8", "scales": "float32"}
    for product, wanted in (("v_proj", anew), ("down_proj", anew), ("up_proj", exact)):
        own = [name for name in kinds if ".0." in name and product in name]
        assert {name.rpartition(".")[2]: kinds[name] for name in own} == wanted
    assert kinds["model.embed_tokens.integers"] == "int8"
    assert not [name for name in kinds if name.endswith("proj.weight") or "embed_tokens.w" in name]
    selected = weights.select(found.weights, graph.weights)
    name = "model.layers.0.mlp.up_proj"
    halves = selected[f"{name}.integers"]
    integers = np.stack([halves & 15, halves >> 4], axis=-1).reshape(256, 256)
    sides = (selected[f"{name}.{side}"].astype(np.float32) for side in ("scales", "minimums"))
    scales, minimums = (np.repeat(side, 32, axis=1) for side in sides)
    wanted = rounded(arrays[f"{name}.weight"], "Q4_K")
    close = 2.0**-11 * (15 * np.abs(scales) + np.abs(minimums))
    assert (np.abs(integers * scales + minimums - wanted) <= close).all()


def test_rows_are_rounded_where_that_is_asked_for(found):
    """Weights are held as without it."""
    plain, rounded = build(found), build(found, quantization=AsStored("int8"))
    assert rounded.weights == plain.weights
    floats, integers = 'activations = "float"', 'activations = "int8"'
    assert str(rounded) == str(plain).replace(floats, integers) != str(plain)


def written(found, quantization):
    """The deltas of one text."""
    graph = build(found, quantization=quantization)
    arrays = weights.select(found.weights, graph.weights)
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), arrays)
    params = SamplingParams(max_new_tokens=9, temperature=0.0, top_k=-1, ignore_eos=True)
    request = TextGenerationRequest(
        id="r",
        index=0,
        model_name="",
        prompt="Once upon",
        logprobs=260,
        sampling_params=params,
    )
    return list(TextGenerator(model, TextTokenizer(found.tokenizer)).stream(request))


def test_texts_are_those_of_the_floats(found):
    """And probabilities are, but for what scales lose in float16 and others in int8."""
    own, wanted = (written(found, quantization) for quantization in (AS_STORED, "float"))
    assert [delta.tokens for delta in own] == [delta.tokens for delta in wanted]
    for delta, other in zip(own, wanted, strict=True):
        tops = [each.log_probabilities[0].top_log_probabilities[0] for each in (delta, other)]
        off = [abs(math.exp(tops[0][token]) - math.exp(value)) for token, value in tops[1].items()]
        assert 0 < max(off) < 0.06
