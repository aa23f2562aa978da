"""Decoders of families that are evaluated by NumPy, and the weights of checkpoints by families."""

import json

import numpy as np
import pytest
from decoder_cases import Evaluated, check, config_of, drawn
from decoder_models import EVALUATED
from safetensors.numpy import save_file

from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.cli import source
from heddle.pipelines.language_model import build
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.products import Quantization
from heddle.pipelines.quantization import quantize
from heddle.runtime.errors import GraphError


@pytest.mark.parametrize("name", EVALUATED)
def test_logits_and_the_likeliest_tokens_are_those_of_transformers(name):
    check(Evaluated(config_of(name)), name)


def checkpoint_of(folder, values: dict, arrays: dict) -> Checkpoint:
    """The folder as a checkpoint."""
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values))
    return Checkpoint(folder)


@pytest.mark.parametrize("older", [False, True])
def test_a_checkpoint_of_images_and_texts(tmp_path, older):
    """Of which there are two ways to name the part for texts."""
    values = config_of("qwen2_5_vl")
    prefixes = ("language_model.model.", "language_model.lm_head.")
    prefixes = prefixes if older else ("model.language_model.", "lm_head.")
    arrays = {
        name.replace("model.", prefixes[0]).replace("lm_head.", prefixes[1]): array
        for name, array in drawn(values).items()
    }
    assert prefixes[1] + "weight" in arrays
    images = {"model.visual.blocks.0.mlp.up_proj.weight": np.ones((4, 4), np.float32)}
    found = checkpoint_of(tmp_path, values, arrays | images)
    graph = build(found)
    assert set(graph.weights) == set(arrays)
    assert set(source.load(str(tmp_path)).graph.weights) == set(arrays)
    check(Evaluated(values, graph, weights.select(found.weights, graph.weights)), "qwen2_5_vl")


def test_logits_of_a_model_of_images_by_its_embeddings():
    values = config_of("gemma3_vl")
    assert DecoderConfig.of(values).tie_word_embeddings
    assert not DecoderConfig.of(values | {"tie_word_embeddings": False}).tie_word_embeddings
    text = values["text_config"] | {"tie_word_embeddings": False}
    assert not DecoderConfig.of(values | {"text_config": text}).tie_word_embeddings
    assert not DecoderConfig.of(config_of("qwen3_vl_moe")).tie_word_embeddings
    with pytest.raises(GraphError, match=r"text_config: wanted a JSON object, got 1$"):
        DecoderConfig.of(values | {"text_config": 1})


def test_sizes_that_a_model_of_images_leaves_out():
    """As LLaVA 1.5 and 1.6 do, whose `text_config` says no more than this."""
    llama = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}
    found = DecoderConfig.of({"model_type": "llava", "text_config": {**llama, "vocab_size": 32064}})
    assert (found.vocab_size, found.max_position_embeddings) == (32064, 4096)
    assert found.rms_norm_eps == 1e-5
    assert (found.hidden_size, found.intermediate_size, len(found.layers)) == (4096, 11008, 32)
    mistral = {"model_type": "mistral", "sliding_window": None, "intermediate_size": 14336}
    found = DecoderConfig.of({"model_type": "llava_next", "text_config": mistral})
    assert (found.num_attention_heads, found.num_key_value_heads, found.head_dim) == (32, 8, 128)
    with pytest.raises(GraphError, match="wanted the keys of a llama model, got no vocab_size"):
        DecoderConfig.of(llama)


def test_layers_that_guess_later_tokens_are_left_out(tmp_path):
    values = config_of("glm4_moe")
    later = {"model.layers.2.embed_tokens.weight": (80, 64), "model.layers.2.eh_proj.weight": (64,)}
    arrays = drawn(values) | {name: np.ones(shape, np.float32) for name, shape in later.items()}
    found = checkpoint_of(tmp_path, values | {"num_nextn_predict_layers": 1}, arrays)
    assert "model.embed_tokens.weight" in build(found).weights
    assert not set(later).intersection(build(found).weights)
    with pytest.raises(GraphError, match=r"got also model\.layers\.2\."):
        build(checkpoint_of(tmp_path, values, arrays))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("arcee", "lm_head.bias"),
        ("arcee", "model.norm.bias"),
        ("arcee", "model.layers.0.mlp.gate_proj.weight"),
        ("olmo", "model.norm.weight"),
        ("gpt_neox", "gpt_neox.layers.0.attention.dense.scale"),
    ],
)
def test_weights_that_a_family_does_not_have(tmp_path, name, more):
    values = config_of(name)
    arrays = drawn(values) | {more: np.ones(64, np.float32)}
    with pytest.raises(GraphError, match=f"got also {more}: see"):
        build(checkpoint_of(tmp_path, values, arrays))


def test_experts_that_are_stored_as_one_are_rounded_one_by_one(tmp_path):
    values = config_of("granitemoe")
    found = checkpoint_of(tmp_path, values, drawn(values))
    graph = build(found, quantization=Quantization(8, 32))
    arrays = weights.select(found.weights, graph.weights)
    name = "model.layers.0.block_sparse_moe.input_linear"
    integers, scales = quantize(drawn(values)[f"{name}.weight"][3], 8, 32)
    np.testing.assert_array_equal(arrays[f"{name}.integers"][3], integers)
    np.testing.assert_array_equal(arrays[f"{name}.scales"][3], scales)


def test_the_masks_that_old_checkpoints_have(tmp_path):
    values, at = config_of("gpt_neox"), "gpt_neox.layers.0.attention"
    masks = {f"{at}.bias": np.ones((1, 1, 4, 4), np.uint8), f"{at}.masked_bias": np.ones(1, "f4")}
    found = checkpoint_of(tmp_path, values, drawn(values) | masks)
    assert set(build(found).weights) == set(drawn(values))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ernie4_5", {"use_bias": True}, "use_bias: wanted False, got True$"),
        ("starcoder2", {"use_bias": False}, "use_bias: wanted True, got False$"),
        ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual: wanted False, got"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm: wanted False, got True$"),
        ("phi", {"use_parallel_residual": False}, "use_parallel_residual: wanted True, got False$"),
        ("arcee", {"use_parallel_residual": True}, "use_parallel_residual: wanted False, got True"),
        ("gpt_neox", {"use_parallel_residual": 1}, "use_parallel_residual: wanted true or false"),
        ("gpt_neox", {"use_qk_norm": True}, "use_qk_norm: wanted False, got True$"),
        ("glm4_moe", {"use_qk_norm": 1}, "use_qk_norm: wanted true or false, got 1$"),
        ("glm4_moe", {"num_nextn_predict_layers": -1}, "num_nextn_predict_layers: wanted an int"),
        ("glm4_moe", {"hidden_act": "xielu"}, "hidden_act: wanted one of .*, got 'xielu'$"),
        ("olmo", {"clip_qkv": 0}, "clip_qkv: wanted a finite number above 0, got 0$"),
        ("hunyuan", {"use_cla": True}, "use_cla: wanted False, got True$"),
        (
            "hunyuan",
            {"rope_scaling": {"type": "dynamic", "alpha": -1}},
            "rope_scaling dynamic: alpha: wanted a finite number above 0, got -1$",
        ),
        (
            "ministral3",
            {"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": -1}},
            "llama_4_scaling_beta: wanted a finite number above 0, got -1$",
        ),
        ("minimax_m2", {"rotary_dim": 7}, "rotary_dim: wanted an even share of heads of 32, got 7"),
        (
            "minimax_m2",
            {"partial_rotary_factor": 1.0},
            "rotary_dim: wanted 32, as partial_rotary_factor says, got 16$",
        ),
        (
            "glm4_moe",
            {"partial_rotary_factor": 0},
            "partial_rotary_factor: wanted a finite number above 0, got 0$",
        ),
        (
            "phi",
            {"rms_norm_eps": 1e-6},
            "layer_norm_eps: wanted 1e-06, as rms_norm_eps says, got 1e-05$",
        ),
        ("minimax_m2", {"rotary_dim": "8"}, "rotary_dim: wanted an integer of at least 0, got '8'"),
        (
            "exaone4",
            {"sliding_window_pattern": "LLLG"},
            "sliding_window_pattern: wanted an integer",
        ),
        ("qwen3_vl", {"text_config": {"model_type": "qwen4"}}, "model_type: wanted one of .*qwen4"),
    ],
)
def test_a_config_of_what_a_family_does_not_compute(name, change, message):
    with pytest.raises(GraphError, match=message):
        DecoderConfig.of(config_of(name) | change)


def test_what_a_config_says_of_a_family():
    assert not DecoderConfig.of(config_of("glm4_moe") | {"use_qk_norm": False}).qk_norm
    assert DecoderConfig.of(config_of("gpt_neox")).parallel
    assert not DecoderConfig.of(config_of("gpt_neox_in_turn")).parallel
    text = config_of("qwen3_vl")["text_config"] | {"rope_parameters": None}
    assert DecoderConfig.of(text).layers[0].rope.theta == 500000
    turned = [layer.rope is not None for layer in DecoderConfig.of(config_of("exaone4")).layers]
    assert turned == [True, True, True, False]
    assert all(layer.rope for layer in DecoderConfig.of(config_of("exaone4_whole")).layers)
