"""Families whose models differ in more than sizes: what is read, and what is refused by name."""

import json

import numpy as np
import pytest
from decoder_cases import Evaluated, check, config_of, drawn
from safetensors.numpy import save_file

from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.rotary import Growth
from heddle.runtime.errors import GraphError


def layers(name, **changes):
    return DecoderConfig.of({**config_of(name), **changes}).layers


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_checkpoint_of_gpt2(tmp_path, prefix):
    """Its products are stored turned, and its masks are none of the model's weights."""
    values = config_of("gpt2")
    wanted = drawn(values)
    arrays = {
        name.replace("transformer.", prefix): np.ascontiguousarray(array.T)
        if ".c_" in name and array.ndim == 2
        else array
        for name, array in wanted.items()
    }
    arrays |= {f"{prefix}h.0.attn.bias": np.tri(512, dtype=np.float32)[None, None]}
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(values))
    found = Checkpoint(tmp_path)
    graph = build(found)
    check(Evaluated(values, graph, weights.select(found.weights, graph.weights)), "gpt2")


def test_positions_of_gpt2_with_a_context():
    """There is a vector for each place that the model was trained with."""
    config = DecoderConfig.of(config_of("gpt2"), context=64)
    assert (config.max_position_embeddings, config.positions) == (64, 512)


def test_growth_and_rotation_of_llama_4():
    found = layers("llama4")
    assert [layer.rope is None for layer in found] == [False, False, True, False]
    assert [layer.growth for layer in found] == [None, None, Growth(0.3, 8.0, 1), None]
    assert [layer.sparse for layer in found] == [False, True, False, True]
    assert [layer.sparse for layer in layers("llama4", moe_layers=[0])] == [True, *[False] * 3]
    found = layers("llama4", no_rope_layers=[], attn_temperature_tuning=False)
    assert [layer.growth for layer in found] == [None] * 4
    wrapped = {"model_type": "llama4", "text_config": config_of("llama4")}
    assert DecoderConfig.of(wrapped) == DecoderConfig.of(config_of("llama4"))


def test_texts_of_more_than_a_chunk():
    values = {**config_of("llama4"), "attention_chunk_size": 64}
    message = "attention_chunk_size: wanted a chunk of the 512 tokens .* got 64; take --context 64$"
    with pytest.raises(GraphError, match=message):
        DecoderConfig.of(values)
    assert DecoderConfig.of(values, context=64).max_position_embeddings == 64


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "_layer_idx: wanted False, got True$"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights: wanted True, got False$"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention: wanted False, got True$"),
        ("gpt2", {"n_inner": "x"}, "intermediate_size: wanted an integer of at least 1, got 'x'$"),
        ("falcon", {"alibi": True}, "alibi: wanted False, got True$"),
        ("falcon", {"bias": 1}, "bias: wanted true or false, got 1$"),
        ("falcon_grouped", {"parallel_attn": False}, "parallel_attn: wanted True, got False$"),
        ("falcon_grouped", {"num_ln_in_parallel_attn": 3}, "wanted 1 or 2, got 3$"),
        (
            "falcon",
            {"num_ln_in_parallel_attn": 2},
            "num_ln_in_parallel_attn: wanted 1 without new_decoder_architecture, got 2$",
        ),
        ("llama4", {"moe_layers": 1}, "moe_layers: wanted a list, got 1$"),
        ("llama4", {"attention_chunk_size": 0}, "attention_chunk_size: wanted an integer of at"),
        ("llama4", {"floor_scale": 0}, "floor_scale: wanted a finite number above 0, got 0$"),
        (
            "llama4",
            {"layer_types": ["sliding_attention"]},
            "layer_types: wanted one of chunked_attention, full_attention, got 'sliding_attention'",
        ),
        ("llama4", {"no_rope_layers": [1]}, "no_rope_layers: wanted 4, got 1$"),
    ],
)
def test_what_is_refused(name, changes, message):
    with pytest.raises(GraphError, match=message):
        layers(name, **changes)


def test_a_share_of_heads_that_is_not_what_is_turned():
    values = config_of("mistral4")
    text = values["text_config"]
    for share in (1.0, 0.4, None):
        rows = {**text["rope_parameters"], "partial_rotary_factor": share}
        changed = {**values, "text_config": {**text, "rope_parameters": rows}}
        assert DecoderConfig.of(changed) == DecoderConfig.of(values)
    message = "partial_rotary_factor: wanted 0.4, as qk_rope_head_dim says, got 0.5$"
    with pytest.raises(GraphError, match=message):
        DecoderConfig.of({**values, "text_config": {**text, "partial_rotary_factor": 0.5}})
